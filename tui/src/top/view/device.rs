//! The shown device: its memory, its load, its lock. In full with a frame, or in two or three lines.

use ratatui::layout::Rect;

mod time;

use super::pen::Pen;
use super::{bars, layout};
use crate::sample::DeviceSample;
use crate::sample::Who;
use crate::sample::nvml::Slowdown;
use crate::text::units::{human_size, short_count, short_size, short_time};
use crate::top::data::Data;
use crate::top::data::lanes::Cell;
use crate::top::keys::Action;
use crate::top::palette::Role;
use crate::top::state::{Hit, State};

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let gpu = state.choices.gpu;
    let Some(device) = state.data().sample.devices.get(gpu) else {
        pen.put(1, 0, "no GPU seen yet", pen.style(Role::Dim));
        return;
    };
    let count = state.data().sample.devices.len();
    let rows = layout::devices(pen.width(), pen.height(), count);
    if rows.card {
        let area = Rect {
            height: layout::DEVICE_FULL.min(pen.height()),
            ..pen.area
        };
        full(&mut pen.part(area), state, device);
        list(pen, layout::DEVICE_FULL, state, count);
        return;
    }
    if pen.height() == 1 {
        // Who holds it matters more than how full it is.
        lock(pen, 0, state, gpu, device);
        return;
    }
    if rows.list {
        list(pen, 0, state, count);
        lock(pen, pen.height().saturating_sub(3), state, gpu, device);
        time::draw(pen, pen.height().saturating_sub(2), state, gpu);
        policy(pen, pen.height().saturating_sub(1), state, device);
        return;
    }
    one_line(pen, 0, state, gpu);
    lock(pen, 1, state, gpu, device);
    let mut y = 2;
    if layout::has_time(pen.width(), pen.height(), count) {
        time::draw(pen, y, state, gpu);
        y += 1;
    }
    match count {
        0 | 1 => {}
        2 => one_line(pen, y, state, 1 - gpu.min(1)),
        _ => grid(pen, y, state, count),
    }
}

/// The device at a place of the part.
pub(super) fn hit(area: Rect, state: &State, x: u16, y: u16) -> Option<Hit> {
    let count = state.data().sample.devices.len();
    let rows = layout::devices(area.width, area.height, count);
    let list = |top: u16| {
        let lines = usize::from(area.height.saturating_sub(top));
        let first = (state.choices.gpu + 1).saturating_sub(lines);
        Some(first + usize::from(y.checked_sub(top)?))
    };
    let top = 2 + u16::from(layout::has_time(area.width, area.height, count));
    let gpu = match (rows.card, rows.list, count) {
        (true, ..) => list(layout::DEVICE_FULL)?,
        (_, true, _) => list(0)?,
        (.., 0 | 1) => 0,
        (.., 2) if y == top => 1 - state.choices.gpu.min(1),
        (.., 2) => state.choices.gpu,
        _ => {
            let each = layout::grid_line(area.width);
            let lines = usize::from(area.height.saturating_sub(top));
            let first = (state.choices.gpu / each + 1).saturating_sub(lines) * each;
            let row = usize::from(y.checked_sub(top)?);
            first + row * each + usize::from(x / layout::GRID).min(each - 1)
        }
    };
    (gpu < count).then_some(Hit::Gpu(gpu))
}

/// Where the bar of the card begins, and its columns.
fn bar(width: u16) -> (u16, u16) {
    (6, width.saturating_sub(6 + BESIDE_BAR))
}

/// The process whose quota ends at a place below the bar of the card.
pub(super) fn tick(area: Rect, state: &State, x: u16, y: u16) -> Option<Who> {
    let count = state.data().sample.devices.len();
    let card = layout::devices(area.width, area.height, count).card;
    let (left, width) = bar(area.width.saturating_sub(2));
    let column = x.checked_sub(area.x + 1 + left)?;
    let here = card && y == area.y + TICKS && column < width;
    bars::tick(state, state.choices.gpu, width, column).filter(|_| here)
}

/// The quota with which a process's mark would be in this column of the screen.
pub(super) fn quota_at(area: Rect, state: &State, who: Who, x: u16) -> Option<u64> {
    let (left, width) = bar(area.width.saturating_sub(2));
    let column = x.saturating_sub(area.x + 1 + left).min(width);
    bars::quota_at(state, state.choices.gpu, width, who, column)
}

/// A line for each device, the shown one among them.
fn list(pen: &mut Pen<'_>, top: u16, state: &State, count: usize) {
    let lines = usize::from(pen.height().saturating_sub(top));
    if count < 2 {
        return;
    }
    let first = (state.choices.gpu + 1).saturating_sub(lines);
    for (gpu, y) in (first..count).zip(top..pen.height()) {
        one_line(pen, y, state, gpu);
    }
}

