//! The shown device: its memory, its load, its lock. In full with a frame, or in two or three lines.

use super::pen::Pen;
use super::{bars, layout};
use crate::sample::DeviceSample;
use crate::sample::Who;
use crate::sample::nvml::Slowdown;
use crate::text::units::{human_size, short_count, short_size, short_time};
use crate::top::palette::Role;
use crate::top::state::State;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let gpu = state.choices.gpu;
    let Some(device) = state.data().sample.devices.get(gpu) else {
        pen.put(1, 0, "no GPU seen yet", pen.style(Role::Dim));
        return;
    };
    if pen.height() >= layout::DEVICE_FULL {
        full(pen, state, device);
        return;
    }
    if pen.height() == 1 {
        // Who holds it matters more than how full it is.
        lock(pen, 0, state, gpu, device);
        return;
    }
    one_line(pen, 0, state, gpu);
    lock(pen, 1, state, gpu, device);
    let others = (0..state.data().sample.devices.len()).filter(|other| *other != gpu);
    for (other, y) in others.zip(2..pen.height()) {
        one_line(pen, y, state, other);
    }
}

/// A device's memory and its lock.
pub(super) fn two_lines(pen: &mut Pen<'_>, state: &State, gpu: usize) {
    if let Some(device) = state.data().sample.devices.get(gpu) {
        one_line(pen, 0, state, gpu);
        lock(pen, 1, state, gpu, device);
    }
}

fn full(pen: &mut Pen<'_>, state: &State, device: &DeviceSample) {
    let count = state.data().sample.devices.len();
    let gpu = state.choices.gpu;
    let mut title = format!(
        "GPU{gpu} {}  {}",
        device.short_name(),
        human_size(device.total_bytes)
    );
    if let Some(pstate) = device.nvml.pstate {
        title += &format!("  P{pstate}");
    }
    if device.is_mig() {
        title += "  MIG instance";
    }
    if state.data().sample.is_mps(gpu) {
        title += "  MPS";
    }
    let note = match count {
        0 | 1 => String::new(),
        n => format!("Tab next GPU  {}/{n}", gpu + 1),
    };
    let mut inside = pen.pane(&title, &note);
    memory(&mut inside, state, device);
    load(&mut inside, 2, device);
    lock(&mut inside, 3, state, gpu, device);
    policy(&mut inside, 4, state, device);
}

fn memory(pen: &mut Pen<'_>, state: &State, device: &DeviceSample) {
    let data = state.data();
    let gpu = state.choices.gpu;
    let used = device
        .used_bytes
        .unwrap_or_else(|| data.sample.ledger_bytes(gpu));
    let percent = percent(used, device.total_bytes);
    let text = format!(
        "{} of {}  {percent:>3}%",
        human_size(used),
        human_size(device.total_bytes)
    );
    let right = 32;
    let bar = pen.width().saturating_sub(6 + right);
    pen.put(1, 0, "mem", pen.style(Role::Dim));
    bars::memory(pen, 6, 0, bar, state, gpu);
    bars::ticks(pen, 6, 1, bar, state, gpu);
    pen.put(7 + bar, 0, &text, pen.style(Role::Text));
    let (quotas, unlimited) = quotas(state, gpu);
    let and = if unlimited > 0 {
        format!(" + {unlimited} unlimited")
    } else {
        String::new()
    };
    pen.put(
        7 + bar,
        1,
        &format!("quotas {}{and}", human_size(quotas)),
        pen.style(Role::Dim),
    );
}

fn quotas(state: &State, gpu: usize) -> (u64, usize) {
    let managed = || {
        state
            .data()
            .sample
            .holdings(gpu)
            .filter(|(p, _)| p.is_managed())
    };
    let sum = managed()
        .filter_map(|(_, h)| h.quota.bytes)
        .fold(0, u64::saturating_add);
    (
        sum,
        managed().filter(|(_, h)| h.quota.bytes.is_none()).count(),
    )
}

fn load(pen: &mut Pen<'_>, y: u16, device: &DeviceSample) {
    let good = pen.style(Role::Good);
    let mut x = 1;
    let gauges = [
        ("util", device.nvml.util_percent),
        ("mem-bw", device.nvml.mem_util_percent),
    ];
    for (label, value) in gauges {
        x = pen.put(x, y, label, pen.style(Role::Dim)) + 1;
        match value {
            Some(value) => {
                x = pen.put(x, y, &format!("{value:>3}% "), pen.style(Role::Text));
                bars::plain(pen, x, y, 18, f64::from(value) / 100.0, good);
                x += 21;
            }
            None => x = pen.put(x, y, "  -", pen.style(Role::Dim)) + 3,
        }
    }
    if let (Some(power), Some(limit)) = (device.nvml.power_mw, device.nvml.power_limit_mw) {
        x = pen.put(x, y, "power ", pen.style(Role::Dim));
        x = pen.put(
            x,
            y,
            &format!("{:>3}/{}W", power / 1000, limit / 1000),
            pen.style(Role::Text),
        ) + 3;
    }
    if let Some(degrees) = device.nvml.temperature_c {
        x = pen.put(
            x,
            y,
            &format!("{degrees:>3}{}", pen.glyphs().degrees),
            pen.style(Role::Text),
        ) + 3;
    }
    if let Some(clock) = device.nvml.clock_mhz {
        x = pen.put(x, y, &format!("{clock:>4} MHz"), pen.style(Role::Text)) + 3;
    }
    if let Some(warning) = device.nvml.slowed_by.and_then(Slowdown::warning) {
        pen.put(x, y, warning, pen.style(Role::Warn));
    }
}

