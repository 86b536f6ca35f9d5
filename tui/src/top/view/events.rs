//! Events, newest first, each as a short sentence.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::Look;
use super::pen::Pen;
use crate::sample::Who;
use crate::sample::{EventLine, What};
use crate::text::calls;
use crate::text::units::{short_size, short_time};
use crate::top::data::Data;
use crate::top::palette::Role;
use crate::top::state::State;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, look: &Look) {
    if pen.height() < 3 {
        return;
    }
    let showing = state.choices.events;
    let title = format!("Events  {}", showing.word());
    let mut inside = pen.pane(&title, "l others");
    list(&mut inside, state, look, None);
}

/// The events of one process, or of all. A run of denials of one process is one line.
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
    let (word, role, text) = say(event);
    x = pen.put(x, y, &format!("{word:<8}"), pen.style(role)) + 1;
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
    let gpu = event
        .gpu
        .map(|gpu| format!("GPU{gpu} "))
        .unwrap_or_default();
    pen.put(x, y, &format!("{gpu}{text}"), pen.style(Role::Text))
}

/// The wall clock's time of an event, to the millisecond.
fn clock(data: &Data, time_ns: u64, zone: &TimeZone) -> String {
    let ago_ms = data.sample.time_ns.saturating_sub(time_ns) / 1_000_000;
    let at_ms = data
        .sample
        .unix_ms
        .saturating_sub(i64::try_from(ago_ms).unwrap_or(i64::MAX));
    match Timestamp::from_millisecond(at_ms) {
        Ok(at) => at
            .to_zoned(zone.clone())
            .strftime("%H:%M:%S%.3f")
            .to_string(),
        Err(_) => "--:--:--.---".into(),
    }
}

/// An event's word, how it is drawn, and the rest of the sentence.
fn say(event: &EventLine) -> (&'static str, Role, String) {
    match event.what {
        What::Register => ("start", Role::Good, "began to use the GPU".into()),
        What::Exit { reaped: false } => ("exit", Role::Dim, "left".into()),
        What::Exit { reaped: true } => (
            "exit",
            Role::Warn,
            "died; its memory and lock were released".into(),
        ),
        What::Wait => ("wait", Role::Dim, "waits for the lock".into()),
        What::Active { waited_ns: 0 } => ("active", Role::Dim, "submits beside others".into()),
        What::Active { waited_ns } => (
            "active",
            Role::Title,
            format!("held back for {}", short_time(waited_ns)),
        ),
        What::Rest { active_ns } => (
            "rest",
            Role::Dim,
            format!("no work left after {}", short_time(active_ns)),
        ),
        What::Back { active_ns } => (
            "back",
            Role::Dim,
            format!("held back after {}", short_time(active_ns)),
        ),
        What::Hold { waited_ns } => (
            "hold",
            Role::Title,
            format!("after {}", short_time(waited_ns)),
        ),
        What::Release { reason, held_ns } => (
            "release",
            Role::Dim,
            format!("after {} ({})", short_time(held_ns), reason.word()),
        ),
        What::Denial {
            asked_bytes,
            quota_bytes,
            call,
        } => (
            "DENIED",
            Role::Bad,
            format!(
                "{} over its quota of {}{}",
                short_size(asked_bytes),
                short_size(quota_bytes),
                call.and_then(calls::name)
                    .map(|name| format!(" by {name}"))
                    .unwrap_or_default()
            ),
        ),
        What::Forced { held_ns } => (
            "FORCED",
            Role::Bad,
            format!("lost the lock after {}", short_time(held_ns)),
        ),
        What::Takeover => (
            "takeover",
            Role::Warn,
            "its lock was taken over: it died holding it".into(),
        ),
        What::OverQuota {
            used_bytes,
            quota_bytes,
        } => (
            "OVER",
            Role::Warn,
            format!(
                "holds {} of {}",
                short_size(used_bytes),
                short_size(quota_bytes)
            ),
        ),
        What::Edit { generation } => (
            "edit",
            Role::Key,
            format!("generation {generation}; a shows the audit log"),
        ),
        What::Refused => ("FULL", Role::Bad, "a process found no free slot".into()),
        What::Pick => ("pick", Role::Dim, "claimed by gpushare pick".into()),
        What::Trouble => (
            "trouble",
            Role::Warn,
            "the shim met something unknown".into(),
        ),
        What::Other => (
            "other",
            Role::Dim,
            "an event unknown to this program".into(),
        ),
    }
}
