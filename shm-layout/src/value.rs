//! The plain values in the interface of segments and tools: identities, amounts and events; the capacities and the version of the
//! segments. Values that can be set are in [`gpushare_settings`], and are exported here too.
//!
//! No atomics and no system calls stand here. With the feature `serde` every value can be written to a file and read
//! back, under the names that the tools' recordings and the audit log have.

mod event;
mod histogram;
mod memory_wait;
mod process;

pub use event::{ALL_REASONS, Event, EventKind, REASONS, Reason, What};
pub use gpushare_settings::policy::{HostMemory, LockPolicy, Order, PolicyKind};
pub(crate) use gpushare_settings::table::LAUNCH_WORDS;
#[cfg(feature = "serde")]
pub(crate) use gpushare_settings::value::stored::uuid as uuid_text;
pub use gpushare_settings::value::{
    Boost, DEFAULT_RECORDS, DEVICES_PER_PROCESS, EvictAfter, MAX_PROCESSES, OnFull, Quota,
    QuotaValue, RECORDS, Reserve, Set, SlotId, Source, Timed, Until, Uuid, format_uuid, parse_uuid,
};
pub use gpushare_settings::{
    Change, DeviceEdit, DeviceRecord, Edit, Gang, GroupEdit, GroupRecord, LaunchLimits,
    MemoryLimit, OneQuota, Rule, SettingEdit, SettingValues, Share, ShareEdit, Sources, Traits,
};
pub(crate) use gpushare_settings::{LaunchShare, Pace, ShareSettings};
pub use histogram::{BUCKETS_PER_OCTAVE, Histogram, bucket, bucket_start_ns, quantile};
pub use memory_wait::{Blocked, Denial, Limit, MemoryWait, Outlook};
pub use process::{
    CardSlice, Loss, Phase, Progress, Residence, TraceOrder, TraceState, TraceView, Unsliced, Why,
};

/// The version of what the two files mean. It grows by one in every change after which a program built before and one
/// built after must not share segments: when an offset, a size or a unit in `layout` changes, when a word gets a
/// meaning that an older program would get wrong (a new kind, flag or state that it would take for another), and when a
/// protocol on the words changes. A new word in reserved space that an older program may go on leaving at zero does not
/// count. The trace buffers have a version of their own.
pub const ABI_VERSION: u32 = 12;

/// Devices in a segment.
pub const MAX_DEVICES: usize = 64;
/// Groups that have settings.
pub const MAX_GROUPS: usize = 64;
/// Rules in a segment.
pub const MAX_RULES: usize = 64;
/// Records in the event ring.
pub const EVENT_RING: usize = 65536;
/// Time for which `gpushare pick` holds a claim on a device: enough for a program to reach its first allocation.
pub const PICK_NS: u64 = 10_000_000_000;
/// Buckets of a histogram of times: four to an octave.
pub const HISTOGRAM: usize = 128;

/// A device entry's flag: the device is simulated.
pub const DEVICE_SIM: u32 = 1;
/// A device entry's flag: the device is a MIG instance.
pub const DEVICE_MIG: u32 = 2;

/// The identity of a process, as the process reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Identity {
    /// Pid in the process's own namespace.
    #[cfg_attr(feature = "serde", serde(rename = "ns_pid"))]
    pub pid: u32,
    /// Inode of the pid namespace.
    pub pid_ns: u64,
    /// Inode of the time namespace.
    pub time_ns: u64,
    /// Start time in clock ticks (`/proc/self/stat`, field 22).
    pub start_time: u64,
    /// User id. Where a broker vouches for it and the process is in a user namespace that a user made, the id of that user.
    pub uid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Path of the cgroup.
    pub cgroup: String,
    /// Name from `gpushare run --name`.
    pub label: String,
}

/// Facts that a machine's broker learns about a process from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Vouched {
    /// Pid on the host.
    pub pid: u32,
    /// Group id.
    pub gid: u32,
    /// Start time as the host counts it.
    pub start_time: u64,
    /// Container; empty for none.
    pub container: String,
    /// Slurm job; empty for none.
    pub job: String,
}

/// Returns true while a claim of `gpushare pick` holds. A claim that ends later than any pick asks for was written by no pick.
pub(crate) fn is_pick_held(until_ns: u64, now_ns: u64) -> bool {
    // The claim may be younger than the reader's clock.
    (1..=2 * PICK_NS).contains(&until_ns.saturating_sub(now_ns))
}
