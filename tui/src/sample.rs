//! One look at everything gpushare knows, as plain data.
//!
//! A [`Sample`] joins what the segments say (slots, ledgers, locks, events), what NVML says (devices, and processes
//! that no shim reports) and what `/proc` says (host pid, user, container). It borrows nothing, can be written to a
//! file and read back, and holds base units only: bytes, nanoseconds, per cent. Sources make samples; the dashboard's
//! state, `gpushare ps` and the JSON output only read them.
//!
//! Times ending in `_ns` are CLOCK_BOOTTIME as in the segments, so ages are differences to [`Sample::time_ns`].

pub mod columns;
mod device;
mod event;
mod fields;
mod process;
pub mod report;
mod who;

pub use device::DeviceSample;
pub use event::EventLine;
pub use fields::FIELDS;
pub use process::{Holding, Lock, ProcessSample, ProcessState, STUCK_NS};
pub use shm_layout::trace::{TraceState, TraceView};
pub use shm_layout::{
    ALL_REASONS, Histogram, LockPolicy, LockState, Order, PolicyKind, Reason, SlotId, What,
    bucket_start_ns, quantile,
};
pub use who::Who;

use serde::{Deserialize, Serialize};

use crate::text::refused::Refused;

/// The version of every JSON document made from samples; it grows when a key changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything known at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// When it was taken, CLOCK_BOOTTIME.
    pub time_ns: u64,
    /// The same moment on the wall clock, milliseconds since 1970.
    pub unix_ms: i64,
    /// The host's name.
    pub host: String,
    /// Where the numbers come from.
    pub origin: Origin,
    /// The segment directory, and whether there is anything in it.
    pub segment: Segment,
    /// What NVML answered, or why it did not.
    pub nvml: Nvml,
    /// The operator's edits so far.
    pub generation: u64,
    /// Devices in display order: NVML's order first, then those only the segment knows. The position is the GPU number.
    pub devices: Vec<DeviceSample>,
    /// Managed processes by slot, then unmanaged ones by pid.
    pub processes: Vec<ProcessSample>,
    /// Groups that share a quota.
    pub groups: Vec<GroupSample>,
    /// What happened since the source's previous sample, oldest first.
    pub events: Vec<EventLine>,
    /// Events overwritten before we could read them, since the previous sample.
    pub events_lost: u64,
    /// Processes that found no free slot since the segment was made: they run uncounted.
    pub refused: u64,
    /// When the last of them found none, CLOCK_BOOTTIME.
    pub refused_ns: u64,
    /// Things that are wrong with the sources, as sentences.
    pub warnings: Vec<String>,
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

/// The segment a sample was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Its directory.
    pub dir: String,
    /// Its ABI version, `None` while there is no segment.
    pub abi: Option<u32>,
    /// Why there is nothing to read yet, as a sentence.
    pub waiting: Option<String>,
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

/// A group of processes that share a quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSample {
    /// Its name.
    pub name: String,
    /// What all members together may hold on one device, as an operator writes it; empty when nothing is set.
    pub quota: String,
    /// The same in bytes, per device in [`Sample::devices`] order.
    pub quota_bytes: Vec<Option<u64>>,
    /// The weight each member inherits.
    pub weight: Option<u32>,
    /// The cap each member inherits.
    pub cap_percent: Option<u32>,
    /// Defined by an operator; else a process only named it.
    pub defined: bool,
    /// Members alive now.
    pub members: u32,
    /// What the members hold, per device in [`Sample::devices`] order.
    pub used_bytes: Vec<u64>,
}

impl Sample {
    /// What to say of the processes that found no free slot, if that is still news.
    pub fn refusal(&self) -> Option<String> {
        let refused = Refused {
            count: self.refused,
            last_ns: self.refused_ns,
            slots_used: self.processes.iter().filter(|p| p.slot.is_some()).count(),
        };
        refused.sentence(self.time_ns)
    }

    /// When the last process found no free slot, milliseconds since 1970.
    pub fn refused_unix_ms(&self) -> Option<i64> {
        let ago_ms = self.time_ns.saturating_sub(self.refused_ns) / 1_000_000;
        (self.refused > 0).then(|| self.unix_ms.saturating_sub_unsigned(ago_ms))
    }

    /// The process in `slot`, if it still is the same life of it.
    pub fn process(&self, slot: SlotId) -> Option<&ProcessSample> {
        self.processes.iter().find(|p| p.slot == Some(slot))
    }

    /// Bytes on device `gpu` by our count.
    pub fn ledger_bytes(&self, gpu: usize) -> u64 {
        self.holdings(gpu)
            .filter(|(p, _)| p.slot.is_some())
            .map(|(_, h)| h.used_bytes)
            .fold(0, u64::saturating_add)
    }

    /// Every process with something to say about device `gpu`.
    pub fn holdings(&self, gpu: usize) -> impl Iterator<Item = (&ProcessSample, &Holding)> {
        self.processes
            .iter()
            .filter_map(move |p| p.on(gpu).map(|holding| (p, holding)))
    }
}
