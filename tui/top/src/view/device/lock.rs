//! The line of a device's lock: its holder, since when it holds, and the waiting processes.

use unicode_width::UnicodeWidthStr;

use crate::palette::Role;
use crate::state::State;
use crate::view::pen::Pen;
use gpushare_base::text::units::{short_count, short_time};
use gpushare_observe::data::Data;
use gpushare_observe::data::lanes::Cell;
use gpushare_sample::{DeviceSample, LockState, Who};

/// The width of a word and one share; with less room they are left out.
const LEAST: u16 = 16;

/// Draws the line.
pub(super) fn draw(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize, device: &DeviceSample) {
    let data = state.data();
    if data.overlaps(gpu) {
        let x = beside(pen, y, data, gpu);
        shares(pen, x, y, data, gpu, ["GETS", "HELD BACK"]);
        return;
    }
    let holds = data
        .on(gpu)
        .into_iter()
        .map(|who| data.spent(who, gpu).hold);
    // An empty sum would be -0.
    let busy = holds.fold(0.0_f32, |sum, hold| sum + hold);
    let mut x = 0;
    if pen.width() >= 50 {
        x = pen.put(1, y, "lock", pen.style(Role::Dim));
        x = pen.put(
            x + 1,
            y,
            &format!("{:>3.0}% held  ", busy.min(1.0) * 100.0),
            pen.style(Role::Text),
        );
    }
    x = match data.holder_is_steady(gpu) {
        true => holder(pen, x, y, data, device),
        false => shares(pen, x, y, data, gpu, ["HELD BY", "WAIT"]),
    };
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

/// Draws the holder of the lock with its hold time, and the waiting processes.
fn holder(pen: &mut Pen<'_>, x: u16, y: u16, data: &Data, device: &DeviceSample) -> u16 {
    let owner = device.owner.map(Who::Slot);
    let mut x = match owner.and_then(|who| Some((who, data.process(who)?))) {
        Some((who, process)) => {
            let held = data.sample.time_ns.saturating_sub(device.owner_since_ns);
            let name = format!("{} {}", data.letter(who), process.name());
            let x = pen.put(x, y, "HOLDER ", pen.style(Role::Title));
            let x = pen.put_within(x, y, &name, 22, pen.palette.process(data.hue(who)));
            let held = format!(" for {:<6}", short_time(held));
            pen.put(x, y, &held, pen.style(Role::Text))
        }
        None => pen.put(x, y, "free  ", pen.style(Role::Good)),
    };
    let queue = format!("  queue {}", device.waiters.len());
    x = pen.put(x, y, &queue, pen.style(Role::Text));
    for slot in device.waiters.iter().take(8) {
        let who = Who::Slot(*slot);
        let Some(process) = data.process(who) else {
            continue;
        };
        let since = process
            .devices
            .iter()
            .find(|h| {
                data.sample
                    .devices
                    .get(h.gpu)
                    .is_some_and(|d| d.uuid == device.uuid)
            })
            .map_or(0, |h| data.sample.time_ns.saturating_sub(h.lock.since_ns));
        let text = format!(
            " {} {} {}",
            data.letter(who),
            process.name(),
            short_time(since)
        );
        let letter = format!(" {}", data.letter(who));
        let room = usize::from(pen.width().saturating_sub(x));
        let text = if room > text.len() + 4 { text } else { letter };
        x = pen.put(x, y, &text, pen.palette.process(data.hue(who)));
    }
    x
}

/// Draws the processes that submit beside each other, and those that are held back, each with the one it is held back for.
fn beside(pen: &mut Pen<'_>, y: u16, data: &Data, gpu: usize) -> u16 {
    let submit: Vec<_> = data.in_state(gpu, LockState::Active).collect();
    let back: Vec<_> = data.in_state(gpu, LockState::Back).collect();
    let mut x = 0;
    if pen.width() >= 50 {
        x = pen.put(1, y, "now ", pen.style(Role::Dim));
    }
    let text = match submit.as_slice() {
        [] => "nobody submits".to_owned(),
        [(one, _)] => format!("{} {} submits", data.letter(Who::of(one)), one.name()),
        many => format!("{} submit", many.len()),
    };
    x = pen.put(x, y, &text, pen.style(Role::Title));
    if back.is_empty() {
        return x + 2;
    }
    let text = format!(", {} held back:", back.len());
    x = pen.put(x, y, &text, pen.style(Role::Warn));
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
    x + 2
}

/// Draws the shares of the holders in the last seconds and the process that waited most, for a lock that changes hands
/// often.
fn shares(pen: &mut Pen<'_>, x: u16, y: u16, data: &Data, gpu: usize, words: [&str; 2]) -> u16 {
    let mut x = x;
    let spent = |who: &Who| data.spent(*who, gpu);
    let all = data.on(gpu);
    for (word, role, of) in [
        (
            words[0],
            Role::Title,
            (|cell: Cell| cell.hold) as fn(Cell) -> f32,
        ),
        (words[1], Role::Warn, |cell| cell.wait),
    ] {
        let mut shares: Vec<(f32, Who)> = all.iter().map(|who| (of(spent(who)), *who)).collect();
        shares.retain(|(share, _)| *share >= 0.02);
        shares.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        if shares.is_empty() {
            continue;
        }
        let half = if word == words[1] {
            pen.width()
        } else {
            x + pen.width().saturating_sub(x) * 3 / 5
        };
        if pen.width().saturating_sub(x) < LEAST {
            break;
        }
        x = pen.put(x, y, word, pen.style(role));
        for (share, who) in shares {
            let (letter, share) = (data.letter(who), share * 100.0);
            let name = data.process(who).map_or("", |process| process.name());
            let name: String = name.chars().take(12).collect();
            let whole = format!(" {letter} {name} {share:.0}% ");
            let brief = format!(" {letter} {share:.0}% ");
            // On a narrow screen the letter replaces the name.
            let room = usize::from(half.saturating_sub(x));
            let Some(text) = [whole, brief].into_iter().find(|text| text.width() <= room) else {
                break;
            };
            x = pen.put(x, y, &text, pen.palette.process(data.hue(who)));
        }
        x += 1;
    }
    x
}
