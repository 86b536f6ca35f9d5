//! The screen of waits and blockers on one device, with the cost of hand-offs.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};

use super::pen::Pen;
use super::{Look, events, footer, header, histogram};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::units::{short_count, short_time};
use gpushare_observe::data::Data;
use gpushare_observe::data::wait_attribution::{Blocker, Line, Waits};
use gpushare_sample::DeviceSample;

/// Number of lines for the frame, the sentence, the heading and the sum.
const MATRIX_EXTRA: u16 = 5;
/// The width of a time and a share: ` 58.0s  61%`.
const CELL: u16 = 12;
/// The width of a time alone.
const NARROW_CELL: u16 = 7;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    let waits = state.waits();
    let wanted = u16::try_from(waits.lines.len().max(1)).unwrap_or(u16::MAX);
    let wanted = wanted.saturating_add(MATRIX_EXTRA);
    let tall = area.height >= 18;
    let wide = area.width >= 90;
    let [top, matrix, below, bottom] = Layout::vertical([
        Constraint::Length(u16::from(area.height >= 4)),
        Constraint::Max(wanted),
        // This part takes the remaining lines, so that the footer is at the bottom.
        if tall {
            Constraint::Min(8)
        } else {
            Constraint::Fill(1)
        },
        Constraint::Length(u16::from(area.height >= 3)),
    ])
    .areas(area);
    let palette = &look.palette;
    header::draw(&mut Pen::new(buffer, top, palette), state, look, true);
    self::matrix(&mut Pen::new(buffer, matrix, palette), state, &waits);
    if let Some(device) = state.data().sample.devices.get(state.choices.gpu) {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(u16::from(wide))]);
        let [left, right] = halves.areas(below);
        let mut pen = Pen::new(buffer, left, palette);
        if tall {
            handoffs(&mut pen, state, device);
            if wide {
                events::draw(&mut Pen::new(buffer, right, palette), state, look);
            }
        } else {
            let text = format!("hand-offs {}", summary(state, device));
            pen.put_within(1, 0, &text, u16::MAX, pen.style(Role::Dim));
        }
    }
    footer::draw(&mut Pen::new(buffer, bottom, palette), state, look);
}

/// Describes the time window of the waits, for a heading or a sentence.
fn span(waits: &Waits) -> String {
    match waits.seconds() {
        Some(seconds) => format!("the last {seconds} s"),
        None => "all time".into(),
    }
}

/// Describes the longest wait in a sentence, for a small screen.
fn briefly(data: &Data, waits: &Waits) -> Option<String> {
    let pair = waits.worst()?;
    let name = |who| {
        let name = data.process(who).map_or("", |process| process.name());
        format!("{} {name}", data.letter(who))
    };
    Some(format!(
        "{} waited {} for {}: {:.0}%",
        name(pair.who),
        short_time(pair.ns),
        name(pair.behind),
        pair.share * 100.0
    ))
}

