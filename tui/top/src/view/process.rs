//! The screen of one process: its hold and wait times, its memory over the last minutes, its events, and its blockers.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};

use super::pen::Pen;
use super::{Look, events, footer, histogram, history, summary};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::units::{short_count, short_time};
use gpushare_observe::data::Data;
use gpushare_sample::Who;
use gpushare_sample::{Histogram, Holding};

/// The minimum height for charts.
const PANELS: u16 = 20;
/// The minimum width for two graphs beside each other.
const WIDE: u16 = 80;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, who: Who) {
    let data = state.data();
    let Some(process) = data.process(who) else {
        return;
    };
    let Some(holding) = state.shown_gpu(process).and_then(|gpu| process.on(gpu)) else {
        return;
    };
    let palette = &look.palette;
    let span = data.span(holding.gpu).words();
    let [holds, waits] = data.lanes.lengths(who, holding.gpu);
    let (ends, blockers) = (ends(holding), blockers(data, holding));
    let (held, waited) = (quantiles(&holds), quantiles(&waits));
    let mut lines = summary::lines(data, process, holding, &state.choices.keymap);
    let small = area.height < PANELS;
    if small {
        lines.insert(1, format!("holds {held} ({span})   {ends}"));
        lines.insert(1, format!("waits {waited} ({span})   {blockers}"));
    }
    let lines = summary::fitted(lines, area.width.saturating_sub(4));
    let wanted = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [top, times, rest, bottom] = Layout::vertical([
        Constraint::Max(if small {
            wanted
        } else {
            wanted.min(area.height / 2 - 2)
        }),
        Constraint::Fill(if small { 0 } else { 3 }),
        Constraint::Fill(4),
        Constraint::Length(u16::from(area.height > 3)),
    ])
    .areas(area);
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
    let mut pen = Pen::new(buffer, top, palette);
    let key = |action| state.choices.keymap.key_of(action);
    let [next, before] = [1, -1].map(|by| key(Action::Move(by)));
    let note = format!(
        "{next} {before} other processes   {} back",
        key(Action::Back)
    );
    let mut inside = pen.pane(&data.title(who), &note);
    for (line, y) in lines.iter().zip(0..inside.height()) {
        inside.put_within(1, y, line, u16::MAX, inside.style(Role::Text));
    }
    let mut log = rest;
    if !small {
        let holds = histogram::Panel {
            title: &format!("Holds by length  {span}"),
            times: &holds,
            line: &held,
            note: &ends,
            role: Role::Good,
        };
        let waits = histogram::Panel {
            title: &format!("Waits by length  {span}"),
            times: &waits,
            line: &waited,
            note: &blockers,
            role: Role::Warn,
        };
        for (area, panel) in halves.areas::<2>(times).into_iter().zip([holds, waits]) {
            panel.draw(&mut Pen::new(buffer, area, palette));
        }
        let [left, right] = halves.areas(rest);
        draw_graphs(
            &mut Pen::new(buffer, rest, palette),
            left,
            data,
            who,
            holding,
        );
        log = right;
    }
    if log.height >= 3 {
        let mut pen = Pen::new(buffer, log, palette);
        let title = format!("Events  {}", state.choices.events.word());
        events::list(&mut pen.pane(&title, "l others"), state, look, Some(who));
    }
    footer::draw(&mut Pen::new(buffer, bottom, palette), state, look);
}

/// Draws the memory over time, and beside it, if there is room, the lock.
fn draw_graphs(pen: &mut Pen<'_>, left: Rect, data: &Data, who: Who, holding: &Holding) {
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
    match left.width >= WIDE {
        true => {
            let [left, middle] = halves.areas(left);
            let [holds, waits] = Layout::vertical([Constraint::Fill(1); 2]).areas(middle);
            history::memory(pen, left, data, who, holding);
            history::lock(pen, holds, data, who, holding, true);
            history::lock(pen, waits, data, who, holding, false);
        }
        false => history::memory(pen, left, data, who, holding),
    }
}

/// Describes how the holds ended.
fn ends(holding: &Holding) -> String {
    let ends = holding.lock.ends().into_iter();
    let ends = ends.map(|(end, n)| (end.word().to_owned(), n));
    format!("ever ended by: {}", shares(ends).join("  "))
}

/// Describes which processes it waited for.
fn blockers(data: &Data, holding: &Holding) -> String {
    let waits = holding.lock.waited_for.iter();
    let blockers = waits.map(|(slot, ns)| (blocker(data, Who::Slot(*slot)), *ns));
    format!("ever waited for: {}", shares(blockers).join("  "))
}

fn blocker(data: &Data, who: Who) -> String {
    match data.process(who) {
        Some(_) => data.letter(who).to_string(),
        None => "gone".into(),
    }
}

/// Returns each count as a share of the sum, with its name.
fn shares(counts: impl Iterator<Item = (String, u64)>) -> Vec<String> {
    let counts: Vec<_> = counts.collect();
    let sum = counts.iter().map(|(_, n)| *n).fold(0, u64::saturating_add);
    let percent = |n: u64| n as f64 * 100.0 / sum.max(1) as f64;
    counts
        .into_iter()
        .take(6)
        .map(|(name, n)| format!("{name} {:.0}%", percent(n)))
        .collect()
}

/// Describes the median, the 99th percentile and the longest of the times.
fn quantiles(times: &Histogram) -> String {
    let show = |q| times.quantile(q).map_or("-".into(), short_time);
    let longest = match times.max_ns {
        0 => "-".into(),
        ns => short_time(ns),
    };
    format!(
        "{} times  p50 {}  p99 {}  max {longest}",
        short_count(times.count()),
        show(0.5),
        show(0.99)
    )
}