/// Every device in twenty columns: its number, its holder and how many wait, how busy and how full it is.
fn grid(pen: &mut Pen<'_>, top: u16, state: &State, count: usize) {
    let data = state.data();
    let each = layout::grid_line(pen.width());
    let lines = usize::from(pen.height().saturating_sub(top));
    let first = (state.choices.gpu / each + 1).saturating_sub(lines) * each;
    for (at, gpu) in (first..count).enumerate() {
        let Some(device) = data.sample.devices.get(gpu) else {
            break;
        };
        let (Ok(row), Ok(column)) = (u16::try_from(at / each), u16::try_from(at % each)) else {
            break;
        };
        let holder = device
            .owner
            .map_or('-', |slot| data.letter(Who::Slot(slot)));
        let queue = match device.waiters.len() {
            0 => String::new(),
            n => format!("+{n}"),
        };
        let util = device.nvml.util_percent;
        let util = util.map_or("  -".into(), |util| format!("{util:>3}%"));
        let used = device
            .used_bytes
            .unwrap_or_else(|| data.sample.ledger_bytes(gpu));
        let full = percent(used, device.total_bytes);
        let text = format!("{gpu:>2} {holder}{queue:<3}{util:>5} m{full:>3}% ");
        let role = match (gpu == state.choices.gpu, queue.is_empty()) {
            (true, _) => Role::Selected,
            (false, false) => Role::Text,
            (false, true) => Role::Dim,
        };
        let style = pen.style(role);
        pen.put_within(
            column * layout::GRID,
            top + row,
            &text,
            layout::GRID - 1,
            style,
        );
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
        n => format!(
            "{} next GPU  {}/{n}",
            state.choices.keymap.key_of(Action::Gpu(1)),
            gpu + 1
        ),
    };
    let mut inside = pen.pane(&title, &note);
    memory(&mut inside, state, device);
    load(&mut inside, 2, device);
    lock(&mut inside, 3, state, gpu, device);
    time::draw(&mut inside, 4, state, gpu);
    policy(&mut inside, 5, state, device);
}

/// The line of the quotas' marks in the card.
pub(super) const TICKS: u16 = 2;
/// What is written behind the bar of the card.
const BESIDE_BAR: u16 = 32;

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
    let (_, bar) = bar(pen.width());
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
    let mut links = Vec::new();
    if let (Some(generation), Some(width)) = (device.nvml.pcie_generation, device.nvml.pcie_width) {
        links.push(format!("PCIe {generation} x{width}"));
    }
    if let (Some(sent), Some(received)) = (
        device.nvml.pcie_sent_bytes_per_s,
        device.nvml.pcie_received_bytes_per_s,
    ) {
        // Seen from the device, as NVML counts.
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
        // A warning has the room first.
        let room = usize::from(pen.width().saturating_sub(x));
        if device.nvml.slowed_by.and_then(Slowdown::warning).is_none() && link.len() < room {
            x = pen.put(x, y, &link, pen.style(Role::Dim)) + 3;
        }
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
    let rate = data.handoffs_per_s(gpu);
    x = match rate > STEADY_PER_S {
        true => shares(pen, x, y, data, gpu),
        false => holder(pen, x, y, data, device),
    };
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

/// More hand-offs in a second than this are no news each: then the shares are told.
const STEADY_PER_S: f64 = 2.0;

/// Who holds the lock and since when, and who waits for it.
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

/// Where the lock changes hands all the time: who held it how much of the last seconds, and who waited most.
fn shares(pen: &mut Pen<'_>, x: u16, y: u16, data: &Data, gpu: usize) -> u16 {
    let mut x = x;
    let spent = |who: &Who| data.spent(*who, gpu);
    let all = data.on(gpu);
    for (word, role, of) in [
        (
            "HELD BY",
            Role::Title,
            (|cell: Cell| cell.hold) as fn(Cell) -> f32,
        ),
        ("WAIT", Role::Warn, |cell| cell.wait),
    ] {
        let mut shares: Vec<(f32, Who)> = all.iter().map(|who| (of(spent(who)), *who)).collect();
        shares.retain(|(share, _)| *share >= 0.02);
        shares.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let half = if word == "WAIT" {
            pen.width()
        } else {
            x + (pen.width() - x) * 3 / 5
        };
        x = pen.put(x, y, word, pen.style(role));
        for (share, who) in shares {
            let name = data.process(who).map_or("", |process| process.name());
            let name: String = name.chars().take(12).collect();
            let text = format!(" {} {name} {:.0}% ", data.letter(who), share * 100.0);
            if usize::from(half.saturating_sub(x)) < text.len() {
                break;
            }
            x = pen.put(x, y, &text, pen.palette.process(data.hue(who)));
        }
        x += 1;
    }
    x
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
    let holder = device.owner.map(|slot| data.letter(Who::Slot(slot)));
    right += &holder.map_or(" lock free".into(), |letter| format!(" held by {letter}"));
    if !device.waiters.is_empty() {
        right += &format!(" +{}", device.waiters.len());
    }
    // In the narrowest the numbers go first: who holds it is what is looked for.
    let name_width = match pen.width() {
        100.. => 24,
        50.. => 14,
        _ => 0,
    };
    let mut x = pen.put(0, y, &format!("GPU{gpu} "), pen.style(role));
    let name = match (
        device.nvml.mig_parent,
        device.short_name().split_once("MIG "),
    ) {
        (Some(parent), Some((_, instance))) => {
            format!("{} {instance} of {parent}", pen.glyphs().tick)
        }
        _ => device.short_name().to_owned(),
    };
    x = pen.put_within(x, y, &name, name_width, pen.style(role)) + 1;
    let bar = pen
        .width()
        .saturating_sub(x + u16::try_from(right.chars().count()).unwrap_or(u16::MAX));
    bars::memory(pen, x, y, bar, state, gpu);
    pen.put(x + bar, y, &right, pen.style(Role::Text));
}

fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}
