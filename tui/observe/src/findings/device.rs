//! Findings about the state of a device: errors, silence, low clocks, a slow link, memory on a card that rests.

use super::{Found, some};
use crate::data::Data;
use crate::finding::{Edit, Listed};
use gpushare_base::text::units::{format_duration, short_size};
use gpushare_base::text::xids;
use gpushare_sample::nvml::{Figures, Slowdown};
use gpushare_sample::{Nvml, OF_NVML, ProcessSample, Who};
use shm_layout::{EvictAfter, Set};

/// Time for which an Xid is worth a word, in milliseconds.
const RECENT_MS: i64 = 600_000;

pub(super) fn xid(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let figures = &device.nvml;
        let (Some(count), Some(number), Some(at_ms)) =
            (figures.xids, figures.xid, figures.xid_unix_ms)
        else {
            continue;
        };
        let ago_ms = data.sample.unix_ms.saturating_sub(at_ms).max(0);
        if ago_ms > RECENT_MS {
            continue;
        }
        let ago_ns = ago_ms.unsigned_abs().saturating_mul(1_000_000);
        let process = figures.xid_pid.and_then(|pid| {
            let mut processes = data.sample.processes.iter();
            processes.find(|process| process.pid == Some(pid))
        });
        // NVML reports an error of a card on each of its MIG instances.
        let is_on_another = device.is_mig()
            && process.is_some_and(|process| {
                process.on(gpu).is_none() && is_on_card(data, process, figures.mig_parent)
            });
        if is_on_another {
            continue;
        }
        let meaning = xids::meaning(number);
        let culprit = culprit(data, figures, process);
        let finding = found.on(gpu, format!("GPU{gpu} had Xid {number}: {}", meaning.what));
        finding.evidence = match count {
            1 => format!("{culprit}the only error seen"),
            _ => format!("{culprit}the newest of {} seen", some(count, "error")),
        };
        finding
            .since(data.sample.time_ns.saturating_sub(ago_ns))
            .advise(meaning.remedy);
    }
}

/// Names the process of the newest error as a clause; empty where it is not known.
fn culprit(data: &Data, figures: &Figures, process: Option<&ProcessSample>) -> String {
    let Some(pid) = figures.xid_pid else {
        return String::new();
    };
    let name = process.map(|process| data.name(Who::of(process)));
    match name.or_else(|| figures.xid_name.clone()) {
        Some(name) => format!("in {name} (pid {pid}), "),
        None => format!("in process {pid}, "),
    }
}

/// Reports whether a process uses a MIG instance of the card with this number.
fn is_on_card(data: &Data, process: &ProcessSample, card: Option<u32>) -> bool {
    let mut devices = process
        .uses()
        .filter_map(|holding| data.sample.devices.get(holding.gpu));
    devices.any(|device| device.nvml.mig_parent == card)
}

/// Where NVML is missing as a whole, the header says so.
pub(super) fn silent(found: &mut Found<'_>) {
    let sample = &found.data.sample;
    if matches!(sample.nvml, Nvml::Ready(_)) {
        let warnings = sample.warnings.iter();
        for warning in warnings.filter(|one| one.starts_with(OF_NVML)) {
            found.add(warning.clone());
        }
    }
}

pub(super) fn slowed(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        // A busy card that reaches its power limit is as it should be.
        let slowed = device
            .nvml
            .slowed_by
            .filter(|slowed| *slowed != Slowdown::PowerCap);
        let Some(warning) = slowed.and_then(Slowdown::warning) else {
            continue;
        };
        let finding = found.on(gpu, format!("GPU{gpu} is {warning}"));
        finding.evidence = at(&device.nvml);
        finding.advise(match slowed {
            Some(Slowdown::Heat) => "check its cooling",
            Some(Slowdown::PowerBrake) => "check the machine's power supply",
            _ => "nvidia-smi -q -d PERFORMANCE says more",
        });
    }
}

/// Describes the measurements that go with low clocks.
fn at(figures: &Figures) -> String {
    let parts = [
        figures.pstate.map(|state| format!("P{state}")),
        figures.clock_mhz.map(|clock| format!("{clock} MHz")),
        figures.temperature_c.map(|degrees| format!("{degrees} °C")),
        figures.power_mw.map(|power| format!("{} W", power / 1000)),
        figures
            .util_percent
            .map(|percent| format!("{percent}% busy")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("at {}", parts.join(", ")),
    }
}

/// A device with this utilisation, in per cent, keeps its link at full speed.
const WORKS: u32 = 10;
/// The slowest performance state in which a device keeps its link at full speed.
const FAST: u8 = 2;

pub(super) fn link(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let figures = &device.nvml;
        let (Some(generation), Some(width)) = (figures.pcie_generation, figures.pcie_width) else {
            continue;
        };
        let (Some(fastest), Some(widest)) = (figures.pcie_max_generation, figures.pcie_max_width)
        else {
            continue;
        };
        // An idle link runs slower, and becomes fast with the next work.
        let works = figures.util_percent.is_some_and(|percent| percent >= WORKS)
            && figures.pstate.is_some_and(|state| state <= FAST);
        if width >= widest && (generation >= fastest || !works) {
            continue;
        }
        let what = format!(
            "the link of GPU{gpu} runs at PCIe {generation} x{width}, and could at PCIe {fastest} x{widest}"
        );
        let finding = found.on(gpu, what);
        finding.evidence = at(figures);
        finding.advise("check its slot, its riser and the firmware's settings");
    }
}

/// Time for which a device does nothing before its memory is worth a word.
const RESTS_NS: u64 = 60_000_000_000;
/// The fastest performance state of a device that rests.
const RESTING: u8 = 5;
/// Part of a device's memory that is worth a word.
const MUCH: u64 = 20;

pub(super) fn parked(found: &mut Found<'_>) {
    let data = found.data;
    for (gpu, device) in data.sample.devices.iter().enumerate() {
        let rests = device.nvml.pstate.is_some_and(|state| state >= RESTING);
        let held = data.sample.ledger_bytes(gpu);
        if !rests || held < device.total_bytes / MUCH || !data.idle_for(gpu, RESTS_NS) {
            continue;
        }
        let what = format!(
            "GPU{gpu} has done nothing for {}, and {} of it are held",
            format_duration(RESTS_NS),
            short_size(held)
        );
        let evidence = at(&device.nvml);
        let most = data.there(gpu).filter(|(process, _)| process.is_managed());
        let most = most.max_by_key(|(_, holding)| holding.used);
        let finding = found.on(gpu, what);
        finding.evidence = evidence;
        let Some((process, holding)) = most else {
            continue;
        };
        if process.share.pinned || process.share.evict_after.is_some() {
            continue;
        }
        let (who, name) = (Who::of(process), data.name(Who::of(process)));
        let edit = Edit::share(who, |share| {
            share.evict_after = Set::To(EvictAfter::Idle(RESTS_NS))
        });
        finding
            .propose(
                format!(
                    "evict {name} when it is idle for {}",
                    format_duration(RESTS_NS)
                ),
                format!("free {} for others", short_size(holding.used)),
                edit,
            )
            .costs(
                "the way back at its next request",
                Listed::of([name], String::from),
            );
    }
}
