//! Events, newest first, each as a short sentence.

use jiff::Timestamp;
use jiff::tz::TimeZone;

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
    let data = state.data();
    let mut newest = data.log.newest(state.choices.events, of).peekable();
    if newest.peek().is_none() {
        pen.put(1, 0, "no events yet", pen.style(Role::Dim));
    }
    for y in 0..pen.height() {
        let Some(event) = newest.next() else { break };
        let mut times = 1;
        let mut first = event;
        while let Some(more) = newest.next_if(|next| is_same_denial(event, next)) {
            times += 1;
            first = more;
        }
        let end = line(pen, y, data, event, look, of.is_none());
        if times > 1 {
            let since = clock(data, first.time_ns, &look.zone);
            let text = format!("  x{times} since {}", &since[..8]);
            pen.put(end, y, &text, pen.style(Role::Dim));
        }
    }
}

fn is_same_denial(a: &EventLine, b: &EventLine) -> bool {
    let denials = matches!((a.what, b.what), (What::Denial { .. }, What::Denial { .. }));
    denials && (a.slot, a.gpu) == (b.slot, b.gpu)
}

fn line(
    pen: &mut Pen<'_>,
    y: u16,
    data: &Data,
    event: &EventLine,
    look: &Look,
    with_name: bool,
) -> u16 {
    let mut x = pen.put(
        1,
        y,
        &clock(data, event.time_ns, &look.zone),
        pen.style(Role::Dim),
    ) + 1;
    let Said { word, tone, text } = events::say(&event.what);
    x = pen.put(x, y, &format!("{word:<8}"), pen.style(role(tone))) + 1;
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
        pen.put_within(x, y, &format!("{letter} {pid}{}", event.name), width, style);
        x += width + 1;
    }
    if let What::Edit { generation } = event.what
        && let Some(edit) = data.edit(generation)
    {
        let told = edit.told(data.sample.time_ns, pen.glyphs().arrow);
        return pen.put(x, y, &told, pen.style(Role::Text));
    }
    let gpu = event
        .gpu
        .map(|gpu| format!("GPU{gpu} "))
        .unwrap_or_default();
    pen.put(x, y, &format!("{gpu}{text}"), pen.style(Role::Text))
}

/// Returns the wall-clock time of an event, to the millisecond.
fn clock(data: &Data, time_ns: u64, zone: &TimeZone) -> String {
    match Timestamp::from_millisecond(data.sample.unix_ms_at(time_ns)) {
        Ok(at) => at
            .to_zoned(zone.clone())
            .strftime("%H:%M:%S%.3f")
            .to_string(),
        Err(_) => "--:--:--.---".into(),
    }
}

fn role(tone: Tone) -> Role {
    match tone {
        Tone::Dim => Role::Dim,
        Tone::Title => Role::Title,
        Tone::Key => Role::Key,
        Tone::Good => Role::Good,
        Tone::Warn => Role::Warn,
        Tone::Bad => Role::Bad,
    }
}
