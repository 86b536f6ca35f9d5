//! The card of the shown device: its memory with the quotas, its load, its lock, its policy.

use ratatui::layout::Rect;

use super::{lock, percent, time};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use crate::view::bars;
use crate::view::layout::Parts;
use crate::view::pen::Pen;
use gpushare_base::text::policy::in_words;
use gpushare_base::text::units::{human_size, short_size, short_time};
use gpushare_sample::nvml::Slowdown;
use gpushare_sample::{DeviceSample, Who};

/// The line of the quota marks in the card.
pub(in crate::view) const TICKS: u16 = 2;
/// Width of the text after the bar of the card.
const BESIDE_BAR: u16 = 32;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, device: &DeviceSample) {
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
    if state.data().is_mps(gpu) {
        title += "  MPS";
    }
    let note = match count {
        0 | 1 => String::new(),
        n if state.choices.keyless => format!("{}/{n}", gpu + 1),
        n => format!(
            "{} next GPU  {}/{n}",
            state.choices.keymap.key_of(Action::Gpu(1)),
            gpu + 1
        ),
    };
    let mut inside = pen.pane(&title, &note);
    memory(&mut inside, state, device);
    load(&mut inside, 2, device);
    lock::draw(&mut inside, 3, state, gpu, device);
    time::draw(&mut inside, 4, state, gpu);
    policy(&mut inside, 5, state, device);
}

fn memory(pen: &mut Pen<'_>, state: &State, device: &DeviceSample) {
    let data = state.data();
    let gpu = state.choices.gpu;
    let used = data.used_bytes(gpu);
    let room = bars::room(device);
    let percent = percent(used, room);
    let text = format!(
        "{} of {}  {percent:>3}%",
        human_size(used),
        human_size(room)
    );
    let (_, bar) = bar(pen.width());
    pen.put(1, 0, "mem", pen.style(Role::Dim));
    bars::memory(pen, 6, 0, bar, state, gpu);
    bars::ticks(pen, 6, 1, bar, state, gpu);
    pen.put(7 + bar, 0, &text, pen.style(Role::Text));
    let (quotas, unlimited) = quotas(state, gpu);
    let text = match (quotas, unlimited) {
        (0, 0) => String::new(),
        (_, 0) => format!("quotas {}", human_size(quotas)),
        (0, _) => "no quotas".to_owned(),
        _ => format!("quotas {} + {unlimited} unlimited", human_size(quotas)),
    };
    pen.put(7 + bar, 1, &text, pen.style(Role::Dim));
}

fn quotas(state: &State, gpu: usize) -> (u64, usize) {
    let managed = || state.data().there(gpu).filter(|(p, _)| p.is_managed());
    let sum = managed()
        .filter_map(|(_, h)| h.quota.bytes)
        .fold(0, u64::saturating_add);
    (
        sum,
        managed().filter(|(_, h)| h.quota.bytes.is_none()).count(),
    )
}

fn load(pen: &mut Pen<'_>, y: u16, device: &DeviceSample) {
    let plain = pen.style(Role::Text);
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
                bars::plain(pen, x, y, 18, f64::from(value) / 100.0, plain);
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
    let mut links = Vec::new();
    if let (Some(generation), Some(width)) = (device.nvml.pcie_generation, device.nvml.pcie_width) {
        links.push(format!("PCIe {generation} x{width}"));
    }
    if let (Some(sent), Some(received)) = (
        device.nvml.pcie_sent_bytes_per_s,
        device.nvml.pcie_received_bytes_per_s,
    ) {
        // Directions as seen from the device, as NVML counts.
        links.push(format!(
            "in {}/s out {}/s",
            short_size(received),
            short_size(sent)
        ));
    }
    if let Some(count) = device.nvml.nvlinks {
        links.push(format!("NVLink x{count}"));
    }
    for link in links {
        // A warning takes precedence over the link.
        let room = usize::from(pen.width().saturating_sub(x));
        if device.nvml.slowed_by.and_then(Slowdown::warning).is_none() && link.len() < room {
            x = pen.put(x, y, &link, pen.style(Role::Dim)) + 3;
        }
    }
    if let Some(warning) = device.nvml.slowed_by.and_then(Slowdown::warning) {
        pen.put(x, y, warning, pen.style(Role::Warn));
    }
}

/// Returns the position and width of the bar of the card.
fn bar(width: u16) -> (u16, u16) {
    (6, width.saturating_sub(6 + BESIDE_BAR))
}

/// Returns the process whose quota ends at a position below the bar of the card.
pub(in crate::view) fn tick(parts: &Parts, state: &State, x: u16, y: u16) -> Option<Who> {
    let (area, card) = (parts.device, parts.devices.card);
    let (left, width) = bar(area.width.saturating_sub(2));
    let column = x.checked_sub(area.x + 1 + left)?;
    let here = card && y == area.y + TICKS && column < width;
    bars::tick(state, state.choices.gpu, width, column).filter(|_| here)
}

/// Returns the quota for which a process's mark would be in this column of the screen.
pub(in crate::view) fn quota_at(area: Rect, state: &State, who: Who, x: u16) -> Option<u64> {
    let (left, width) = bar(area.width.saturating_sub(2));
    let column = x.saturating_sub(area.x + 1 + left).min(width);
    bars::quota_at(state, state.choices.gpu, width, who, column)
}

pub(super) fn policy(pen: &mut Pen<'_>, y: u16, state: &State, device: &DeviceSample) {
    let now_ns = state.data().sample.time_ns;
    let x = pen.pieces(
        1,
        y,
        &[
            ("rule  ", Role::Dim),
            (&in_words(&device.policy.0), Role::Text),
        ],
    );
    let left = device.policy_until_ns.map_or_else(String::new, |until| {
        format!(" for {}", short_time(until.saturating_sub(now_ns)))
    });
    let key = match state.choices.keyless {
        true => String::new(),
        false => {
            let key = state.choices.keymap.key_of(Action::Policy);
            format!("   {key}: all settings")
        }
    };
    let source = format!("   set by: {}{left}{key}", device.policy.1.word());
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

/// Describes the processes whose launch set another policy than the device's: `  A B: timeslice=5ms (launch)`.
fn own_policies(state: &State) -> String {
    let (data, gpu) = (state.data(), state.choices.gpu);
    let Some(device) = data.sample.devices.get(gpu) else {
        return String::new();
    };
    let mut others: Vec<(String, String)> = Vec::new();
    for (process, holding) in data.there(gpu) {
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