fn matrix(pen: &mut Pen<'_>, state: &State, waits: &Waits) {
    let data = state.data();
    let gpu = state.choices.gpu;
    let title = format!("Waits and blockers  GPU{gpu}  {}", span(waits));
    let mut inside;
    let mut pen = match pen.height() {
        0..4 => Pen::reborrow(pen),
        _ => {
            let next = state.choices.keymap.key_of(Action::Gpu(1));
            let note = format!("rows wait, columns held   {next} next GPU");
            inside = pen.pane(&title, &note);
            Pen::reborrow(&mut inside)
        }
    };
    let sentence = match pen.width() {
        0..90 => briefly(data, waits),
        _ => data.longest_wait(waits),
    };
    let Some(sentence) = sentence else {
        let policy = data
            .sample
            .devices
            .get(gpu)
            .map(|device| device.policy.0.kind);
        let text = match policy {
            Some(kind) if !kind.is_gated() => {
                let policy = state.choices.keymap.key_of(Action::Policy);
                format!(
                    "no waits: the policy is {}; {policy} sets one",
                    kind.parts().0.word
                )
            }
            _ => "no waits".to_owned(),
        };
        pen.put_within(1, 0, &text, u16::MAX, pen.style(Role::Dim));
        return;
    };
    pen.put_within(1, 0, &sentence, u16::MAX, pen.style(Role::Title));
    let table = Table::of(pen.width(), waits);
    table.heading(&mut pen, data);
    let room = usize::from(pen.height().saturating_sub(2));
    let lines = room.saturating_sub(1).max(1).min(waits.lines.len());
    let selected = waits
        .lines
        .iter()
        .position(|line| Some(line.who) == state.choices.selected);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(lines));
    for (line, y) in waits.lines[first..].iter().take(lines).zip(2..) {
        table.line(&mut pen, y, data, line);
        if Some(line.who) == state.choices.selected {
            let style = pen.style(Role::Selected);
            pen.mark_line(y, style);
        }
    }
    if room > lines {
        table.sums(&mut pen, 2 + u16::try_from(lines).unwrap_or(u16::MAX));
    }
}

/// The columns that fit, and their width.
struct Table<'a> {
    waits: &'a Waits,
    name: u16,
    cell: u16,
    shown: usize,
}

impl<'a> Table<'a> {
    fn of(width: u16, waits: &'a Waits) -> Self {
        let name = match width {
            0..40 => 3,
            40..90 => 16,
            _ => 28,
        };
        let left = width.saturating_sub(name);
        let wanted = u16::try_from(waits.columns.len() + 1).unwrap_or(u16::MAX);
        let cell = if wanted.saturating_mul(CELL) <= left {
            CELL
        } else {
            NARROW_CELL
        };
        let shown = usize::from((left / cell).saturating_sub(1)).min(waits.columns.len());
        Self {
            waits,
            name,
            cell,
            shown,
        }
    }

    /// Returns the column of the screen where a column of the table ends; 0 is the column of all waits.
    fn end(&self, column: usize) -> u16 {
        let column = u16::try_from(column + 1).unwrap_or(u16::MAX);
        self.name.saturating_add(self.cell.saturating_mul(column))
    }

    fn heading(&self, pen: &mut Pen<'_>, data: &Data) {
        let dim = pen.style(Role::Dim);
        if self.name > 3 {
            pen.put_within(1, 1, "WAITED", self.name - 2, dim);
        }
        let all = if self.cell == CELL { "IN ALL" } else { "ALL" };
        pen.put_before(self.end(0), 1, all, dim);
        for (at, column) in self.waits.columns.iter().take(self.shown).enumerate() {
            let end = self.end(at + 1);
            match column {
                Blocker::Here(who) => {
                    let name = data.process(*who).map_or("", |process| process.name());
                    let text = format!("{} {name}", data.letter(*who));
                    let room = self.cell - 2;
                    let width = u16::try_from(unicode_width::UnicodeWidthStr::width(text.as_str()));
                    let width = width.unwrap_or(room).min(room);
                    let colour = pen.palette.process(data.hue(*who));
                    pen.put_within(end.saturating_sub(width), 1, &text, width, colour);
                }
                Blocker::Gone => pen.put_before(end, 1, "gone", dim),
                Blocker::Other => pen.put_before(end, 1, "other", dim),
            }
        }
        let hidden = self.waits.columns.len() - self.shown;
        if hidden > 0 {
            let right = pen.width();
            pen.put_before(right, 1, &format!("+{hidden}"), pen.style(Role::Warn));
        }
    }

