//! One look at everything gpushare knows, as plain data.
//!
//! A [`Sample`] is the segments' [`Snapshot`] itself, whose processes and devices also have what NVML says
//! ([`nvml`]) and what `/proc` says (host pid, user, container). It borrows nothing, can be written to a file and read
//! back, and holds base units only: bytes, nanoseconds, per cent. Sources make samples; the dashboard's state,
//! `gpushare ps` and the JSON output only read them.
//!
//! Times ending in `_ns` are CLOCK_BOOTTIME as in the segments, so ages are differences to [`Snapshot::time_ns`].

#![forbid(unsafe_code)]

pub mod columns;
mod crash;
mod damage;
mod device;
mod edit;
mod event;
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
pub use device::DeviceSample;
pub use edit::EditLine;
pub use event::EventLine;
pub use process::{DELETED, Holding, ProcessSample, ProcessState, STUCK_NS};
pub use shm_layout::trace::{TraceState, TraceView};
pub use shm_layout::{
    ALL_REASONS, DeviceView, GroupView, Histogram, Identity, LockPolicy, LockState, LockView,
    Order, PolicyKind, ProcessDeviceView, ProcessView, Quota, Reason, Share, SlotId, Snapshot,
    Source, What, bucket_start_ns, quantile,
};
pub use who::Who;

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

use gpushare_base::text::refused::Refused;

/// The version of every JSON document made from samples; it grows when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything known at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// What the segments say. Devices stand in display order, NVML's first, and their position is the GPU number;
    /// managed processes by slot, then unmanaged ones by pid. The warnings are those of every source.
    pub snapshot: Snapshot<ProcessSample, DeviceSample>,
    /// The moment of the snapshot on the wall clock, milliseconds since 1970.
    pub unix_ms: i64,
    /// The host's name.
    pub host: String,
    /// Where the numbers come from.
    pub origin: Origin,
    /// The segment directory, and whether there is anything in it.
    pub segment: Segment,
    /// What NVML answered, or why it did not.
    pub nvml: Nvml,
    /// What happened since the source's previous sample, oldest first.
    pub events: Vec<EventLine>,
    /// Edits that those events, or earlier ones, told of, as the audit log has them.
    pub edits: Vec<EditLine>,
    /// Events overwritten before we could read them, since the previous sample.
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

/// Where the numbers of a sample come from.
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
    /// The word in the dashboard's header.
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

/// The state of our connection to NVML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "detail")]
pub enum Nvml {
    /// Asked not to use it (`--no-nvml`).
    #[default]
    Off,
    /// Its thread has not answered yet.
    Starting,
    /// It answers; the driver's version.
    Ready(String),
    /// It cannot be used, and why.
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
    /// The numbers of the devices.
    pub fn gpus(&self) -> std::ops::Range<usize> {
        0..self.devices.len()
    }

    /// What to say of the processes that found no free slot, if that is still news.
    pub fn refusal(&self) -> Option<String> {
        let refused = Refused {
            count: self.unmanaged,
            last_ns: self.unmanaged_ns,
            slots_used: self.processes.iter().filter(|p| p.is_managed()).count(),
        };
        refused.sentence(self.time_ns)
    }

    /// When the last process found no free slot, milliseconds since 1970.
    pub fn refused_unix_ms(&self) -> Option<i64> {
        (self.unmanaged > 0).then(|| self.unix_ms_at(self.unmanaged_ns))
    }

    /// A time of the segments as milliseconds since 1970.
    pub fn unix_ms_at(&self, time_ns: u64) -> i64 {
        let ago_ms = self.time_ns.saturating_sub(time_ns) / 1_000_000;
        self.unix_ms.saturating_sub_unsigned(ago_ms)
    }

    /// The process in `slot`, if it still is the same life of it.
    pub fn process(&self, slot: SlotId) -> Option<&ProcessSample> {
        let is = |process: &&ProcessSample| process.slot() == Some(slot);
        // Most stand where their slot does.
        let there = self.processes.get(usize::from(slot.index)).filter(is);
        there.or_else(|| self.processes.iter().find(is))
    }

    /// Bytes on device `gpu` by our count.
    pub fn ledger_bytes(&self, gpu: usize) -> u64 {
        ledger_bytes(self.holdings(gpu))
    }

    /// All of it but what happened.
    pub fn without_events(&self) -> Self {
        Self {
            snapshot: self.snapshot.clone(),
            unix_ms: self.unix_ms,
            host: self.host.clone(),
            origin: self.origin,
            segment: self.segment.clone(),
            nvml: self.nvml.clone(),
            events: Vec::new(),
            edits: self.edits.clone(),
            events_lost: self.events_lost,
        }
    }

    /// Every process that uses device `gpu`; what it only could use is left out.
    pub fn holdings(&self, gpu: usize) -> impl Iterator<Item = (&ProcessSample, &Holding)> {
        self.processes.iter().filter_map(move |p| {
            let holding = p.uses().find(|h| h.gpu == gpu)?;
            Some((p, holding))
        })
    }

    /// Does MPS run kernels on device `gpu`?
    pub fn is_mps(&self, gpu: usize) -> bool {
        self.holdings(gpu).any(by_mps)
    }

    /// What a group's members may hold together on device `gpu`; `None` for no limit.
    pub fn group_quota(&self, group: &GroupView, gpu: usize) -> Option<u64> {
        group.memory.of_device(self.devices.get(gpu)?.total_bytes)?
    }

    /// What a group's members hold together on device `gpu`.
    pub fn group_bytes(&self, group: &GroupView, gpu: usize) -> u64 {
        self.holdings(gpu)
            .filter(|(p, _)| p.group.as_ref() == Some(&group.name))
            .map(|(_, h)| h.used)
            .fold(0, u64::saturating_add)
    }
}

/// Bytes by our count of those who use a device.
pub fn ledger_bytes<'a>(there: impl Iterator<Item = (&'a ProcessSample, &'a Holding)>) -> u64 {
    there
        .filter(|(process, _)| process.is_managed())
        .map(|(_, holding)| holding.used)
        .fold(0, u64::saturating_add)
}

/// Does MPS run its kernels, or is it MPS itself?
pub fn by_mps((process, holding): (&ProcessSample, &Holding)) -> bool {
    holding.mps() == Some(true) || process.state == ProcessState::Server
}