/// Who holds the lock, since when, and who waits.
fn lock(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize, device: &DeviceSample) {
    let data = state.data();
    let holds = data
        .on(gpu)
        .into_iter()
        .map(|who| data.spent(who, gpu).hold);
    // A sum of nothing would be -0.
    let busy = holds.fold(0.0_f32, |sum, hold| sum + hold);
    let mut x = 0;
    if pen.width() >= 50 {
        x = pen.put(1, y, "lock", pen.style(Role::Dim));
        x = pen.put(
            x + 1,
            y,
            &format!("{:>3.0}% busy  ", busy.min(1.0) * 100.0),
            pen.style(Role::Text),
        );
    }
    match device
        .owner
        .map(Who::Slot)
        .and_then(|who| Some((who, data.process(who)?)))
    {
        Some((who, process)) => {
            let held = data.sample.time_ns.saturating_sub(device.owner_since_ns);
            let name = format!(
                "{} {} {}",
                data.letter(who),
                process.shown_pid(),
                process.name()
            );
            x = pen.put(x, y, "HOLDER ", pen.style(Role::Title));
            x = pen.put_within(x, y, &name, 28, pen.palette.process(data.hue(who)));
            x = pen.put(
                x,
                y,
                &format!(" for {:<6}", short_time(held)),
                pen.style(Role::Text),
            );
        }
        None => x = pen.put(x, y, "free  ", pen.style(Role::Good)),
    }
    x = pen.put(
        x,
        y,
        &format!("  queue {}", device.waiters.len()),
        pen.style(Role::Text),
    );
    for slot in device.waiters.iter().take(8) {
        let who = Who::Slot(*slot);
        x = pen.put(
            x,
            y,
            &format!(" {}", data.letter(who)),
            pen.palette.process(data.hue(who)),
        );
    }
    // One look has no rate yet.
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

fn policy(pen: &mut Pen<'_>, y: u16, state: &State, device: &DeviceSample) {
    let now_ns = state.data().sample.time_ns;
    let x = pen.pieces(
        1,
        y,
        &[
            ("policy ", Role::Dim),
            (&device.policy.0.to_string(), Role::Text),
        ],
    );
    let left = device.policy_until_ns.map_or_else(String::new, |until| {
        format!(" for {}", short_time(until.saturating_sub(now_ns)))
    });
    let source = format!("  set by: {}{left}", device.policy.1.word());
    let x = pen.put(x, y, &source, pen.style(Role::Dim));
    let x = pen.put(x, y, &own_policies(state), pen.style(Role::Warn));
    if let Some(limit) = device.limit {
        pen.put(
            x,
            y,
            &format!("  all together at most {}", human_size(limit)),
            pen.style(Role::Text),
        );
    }
}

/// The processes that run under another policy than the device's, by their launch: `  A B: timeslice=5ms (launch)`.
fn own_policies(state: &State) -> String {
    let (data, gpu) = (state.data(), state.choices.gpu);
    let Some(device) = data.sample.devices.get(gpu) else {
        return String::new();
    };
    let mut others: Vec<(String, String)> = Vec::new();
    for (process, holding) in data.sample.holdings(gpu) {
        let (policy, source) = holding.policy;
        if !process.is_managed() || policy.kind == device.policy.0.kind {
            continue;
        }
        let letter = data.letter(Who::of(process));
        let told = format!("{} ({})", policy.kind, source.word());
        match others.iter_mut().find(|(other, _)| *other == told) {
            Some((_, letters)) => *letters += &format!(" {letter}"),
            None => others.push((told, letter.to_string())),
        }
    }
    let told = others.into_iter();
    told.map(|(policy, letters)| format!("   {letters}: {policy}"))
        .collect()
}

/// A device in one line.
fn one_line(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize) {
    let data = state.data();
    let Some(device) = data.sample.devices.get(gpu) else {
        return;
    };
    let shown = gpu == state.choices.gpu;
    let role = if shown { Role::Title } else { Role::Dim };
    let used = device
        .used_bytes
        .unwrap_or_else(|| data.sample.ledger_bytes(gpu));
    let mut right = format!(" {}/{}", short_size(used), short_size(device.total_bytes));
    if let Some(util) = device.nvml.util_percent {
        right += &format!(" {util:>3}%");
    }
    if let Some(degrees) = device.nvml.temperature_c
        && pen.width() >= 70
    {
        right += &format!(" {degrees}{}", pen.glyphs().degrees);
    }
    if !shown {
        let holder = device.owner.map(|slot| data.letter(Who::Slot(slot)));
        right += &holder.map_or(" lock free".into(), |letter| format!(" held by {letter}"));
    }
    let name_width = if pen.width() >= 100 { 24 } else { 14 };
    let mut x = pen.put(0, y, &format!("GPU{gpu} "), pen.style(role));
    x = pen.put_within(x, y, device.short_name(), name_width, pen.style(role)) + 1;
    let bar = pen
        .width()
        .saturating_sub(x + u16::try_from(right.chars().count()).unwrap_or(u16::MAX));
    bars::memory(pen, x, y, bar, state, gpu);
    pen.put(x + bar, y, &right, pen.style(Role::Text));
}

fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}
