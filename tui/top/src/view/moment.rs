//! The line of the cursor: what happened at the moment that is shown.

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use super::events::{clock, role};
use super::pen::Pen;
use super::{Look, wrapped};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::events;
use gpushare_base::text::units::short_time;
use gpushare_observe::data::log::Showing;
use gpushare_observe::marks::About;
use gpushare_sample::{EventLine, LockState, What, Who};

/// Draws the line. Returns false in the present, which has none.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, look: &Look) -> bool {
    let Some((at_ns, text, role)) = happened(state) else {
        return false;
    };
    let key = |action| state.choices.keymap.key_of(action);
    let leave = match state.is_played() {
        true => " plays on",
        false => " LIVE",
    };
    let (back, start, end) = (
        key(Action::Freeze),
        key(Action::Alert(-1)),
        key(Action::Alert(1)),
    );
    let marks = format!("{start} {end}");
    let hint = [(&*marks, " marks  "), (&*back, leave)];
    let at = clock(state, at_ns, look);
    let width = |hint: &[(&str, &str)]| -> usize {
        hint.iter()
            .map(|(key, word)| key.width() + word.len())
            .sum()
    };
    let needed = 1 + at.len() + 1 + text.width() + 2;
    let fits = needed + width(&hint) < usize::from(pen.width());
    let hint = if fits { &hint[..] } else { &hint[1..] };
    let room = pen
        .width()
        .saturating_sub(u16::try_from(width(hint)).unwrap_or(0) + 1);
    let x = pen.put(1, 0, &at, pen.style(Role::Title)) + 1;
    let area = Rect {
        width: room.saturating_sub(1),
        ..pen.area
    };
    let style = pen.style(role);
    pen.part(area).words(x, 0, &text, style);
    hint.iter().fold(room, |x, (key, word)| {
        pen.pieces(x, 0, &[(key, Role::Key), (word, Role::Dim)])
    });
    true
}

/// Draws the place of the table where the details of the moment are not kept.
pub(super) fn without_details(pen: &mut Pen<'_>) {
    let mut inside = pen.pane("Processes", "");
    let lines = [
        ("The details of this moment are not kept.", Role::Title),
        (
            "The dashboard records the last hour, while it runs and unless it was started with --no-ring.",
            Role::Text,
        ),
    ];
    let width = inside.width().saturating_sub(2);
    let lines = lines.into_iter().flat_map(|(text, role)| {
        let lines = wrapped(text, width).into_iter();
        lines.map(move |line| (line, role))
    });
    for ((text, role), y) in lines.zip(0..inside.height()) {
        let style = inside.style(role);
        inside.put(1, y, &text, style);
    }
}

/// Returns what happened in the column of the cursor that matters most, with its moment; else what goes on there.
fn happened(state: &State) -> Option<(u64, String, Role)> {
    let cursor = state.cursor()?;
    let moment_ns = state.moment_ns()?;
    let marks = state.marks.within(cursor.clone());
    if let Some(mark) = marks.iter().min_by_key(|mark| mark.about) {
        let role = match mark.about {
            About::Alert => Role::Bad,
            About::Edit => Role::Key,
        };
        return Some((mark.at_ns, mark.text.clone(), role));
    }
    let gpu = state.choices.gpu;
    let log = state.around().log.newest(Showing::All, None);
    let log =
        log.filter(|event| event.time_ns <= moment_ns && event.gpu.is_none_or(|on| on == gpu));
    let mut log = log.peekable();
    let mut all: Vec<&EventLine> = Vec::new();
    while let Some(event) = log.next_if(|event| event.time_ns >= cursor.start) {
        all.push(event);
    }
    // The newest of the most important ones.
    let Some(at) = (0..all.len()).min_by_key(|at| rank(all[*at])) else {
        return Some((moment_ns, goes_on(state, gpu), Role::Text));
    };
    let event = all[at];
    let earlier = all[at + 1..].iter().copied().chain(log);
    let (mut text, role) = told(state, event, earlier);
    let others = all.iter().filter(|other| rank(other) <= TURN).count();
    if others > 1 {
        text += &format!("  +{} more here", others - 1);
    }
    Some((event.time_ns, text, role))
}

/// The rank of a turn of the lock.
const TURN: u8 = 1;

/// Ranks an event: what is rare comes before a turn of the lock, and a turn before what surrounds it.
fn rank(event: &EventLine) -> u8 {
    match event.what {
        What::Hold { .. } | What::Active { .. } => TURN,
        What::Wait | What::Release { .. } | What::Rest { .. } | What::Back { .. } => 2,
        _ => 0,
    }
}

/// Describes an event as a sentence; `earlier` are the events before it, newest first.
fn told<'e>(
    state: &State,
    event: &EventLine,
    mut earlier: impl Iterator<Item = &'e EventLine>,
) -> (String, Role) {
    let said = events::say(&event.what);
    let name = name(state, event);
    let text = match event.what {
        What::Hold { waited_ns } => {
            let holds = |what: &What| {
                matches!(
                    what,
                    What::Hold { .. } | What::Release { .. } | What::Forced { .. } | What::Takeover
                )
            };
            let before = earlier.find(|before| before.gpu == event.gpu && holds(&before.what));
            let before = before.filter(|before| before.slot != event.slot);
            let takes = match before {
                Some(before) => format!("{name} takes over from {}", self::name(state, before)),
                None => format!("{name} takes the lock"),
            };
            match waited_ns {
                0 => takes,
                ns => format!("{takes} after {}", short_time(ns)),
            }
        }
        What::Release { .. } => format!("{name} releases the lock {}", said.text),
        What::Active { waited_ns: 0 } => format!("{name} submits beside others"),
        What::Active { .. } => format!("{name} submits again, {}", said.text),
        What::Back { .. } => format!("{name} is {}", said.text),
        What::Rest { .. } => format!("{name} has {}", said.text),
        What::Wait => format!("{name} {}", said.text),
        _ => format!("{} {name} {}", said.word, said.text),
    };
    (text, role(said.tone))
}

fn name(state: &State, event: &EventLine) -> String {
    let who = event.slot.map(Who::Slot);
    match who.filter(|who| state.around().process(*who).is_some()) {
        Some(who) => state.around().name(who),
        None => event.name.to_string(),
    }
}

/// Describes a moment at which nothing happened.
fn goes_on(state: &State, gpu: usize) -> String {
    let data = state.data();
    let Some(device) = data.sample.devices.get(gpu).filter(|_| state.has_details()) else {
        return "the details of this moment are not kept".to_owned();
    };
    if data.overlaps(gpu) {
        let count = |lock| data.in_state(gpu, lock).count();
        let (active, back) = (count(LockState::Active), count(LockState::Back));
        return format!("{active} submit beside each other, {back} held back");
    }
    match device.owner.map(Who::Slot) {
        Some(who) => {
            let held = data.sample.time_ns.saturating_sub(device.owner_since_ns);
            format!("{} holds the lock for {}", data.name(who), short_time(held))
        }
        None => "the lock is free".to_owned(),
    }
}
