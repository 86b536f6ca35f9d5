//! Samples: the whole observable state of gpushare at one moment, as plain data.
//!
//! A [`Sample`] is the segments' [`Snapshot`], whose processes and devices also have NVML's figures ([`nvml`]) and the
//! facts of `/proc` (host pid, user, container). It borrows nothing, can be written to a file and read back, and holds
//! base units only: bytes, nanoseconds, per cent. Sources make samples; the dashboard's state, `gpushare ps` and the
//! JSON output only read them.
//!
//! Times ending in `_ns` are CLOCK_BOOTTIME as in the segments, so ages are differences to [`Snapshot::time_ns`].

#![forbid(unsafe_code)]

pub mod columns;
mod crash;
mod damage;
mod edit;
mod event;
pub mod host;
pub mod keys;
pub mod memory;
pub mod meter;
pub mod nvml;
mod process;
pub mod report;
#[doc(hidden)]
pub mod testing;
mod times;
mod who;

pub use crash::{Crash, crashes};
pub use edit::EditLine;
pub use event::EventLine;
pub use nvml::DeviceSample;
pub use process::{DELETED, Holding, ProcessSample, ProcessState, STUCK_NS};
pub use shm_layout::trace::{TraceState, TraceView};
pub use shm_layout::{
    ALL_REASONS, BUCKETS_PER_OCTAVE, DeviceView, GroupView, Histogram, Identity, LockPolicy,
    LockState, LockView, Order, PolicyKind, ProcessDeviceView, ProcessView, Quota, Reason, Share,
    SlotId, Snapshot, Source, What, bucket, bucket_start_ns,
};
pub use who::Who;

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use gpushare_base::text::refused::Refused;

/// The version of every JSON document made from samples; it grows when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The state in the segments. Devices stand in display order, NVML's first, and their position is the GPU number.
    /// Managed processes come first, by slot, then unmanaged ones by pid. The warnings are those of every source.
    pub snapshot: Snapshot<ProcessSample, DeviceSample>,
    /// The time of the snapshot by the wall clock, in milliseconds since 1970.
    pub unix_ms: i64,
    /// The host's name.
    pub host: String,
    /// The host's processors and memory.
    pub machine: host::Machine,
    /// The origin of the figures.
    pub origin: Origin,
    /// The segment directory, and whether it has segments.
    pub segment: Segment,
    /// NVML's state, or the reason why it is missing.
    pub nvml: Nvml,
    /// The events since the source's previous sample, oldest first.
    pub events: Vec<EventLine>,
    /// The edits that those events, or earlier ones, reported, from the audit log.
    pub edits: Vec<EditLine>,
    /// Number of events overwritten before they were read, since the previous sample.
    pub events_lost: u64,
}

impl Deref for Sample {
    type Target = Snapshot<ProcessSample, DeviceSample>;

    fn deref(&self) -> &Self::Target {
        &self.snapshot
    }
}

impl DerefMut for Sample {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.snapshot
    }
}

/// The origin of a sample's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Real devices.
    #[default]
    Live,
    /// The simulator's devices.
    Sim,
    /// A recording.
    Replay,
}

impl Origin {
    /// Returns the word in the dashboard's header.
    pub fn word(self) -> &'static str {
        match self {
            Origin::Live => "LIVE",
            Origin::Sim => "SIM",
            Origin::Replay => "REPLAY",
        }
    }
}

keys::object! {
    /// The segment a sample was read from.
    #[derive(Default, Eq, serde::Deserialize)]
    #[serde(default)]
    pub Segment {
        dir: String, "Its directory.";
        abi: Option<u32>, "Its ABI version; null while there is no segment.";
        waiting: Option<String>, "Why there is nothing to read yet, as a sentence.";
    }
}

/// The beginning of a warning of a sample that says what NVML does not tell.
pub const OF_NVML: &str = "NVML: ";

/// The state of the connection to NVML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "detail")]
pub enum Nvml {
    /// Switched off by `--no-nvml`.
    #[default]
    Off,
    /// No answer yet.
    Starting,
    /// Ready; the version of the driver.
    Ready(String),
    /// Unusable; the reason.
    Missing(String),
}

impl keys::Keys for Origin {}

impl keys::Keys for Nvml {
    fn list(path: &str, keys: &mut Vec<keys::Key>) {
        let (state, detail) = (
            "off, starting, ready or missing.",
            "The driver's version if ready, the reason if missing; otherwise absent.",
        );
        <&str as keys::Keys>::add(path, "state", state, keys);
        <&str as keys::Keys>::add(path, "detail", detail, keys);
    }
}

impl Sample {
    /// Returns the device numbers.
    pub fn gpus(&self) -> std::ops::Range<usize> {
        0..self.devices.len()
    }

    /// Describes the processes that found no free slot, if the last one is recent.
    pub fn refusal(&self) -> Option<String> {
        let refused = Refused {
            count: self.unmanaged,
            last_ns: self.unmanaged_ns,
            slots_used: self.processes.iter().filter(|p| p.is_managed()).count(),
        };
        refused.sentence(self.time_ns)
    }

    /// Returns when the last process found no free slot, in milliseconds since 1970.
    pub fn refused_unix_ms(&self) -> Option<i64> {
        (self.unmanaged > 0).then(|| self.unix_ms_at(self.unmanaged_ns))
    }

