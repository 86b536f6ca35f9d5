//! A process as a sample shows it: who it is, and what it holds on each device.

use serde::{Deserialize, Serialize};
use shm_layout::trace::TraceView;
use shm_layout::{Histogram, LockState, PolicyKind, Reason, SlotId};

/// A process that uses a GPU: a managed one has a slot; an unmanaged one is only seen by NVML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSample {
    /// `None`: unmanaged, no shim reports it.
    pub slot: Option<SlotId>,
    /// Its pid on this host, as far as we can find it.
    pub pid: Option<u32>,
    /// Its pid as it sees itself.
    pub ns_pid: u32,
    /// Clock ticks after boot at which it began.
    pub start_time: u64,
    /// Its user.
    pub uid: Option<u32>,
    /// That user's name, or the number.
    pub user: String,
    /// The label from `--name`, may be empty.
    pub label: String,
    /// The path of its program.
    pub exe: String,
    /// Its container, short.
    pub container: Option<String>,
    /// Its cgroup path.
    pub cgroup: String,
    /// The group whose quota it shares.
    pub group: Option<String>,
    /// What it is doing.
    pub state: ProcessState,
    /// Share of the device relative to others, 100 is normal.
    pub weight: u32,
    /// Higher goes first under `order=priority`.
    pub priority: i32,
    /// The most of a device's time it may have.
    pub cap_percent: Option<u32>,
    /// Who set weight, priority or cap.
    pub share_source: String,
    /// An operator paused it.
    pub paused: bool,
    /// Its priority is a boost until then.
    pub boost_until_ns: Option<u64>,
    /// A launch variable had an invalid value.
    pub invalid: bool,
    /// When it registered.
    pub registered_ns: u64,
    /// Its keeper's latest sign of life.
    pub heartbeat_ns: u64,
    /// The last control generation it applied.
    pub acknowledged: u64,
    /// Its calls are written down, or were asked to be.
    pub trace: Option<TraceView>,
    /// One entry for each device it touched.
    pub devices: Vec<Holding>,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// Holds a device's lock.
    Hold,
    /// Waits for one.
    Wait,
    /// Neither.
    #[default]
    Idle,
    /// Paused by an operator.
    Paused,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Its keeper shows no sign of life, though the process exists.
    Stuck,
    /// Gone, not yet cleaned up.
    Gone,
    /// NVML sees it, no shim does.
    Unmanaged,
}

/// A keeper that has not ticked for this long is stuck.
pub const STUCK_NS: u64 = 5_000_000_000;

impl ProcessState {
    /// The word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            ProcessState::Hold => "hold",
            ProcessState::Wait => "wait",
            ProcessState::Idle => "idle",
            ProcessState::Paused => "paused",
            ProcessState::Stopped => "stopped",
            ProcessState::Stuck => "stuck",
            ProcessState::Gone => "gone",
            ProcessState::Unmanaged => "unmanaged",
        }
    }
}

/// What one process holds and did on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Holding {
    /// Position of the device in [`super::Sample::devices`].
    pub gpu: usize,
    /// The entry in its slot; `None` when unmanaged.
    pub entry: Option<u8>,
    /// The process's own number for the device.
    pub ordinal: Option<u8>,
    /// Bytes it holds: our ledger for managed processes, NVML's count otherwise.
    pub used_bytes: u64,
    /// The most it ever held.
    pub peak_bytes: u64,
    /// Bytes by NVML's count, context overhead included.
    pub nvml_bytes: Option<u64>,
    /// Its share of the device's compute, by NVML.
    pub util_percent: Option<u32>,
    /// Bytes it may hold.
    pub quota_bytes: Option<u64>,
    /// Who said so.
    pub quota_source: String,
    /// When the quota reverts by itself.
    pub quota_until_ns: Option<u64>,
    /// Allocations refused.
    pub denials: u64,
    /// Kernels and graphs launched.
    pub launches: u64,
    /// Copies and memsets.
    pub copies: u64,
    /// Bytes copied.
    pub copy_bytes: u64,
    /// Explicit synchronisations.
    pub syncs: u64,
    /// Times it gave the lock up while its work still ran, because that outlasted the grace.
    pub late_drains: u64,
    /// Pinned host memory.
    pub pinned_bytes: u64,
    /// Calls for which the shim stepped aside.
    pub bypasses: u64,
    /// The lock as this process met it.
    pub lock: Lock,
}

/// One process and one device's lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// What it does with the lock now.
    pub state: LockState,
    /// Since when; 0 when idle.
    pub since_ns: u64,
    /// When this process must yield here: the operator's rule, else its own.
    pub rule: PolicyKind,
    /// Who said so.
    pub rule_source: String,
    /// Time it held the lock, all together.
    pub held_ns: u64,
    /// Time it waited, all together.
    pub waited_ns: u64,
    /// Times it got the lock.
    pub acquisitions: u64,
    /// Times the lock was taken from it.
    pub forced: u64,
    /// How long its holds were.
    pub hold_hist: Histogram,
    /// How long its waits were.
    pub wait_hist: Histogram,
    /// How its holds ended: reason and count, most frequent first.
    pub ends: Vec<(Reason, u64)>,
    /// The processes it waited for and how long, longest first.
    pub waited_for: Vec<(SlotId, u64)>,
}

impl ProcessSample {
    /// What it holds on device `gpu`.
    pub fn on(&self, gpu: usize) -> Option<&Holding> {
        self.devices.iter().find(|h| h.gpu == gpu)
    }

    /// The name to show: its label, else its container, else its program.
    pub fn name(&self) -> &str {
        if !self.label.is_empty() {
            return &self.label;
        }
        if let Some(container) = &self.container {
            return container;
        }
        match self.exe.rsplit('/').next() {
            Some("") | None => "-",
            Some(file) => file,
        }
    }

    /// The pid to show: the host's, else the one it sees itself.
    pub fn shown_pid(&self) -> u32 {
        self.pid.unwrap_or(self.ns_pid)
    }
}
