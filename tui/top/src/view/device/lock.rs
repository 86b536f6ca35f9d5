//! The line of a device's lock: the process that has it now with the number of those that wait, and the shares of the last seconds.

use unicode_width::UnicodeWidthStr;

use crate::palette::Role;
use crate::state::State;
use crate::view::pen::Pen;
use gpushare_base::text::units::{short_count, short_time};
use gpushare_observe::data::Data;
use gpushare_sample::{DeviceSample, LockState, Who};

/// A smaller share of the time is left out.
const SEEN: f32 = 0.02;
/// The width of a name in the line.
const NAME: u16 = 22;

/// Draws the line.
pub(super) fn draw(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize, device: &DeviceSample) {
    let data = state.data();
    let mut x = 0;
    if pen.width() >= 50 {
        x = pen.put(1, y, "now   ", pen.style(Role::Dim));
    }
    x = match data.overlaps(gpu) {
        true => beside(pen, x, y, data, gpu),
        false => holder(pen, x, y, data, gpu, device),
    };
    x = shares(pen, x, y, data, gpu);
    if data.overlaps(gpu) {
        return;
    }
    // A single sample has no rate yet.
    let mut more = match data.samples() {
        0 | 1 => vec![format!("  hand-offs {}", short_count(device.handoffs))],
        _ => vec![format!(
            "  hand-offs {}/s",
            data.handoffs_per_s(gpu).round()
        )],
    };
    if device.last_handoff_ns > 0 {
        more.push(format!(
            "  last took {}",
            short_time(device.last_handoff_ns)
        ));
    }
    if device.forced > 0 {
        more.push(format!("  forced {}", device.forced));
    }
    for text in more {
        if usize::from(pen.width().saturating_sub(x)) > text.len() {
            x = pen.put(x, y, &text, pen.style(Role::Dim));
        }
    }
}

/// Draws the process that has the lock now, and the number of those that wait. Where the lock stays with its holder long enough
/// to be read, the times follow.
fn holder(
    pen: &mut Pen<'_>,
    x: u16,
    y: u16,
    data: &Data,
    gpu: usize,
    device: &DeviceSample,
) -> u16 {
    let is_steady = data.holder_is_steady(gpu);
    let since = |ns: u64| short_time(data.sample.time_ns.saturating_sub(ns));
    let owner = device.owner.map(Who::Slot);
    let mut x = match owner.and_then(|who| Some((who, data.process(who)?))) {
        Some((who, process)) => {
            let name = format!("{} {}", data.letter(who), pen.short(process.name(), NAME));
            let x = pen.put(x, y, &name, pen.palette.process(data.hue(who)));
            match is_steady {
                true => {
                    let held = format!(" for {}", since(device.owner_since_ns));
                    pen.put(x, y, &held, pen.style(Role::Text))
                }
                false => x,
            }
        }
        None => match data.without_lock(gpu) {
            0 => pen.put(x, y, "free", pen.style(Role::Dim)),
            count => {
                let jobs = if count == 1 {
                    "job submits"
                } else {
                    "jobs submit"
                };
                let text = format!("no lock: {count} {jobs}");
                pen.put(x, y, &text, pen.style(Role::Text))
            }
        },
    };
    let count = device.waiters.len();
    if count > 0 {
        x = pen.put(x, y, &format!(" ({count} wait"), pen.style(Role::Text));
        if is_steady {
            x = waiters(pen, x, y, data, gpu, device);
        }
        x = pen.put(x, y, ")", pen.style(Role::Text));
    }
    x
}

/// Draws the waiting processes with their times, as many as fit in half of the line.
fn waiters(
    pen: &mut Pen<'_>,
    mut x: u16,
    y: u16,
    data: &Data,
    gpu: usize,
    device: &DeviceSample,
) -> u16 {
    let mut mark = ": ";
    for slot in &device.waiters {
        let who = Who::Slot(*slot);
        let Some(holding) = data.process(who).and_then(|process| process.on(gpu)) else {
            continue;
        };
        let waited = data.sample.time_ns.saturating_sub(holding.lock.since_ns);
        let text = format!("{} {}", data.letter(who), short_time(waited));
        if usize::from(x) + mark.len() + text.len() > usize::from(pen.width() / 2) {
            break;
        }
        x = pen.put(x, y, mark, pen.style(Role::Text));
        x = pen.put(x, y, &text, pen.palette.process(data.hue(who)));
        mark = ", ";
    }
    x
}

/// Draws the processes that submit beside each other, and those that are held back, each with the one it is held back for.
fn beside(pen: &mut Pen<'_>, x: u16, y: u16, data: &Data, gpu: usize) -> u16 {
    let submit: Vec<_> = data.in_state(gpu, LockState::Active).collect();
    let back: Vec<_> = data.in_state(gpu, LockState::Back).collect();
    let text = match submit.as_slice() {
        [] => "nobody submits".to_owned(),
        [(one, _)] => format!("{} {} submits", data.letter(Who::of(one)), one.name()),
        many => format!("{} submit", many.len()),
    };
    let mut x = pen.put(x, y, &text, pen.style(Role::Text));
    if back.is_empty() {
        return x;
    }
    let text = format!(", {} held back:", back.len());
    x = pen.put(x, y, &text, pen.style(Role::Text));
    for (process, holding) in back {
        let letter = data.letter(Who::of(process));
        let since = data.sample.time_ns.saturating_sub(holding.lock.since_ns);
        let reason = match data.behind(process, holding) {
            Some((other, ..)) => format!(" (for {other})"),
            None => String::new(),
        };
        let whole = format!(" {letter} {} {}{reason}", process.name(), short_time(since));
        let brief = format!(" {letter} {}{reason}", short_time(since));
        let room = usize::from(pen.width().saturating_sub(x));
        let text = [whole, brief, format!(" {letter}")].into_iter();
        let Some(text) = text.into_iter().find(|text| text.width() <= room) else {
            break;
        };
        let colour = pen.palette.process(data.hue(Who::of(process)));
        x = pen.put(x, y, &text, colour);
    }
    x
}

/// Draws each process's share of the span, with its name where all names fit.
fn shares(pen: &mut Pen<'_>, x: u16, y: u16, data: &Data, gpu: usize) -> u16 {
    let spent = |who: &Who| data.spent(*who, gpu).hold;
    let all = data.on(gpu).into_iter();
    let mut shares: Vec<(f32, Who)> = all.map(|who| (spent(&who), who)).collect();
    shares.retain(|(share, _)| *share >= SEEN);
    shares.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let title = format!("   {}:", data.span(gpu).words());
    let text = |(share, who): &(f32, Who), name: bool| {
        let process = data.process(*who).filter(|_| name);
        let name = process.map_or(String::new(), |process| {
            format!(" {}", pen.short(process.name(), NAME))
        });
        format!(" {}{name} {:.0}% ", data.letter(*who), share * 100.0)
    };
    let room = usize::from(pen.width().saturating_sub(x));
    let mut width = title.width();
    let named = shares.iter().all(|one| {
        width += text(one, true).width();
        width <= room
    });
    let mut width = title.width();
    let texts = shares.iter().map(|one| (text(one, named), one.1));
    let texts = texts.take_while(|(text, _)| {
        width += text.width();
        width <= room
    });
    let texts: Vec<(String, Who)> = texts.collect();
    if texts.is_empty() {
        return x;
    }
    let mut x = pen.put(x, y, &title, pen.style(Role::Dim));
    for (text, who) in texts {
        x = pen.put(x, y, &text, pen.palette.process(data.hue(who)));
    }
    x
}