    /// Converts a time of the segments to milliseconds since 1970.
    pub fn unix_ms_at(&self, time_ns: u64) -> i64 {
        let ago_ms = self.time_ns.saturating_sub(time_ns) / 1_000_000;
        let ahead_ms = time_ns.saturating_sub(self.time_ns) / 1_000_000;
        let then_ms = self.unix_ms.saturating_sub_unsigned(ago_ms);
        then_ms.saturating_add_unsigned(ahead_ms)
    }

    /// Returns the process in `slot`, if the slot's epoch is still the same.
    pub fn process(&self, slot: SlotId) -> Option<&ProcessSample> {
        let is = |process: &&ProcessSample| process.slot() == Some(slot);
        // Most processes are at the position of their slot.
        let there = self.processes.get(usize::from(slot.index)).filter(is);
        there.or_else(|| self.processes.iter().find(is))
    }

    /// Returns the bytes on device `gpu` by gpushare's count.
    pub fn ledger_bytes(&self, gpu: usize) -> u64 {
        ledger_bytes(self.holdings(gpu))
    }

    /// Returns a copy of the sample without its events.
    pub fn without_events(&self) -> Self {
        Self {
            snapshot: self.snapshot.clone(),
            unix_ms: self.unix_ms,
            host: self.host.clone(),
            machine: self.machine,
            origin: self.origin,
            segment: self.segment.clone(),
            nvml: self.nvml.clone(),
            events: Vec::new(),
            edits: self.edits.clone(),
            events_lost: self.events_lost,
        }
    }

    /// Returns every process that uses device `gpu`, without those that only could use it.
    pub fn holdings(&self, gpu: usize) -> impl Iterator<Item = (&ProcessSample, &Holding)> {
        self.processes.iter().filter_map(move |p| {
            let holding = p.uses().find(|h| h.gpu == gpu)?;
            Some((p, holding))
        })
    }

    /// Returns the bytes on device `gpu` that no process holds or has reserved.
    pub fn unclaimed_bytes(&self, gpu: usize) -> u64 {
        let Some(device) = self.devices.get(gpu) else {
            return 0;
        };
        let on = || self.processes.iter().filter_map(|process| process.on(gpu));
        let sum = |of: fn(&Holding) -> u64| on().map(of).fold(0, u64::saturating_add);
        // NVML also counts processes without gpushare; the ledger also counts memory that is promised but not yet touched.
        let used = device.used_bytes.unwrap_or(0).max(sum(|held| held.used));
        let reserved = sum(|held| held.reserved.saturating_sub(held.used));
        let groups = self.groups.iter().map(|group| {
            let (reserve, claimed) = (self.group_reserve(group, gpu), self.group_claim(group, gpu));
            reserve.saturating_sub(claimed)
        });
        device
            .total_bytes
            .saturating_sub(used)
            .saturating_sub(groups.fold(reserved, u64::saturating_add))
    }

    /// Returns the bytes of device `gpu` that no process outside a group can take.
    pub fn group_reserve(&self, group: &GroupView, gpu: usize) -> u64 {
        let total = self.devices.get(gpu).map_or(0, |device| device.total_bytes);
        let reserve = group.reserve.unwrap_or_default().of_device(total);
        reserve.min(self.group_quota(group, gpu).unwrap_or(u64::MAX))
    }

    /// Returns the bytes on device `gpu` that a group's members hold or have reserved, each for itself.
    pub fn group_claim(&self, group: &GroupView, gpu: usize) -> u64 {
        self.processes
            .iter()
            .filter(|process| process.group.as_ref() == Some(&group.name))
            .filter_map(|process| process.on(gpu))
            .map(|held| held.used.max(held.reserved))
            .fold(0, u64::saturating_add)
    }

    /// Reports whether MPS runs kernels on device `gpu`.
    pub fn is_mps(&self, gpu: usize) -> bool {
        self.holdings(gpu).any(by_mps)
    }

    /// Returns the bytes that a group's members may hold together on device `gpu`; `None` for no limit.
    pub fn group_quota(&self, group: &GroupView, gpu: usize) -> Option<u64> {
        group.memory.of_device(self.devices.get(gpu)?.total_bytes)?
    }

    /// Returns the bytes that a group's members hold together on device `gpu`.
    pub fn group_bytes(&self, group: &GroupView, gpu: usize) -> u64 {
        self.holdings(gpu)
            .filter(|(p, _)| p.group.as_ref() == Some(&group.name))
            .map(|(_, h)| h.used)
            .fold(0, u64::saturating_add)
    }
}

/// Sums up the bytes of these processes on a device by gpushare's count.
pub fn ledger_bytes<'a>(there: impl Iterator<Item = (&'a ProcessSample, &'a Holding)>) -> u64 {
    there
        .filter(|(process, _)| process.is_managed())
        .map(|(_, holding)| holding.used)
        .fold(0, u64::saturating_add)
}

/// Kernels of a client of MPS that take as long as this are long: no kernel of another client should wait so long for each of them. It is
/// the slice under which equal jobs take turns.
pub const LONG_KERNEL_NS: u64 = 5_000_000;

/// Reports whether MPS runs a process's kernels, or the process is MPS itself.
pub fn by_mps((process, holding): (&ProcessSample, &Holding)) -> bool {
    holding.mps() == Some(true) || process.state == ProcessState::Server
}