    fn line(&self, pen: &mut Pen<'_>, y: u16, data: &Data, line: &Line) {
        let colour = pen.palette.process(data.hue(line.who));
        let x = pen.put(1, y, &data.letter(line.who).to_string(), colour);
        if self.name > 3
            && let Some(process) = data.process(line.who)
        {
            let name = match self.name {
                28.. => format!(" {:<7}{}", process.shown_pid(), process.name()),
                _ => format!(" {}", process.name()),
            };
            pen.put_within(x, y, &name, self.name - x, pen.style(Role::Text));
        }
        // A share of the time window; waits since the start have none.
        let of_span = self.waits.span_ns.map(|span| share(line.waited_ns, span));
        self.cell(pen, y, 0, line.waited_ns, of_span);
        for (at, ns) in line.behind.iter().take(self.shown).enumerate() {
            if self.waits.columns[at] == Blocker::Here(line.who) {
                pen.put_before(self.end(at + 1), y, "-", pen.style(Role::Dim));
            } else {
                self.cell(pen, y, at + 1, *ns, Some(share(*ns, line.waited_ns)));
            }
        }
    }

    fn sums(&self, pen: &mut Pen<'_>, y: u16) {
        if self.name > 3 {
            pen.put_within(
                1,
                y,
                match self.name {
                    28.. => "the others waited for it",
                    _ => "others waited",
                },
                self.name - 1,
                pen.style(Role::Dim),
            );
        }
        let sums = self.waits.sums();
        let all = self
            .waits
            .lines
            .iter()
            .map(|line| line.waited_ns)
            .fold(0, u64::saturating_add);
        self.cell(pen, y, 0, all, None);
        for (at, ns) in sums.iter().take(self.shown).enumerate() {
            self.cell(pen, y, at + 1, *ns, Some(share(*ns, all)));
        }
    }

    fn cell(&self, pen: &mut Pen<'_>, y: u16, column: usize, ns: u64, share: Option<f64>) {
        let end = self.end(column);
        if ns == 0 {
            pen.put_before(end, y, pen.glyphs().empty, pen.style(Role::Dim));
            return;
        }
        let role = match share {
            _ if column == 0 => Role::Text,
            Some(share) if share >= 0.5 => Role::Bad,
            Some(share) if share >= 0.25 => Role::Warn,
            _ => Role::Text,
        };
        let text = match share {
            Some(share) if self.cell == CELL => {
                format!("{} {:>3.0}%", short_time(ns), share * 100.0)
            }
            _ => short_time(ns),
        };
        pen.put_before(end, y, &text, pen.style(role));
    }
}

fn share(ns: u64, of_ns: u64) -> f64 {
    (ns as f64 / of_ns.max(1) as f64).min(1.0)
}

/// Describes the number and the speed of the lock's hand-offs in one line.
fn summary(state: &State, device: &DeviceSample) -> String {
    let show = |q| {
        let time = device.handoff_times.quantile(q);
        time.map_or("-".into(), short_time)
    };
    let rate = match state.data().samples() {
        0 | 1 => String::new(),
        _ => format!(
            " ({}/s)",
            state.data().handoffs_per_s(state.choices.gpu).round()
        ),
    };
    format!(
        "{}{rate}  p50 {}  p99 {}  last {}",
        short_count(device.handoffs),
        show(0.5),
        show(0.99),
        if device.last_handoff_ns > 0 {
            short_time(device.last_handoff_ns)
        } else {
            "-".into()
        },
    )
}

fn handoffs(pen: &mut Pen<'_>, state: &State, device: &DeviceSample) {
    let note = format!(
        "from dead holders {}   by force {}",
        short_count(device.takeovers),
        short_count(device.forced)
    );
    let panel = histogram::Panel {
        title: "Hand-offs so far: from a release to the next holder",
        times: &device.handoff_times,
        line: &summary(state, device),
        note: &note,
        role: Role::Key,
    };
    panel.draw(pen);
}

/// Returns the sentence for `--once`, about the waits since each process began.
pub(super) fn sentence(data: &Data, gpu: usize) -> Option<String> {
    data.longest_wait(&data.waits(gpu, false))
}
