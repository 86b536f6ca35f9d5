//! Events, newest first, each as a short sentence.

use jiff::Timestamp;

use super::Look;
use super::pen::Pen;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::events::{self, Said, Tone};
use gpushare_observe::data::Data;
use gpushare_sample::Who;
use gpushare_sample::{EventLine, What};

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, look: &Look) {
    if pen.height() < 3 {
        return;
    }
    let showing = state.choices.events;
    let title = format!("Events  {}", showing.word());
    let mut inside = pen.pane(&title, "l others");
    list(&mut inside, state, look, None);
}

/// Draws the events of one process, or of all. A run of denials of one process is one line.
pub(super) fn list(pen: &mut Pen<'_>, state: &State, look: &Look, of: Option<Who>) {
    let mut runs = runs(state, of).peekable();
    if runs.peek().is_none() {
        pen.put(1, 0, "no events yet", pen.style(Role::Dim));
    }
    for (run, y) in runs.zip(0..pen.height()) {
        let end = line(pen, y, state, run.newest, look, of.is_none());
        if run.times > 1 {
            let since = clock(state, run.first.time_ns, look);
            let text = format!("  x{} since {}", run.times, &since[..8]);
            pen.put(end, y, &text, pen.style(Role::Dim));
        }
    }
}

/// Returns the number of lines of all events, at most `most`.
pub(super) fn lines(state: &State, most: u16) -> u16 {
    let count = runs(state, None).take(most.into()).count();
    u16::try_from(count).unwrap_or(most)
}

/// A line: an event, or a run of denials of one process.
struct Run<'a> {
    newest: &'a EventLine,
    first: &'a EventLine,
    times: u32,
}

fn runs(state: &State, of: Option<Who>) -> impl Iterator<Item = Run<'_>> {
    let end_ns = state.moment_ns().unwrap_or(u64::MAX);
    let newest = state.data().log.newest(state.choices.events, of);
    let mut newest = newest
        .skip_while(move |event| event.time_ns > end_ns)
        .peekable();
    std::iter::from_fn(move || {
        let event = newest.next()?;
        let mut run = Run {
            newest: event,
            first: event,
            times: 1,
        };
        while let Some(more) = newest.next_if(|next| is_same_denial(event, next)) {
            run.times += 1;
            run.first = more;
        }
        Some(run)
    })
}

fn is_same_denial(a: &EventLine, b: &EventLine) -> bool {
    let denials = matches!((a.what, b.what), (What::Denial { .. }, What::Denial { .. }));
    denials && (a.slot, a.gpu) == (b.slot, b.gpu)
}

fn line(
    pen: &mut Pen<'_>,
    y: u16,
    state: &State,
    event: &EventLine,
    look: &Look,
    with_name: bool,
) -> u16 {
    let data = state.data();
    let mut x = pen.put(
        1,
        y,
        &clock(state, event.time_ns, look),
        pen.style(Role::Dim),
    ) + 1;
    let Said { word, tone, text } = events::say(&event.what);
    // Without a name only the sentence follows, which needs the room.
    let width = if with_name { 9 } else { 8 };
    x = pen.put(x, y, &format!("{word:<width$}"), pen.style(role(tone))) + 1;
    if with_name && let Some(slot) = event.slot {
        let who = Who::Slot(slot);
        let known = data.process(who).is_some();
        let letter = if known { data.letter(who) } else { ' ' };
        let style = if known {
            pen.palette.process(data.hue(who))
        } else {
            pen.style(Role::Dim)
        };
        let pid = event.pid.map(|pid| format!("{pid} ")).unwrap_or_default();
        let width = if pen.width() >= 96 { 24 } else { 18 };
        let end = pen.put(x, y, &format!("{letter} {pid}"), style);
        pen.name(end, y, &event.name, (x + width).saturating_sub(end), style);
        x += width + 1;
    }
    let details = details(data, event, text, pen.glyphs().arrow);
    pen.put(x, y, &details, pen.style(Role::Text))
}

/// Returns the rest of the sentence with its device; of an edit, what it changed.
fn details(data: &Data, event: &EventLine, text: String, arrow: &str) -> String {
    if let What::Edit { generation } = event.what
        && let Some(edit) = data.edit(generation)
    {
        return edit.told(data.sample.time_ns, arrow);
    }
    match event.gpu {
        Some(gpu) => format!("GPU{gpu} {text}"),
        None => text,
    }
}

/// An event as words, for a page.
pub(super) struct Words {
    pub(super) time: String,
    pub(super) kind: &'static str,
    pub(super) role: Role,
    pub(super) who: Option<Who>,
    pub(super) process: String,
    pub(super) details: String,
}

/// Returns the newest events as words; a run of denials of one process is one event.
pub(super) fn words(state: &State, look: &Look) -> impl Iterator<Item = Words> {
    let data = state.data();
    runs(state, None).map(move |run| {
        let event = run.newest;
        let Said { word, tone, text } = events::say(&event.what);
        let since = match run.times {
            1 => String::new(),
            times => {
                let since = clock(state, run.first.time_ns, look);
                format!("  x{times} since {}", &since[..8])
            }
        };
        let pid = event.pid.map(|pid| format!("{pid} ")).unwrap_or_default();
        Words {
            time: clock(state, event.time_ns, look),
            kind: word,
            role: role(tone),
            who: event.slot.map(Who::Slot),
            process: pid + &event.name,
            details: details(data, event, text, look.palette.glyphs.arrow) + &since,
        }
    })
}

/// Returns a moment by the wall clock, to the millisecond.
pub(super) fn clock(state: &State, time_ns: u64, look: &Look) -> String {
    match Timestamp::from_millisecond(state.unix_ms_at(time_ns)) {
        Ok(at) => at
            .to_zoned(look.zone.clone())
            .strftime("%H:%M:%S%.3f")
            .to_string(),
        Err(_) => "--:--:--.---".into(),
    }
}

pub(super) fn role(tone: Tone) -> Role {
    match tone {
        Tone::Dim => Role::Dim,
        Tone::Title => Role::Title,
        Tone::Key => Role::Key,
        Tone::Good => Role::Good,
        Tone::Warn => Role::Warn,
        Tone::Bad => Role::Bad,
    }
}
