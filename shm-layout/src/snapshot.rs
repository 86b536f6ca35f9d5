//! The whole segment as plain owned data, whatever its bytes.

mod read;

use crate::{
    layout::counters::CounterView,
    value::{
        ALL_REASONS, CardSlice, Histogram, Identity, LockPolicy, Loss, MemoryWait, Quota,
        QuotaValue, REASONS, Reason, Reserve, Residence, Share, SlotId, Source, TraceView, Uuid,
        Vouched,
    },
};

pub use read::{last_identity, snapshot, snapshot_of};

#[cfg(feature = "serde")]
use crate::value::uuid_text;

/// Everything at about one moment. A tool that knows more of a process or device puts its own type around the view.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Snapshot<P = ProcessView, D = DeviceView> {
    /// Time of the snapshot.
    pub time_ns: u64,
    /// The living, by slot.
    pub processes: Vec<P>,
    /// The devices that any process has entered.
    pub devices: Vec<D>,
    /// The groups that any process has named.
    pub groups: Vec<GroupView>,
    /// The operator's policy for all devices that have none of their own.
    pub default_policy: Option<LockPolicy>,
    /// The newest edit.
    pub generation: u64,
    /// Processes that found no slot.
    pub unmanaged: u64,
    /// Time when the last of them was turned away; 0 for none.
    pub unmanaged_ns: u64,
    /// The next event's number.
    pub events_head: u64,
    /// Times two holders were seen: always 0.
    pub violations: u64,
    /// Parts that could not be read, as sentences.
    pub warnings: Vec<String>,
    /// Slots in use with words that gpushare never writes: another program overwrote them.
    pub damaged: Vec<u16>,
}

impl<P, D> Snapshot<P, D> {
    /// Replaces the processes and devices.
    pub fn with<Q, E>(self, processes: Vec<Q>, devices: Vec<E>) -> Snapshot<Q, E> {
        Snapshot {
            time_ns: self.time_ns,
            processes,
            devices,
            groups: self.groups,
            default_policy: self.default_policy,
            generation: self.generation,
            unmanaged: self.unmanaged,
            unmanaged_ns: self.unmanaged_ns,
            events_head: self.events_head,
            violations: self.violations,
            warnings: self.warnings,
            damaged: self.damaged,
        }
    }
}

/// State of a process's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Liveness {
    /// The process lives.
    Live,
    /// The process lives; its keeper thread has not started.
    NoKeeper,
    /// The process died and its slot is not released yet.
    Dead,
    /// The process's lock could not be queried.
    #[default]
    Unknown,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct ProcessView<D = ProcessDeviceView> {
    /// Slot of the process.
    pub slot: SlotId,
    /// Identity: from the kernel where a broker vouches for it, else as the process reports it.
    pub identity: Identity,
    /// Facts that only a broker has.
    pub vouched: Option<Vouched>,
    /// True if the slot contradicts the broker, or was taken without it: another program wrote over it.
    pub forged: bool,
    /// Time of registration.
    pub registered_ns: u64,
    /// Time of the keeper's last tick.
    pub heartbeat_ns: u64,
    /// State of the process's life.
    pub alive: Liveness,
    /// Share of the process.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub share: Share,
    /// Group of the process.
    pub group: Option<String>,
    /// The rule that holds for it.
    pub rule: Option<String>,
    /// Number that the processes of one job share, which have their turns together; 0 for none.
    pub gang: u64,
    /// The last control generation it applied.
    #[cfg_attr(feature = "serde", serde(rename = "acknowledged"))]
    pub acked: u64,
    /// A launch variable had a bad value.
    pub invalid: bool,
    /// Trace of the process.
    pub trace: TraceView,
    /// Residence of the process's memory.
    pub residence: Residence,
    /// Devices of the process.
    pub devices: Vec<D>,
}

impl<D> ProcessView<D> {
    /// Replaces the devices.
    pub fn with<E>(self, devices: Vec<E>) -> ProcessView<E> {
        ProcessView {
            slot: self.slot,
            identity: self.identity,
            vouched: self.vouched,
            forged: self.forged,
            registered_ns: self.registered_ns,
            heartbeat_ns: self.heartbeat_ns,
            alive: self.alive,
            share: self.share,
            group: self.group,
            rule: self.rule,
            gang: self.gang,
            acked: self.acked,
            invalid: self.invalid,
            trace: self.trace,
            residence: self.residence,
            devices,
        }
    }
}

/// One process on one device. The fields that readers use most come first in memory, because a dashboard reads hundreds of
/// these for each sample.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[repr(C)]
pub struct ProcessDeviceView {
    /// Index of the entry in the slot.
    pub entry: u8,
    /// The process's own ordinal of the device.
    pub ordinal: u8,
    /// The device's index in the segment.
    pub device: u8,
    /// True if its contexts belong to MPS, by the driver's report; `None` without a report.
    pub mps: Option<bool>,
    /// Its time slice from the card, under `hw-timeslice`.
    pub card_slice: CardSlice,
    /// Mean time of a kernel or graph while no other process used the device, in nanoseconds; 0 while not measured.
    pub submission_ns: u64,
    /// Bytes held.
    #[cfg_attr(feature = "serde", serde(rename = "used_bytes"))]
    pub used: u64,
    /// The most it ever held.
    #[cfg_attr(feature = "serde", serde(rename = "peak_bytes"))]
    pub peak: u64,
    /// The request that it waits for, while it waits for memory.
    pub memory_wait: Option<MemoryWait>,
    /// State and counters of its use of the lock.
    pub lock: LockView,
    /// The loss of its context, if any.
    pub loss: Option<Loss>,
    /// Counters of its activity.
    pub counters: CounterView,
    /// Bytes that are its own and not on the device: evicted.
    #[cfg_attr(feature = "serde", serde(rename = "evicted_bytes"))]
    pub evicted: u64,
    /// Bytes that no other process can take, by its own account.
    #[cfg_attr(feature = "serde", serde(rename = "reserved_bytes"))]
    pub reserved: u64,
    /// Quota in force.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub quota: Quota,
    /// Time when the quota reverts by itself.
    pub quota_until_ns: Option<u64>,
    /// The policy that holds for it.
    pub policy: (LockPolicy, Source),
    /// The device's UUID.
    #[cfg_attr(feature = "serde", serde(with = "uuid_text"))]
    pub uuid: Uuid,
}

/// State of a process towards a device's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum LockState {
    /// Neither holds nor waits.
    #[default]
    Idle,
    /// Waits.
    Wait,
    /// Holds.
    Hold,
    /// Paused by the operator.
    Paused,
    /// Submits beside others, under `overlap`.
    Active,
    /// Wants to submit and is held back, under `overlap`.
    Back,
}

impl LockState {
    /// Returns the state as one word, for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            LockState::Idle => "idle",
            LockState::Wait => "wait",
            LockState::Hold => "hold",
            LockState::Paused => "paused",
            LockState::Active => "active",
            LockState::Back => "back",
        }
    }
}

/// The lock statistics of a process on one device, in the order of [`ProcessDeviceView`]. Sums include a hold or wait under
/// way.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[repr(C)]
pub struct LockView {
    /// Holds, waits or neither.
    pub state: LockState,
    /// Since when; 0 when idle.
    pub since_ns: u64,
    /// Nanoseconds held.
    pub held_ns: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
    /// Times acquired.
    pub acquisitions: u64,
    /// Times it was forced away.
    pub forced: u64,
    /// Holds by length.
    pub holds: Histogram,
    /// Waits by length.
    pub waits: Histogram,
    /// Steps by the time for which the device kept the process waiting in them: its waits for the lock and
    /// for room in its queue, and the synchronisation that ended the step.
    pub steps: Histogram,
    /// Releases by [`crate::Reason`].
    pub releases: [u64; REASONS],
    /// The processes it waited for longest: holder and nanoseconds, most first.
    pub waited_for: Vec<(SlotId, u64)>,
}

impl LockView {
    /// Returns the reasons that its holds ended and their counts, most frequent first.
    pub fn ends(&self) -> Vec<(Reason, u64)> {
        let mut ends: Vec<(Reason, u64)> = ALL_REASONS.into_iter().zip(self.releases).collect();
        ends.retain(|(_, count)| *count > 0);
        ends.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        ends
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct DeviceView {
    /// Index in the segment.
    pub index: u8,
    /// UUID of the device.
    #[cfg_attr(feature = "serde", serde(with = "uuid_text"))]
    pub uuid: Uuid,
    /// Name.
    pub name: String,
    /// Size of the device's memory.
    pub total_bytes: u64,
    /// [`crate::value::DEVICE_SIM`], [`crate::value::DEVICE_MIG`].
    pub flags: u32,
    /// Holder of the lock.
    pub owner: Option<SlotId>,
    /// Since when.
    pub owner_since_ns: u64,
    /// Waiters for the lock, longest first.
    pub waiters: Vec<SlotId>,
    /// Waiters for memory, in the order of arrival.
    pub memory_line: Vec<SlotId>,
    /// The operator's policy, or the default.
    pub policy: (LockPolicy, Source),
    /// Time when that policy reverts by itself.
    pub policy_until_ns: Option<u64>,
    /// The operator's limit on all processes together.
    #[cfg_attr(feature = "serde", serde(rename = "limit_bytes"))]
    pub limit: Option<u64>,
    /// Nanoseconds of idleness after which processes on it are evicted, where they have no setting of their own.
    #[cfg_attr(feature = "serde", serde(rename = "evict_after_ns"))]
    pub evict_after: Option<u64>,
    /// True if a process that finds the device full may have idle processes evicted.
    pub overcommit: bool,
    /// Time when a process last asked for memory and found only processes whose memory had just returned; 0 for never.
    pub crowded_ns: u64,
    /// Hand-offs.
    pub handoffs: u64,
    /// Forced releases.
    pub forced: u64,
    /// Times the lock was taken over from a dead holder.
    pub takeovers: u64,
    /// From the last release to its waiter running.
    pub last_handoff_ns: u64,
    /// Hand-offs by length, from the release (or the death, once it was seen) to the waiter running.
    pub handoff_times: Histogram,
    /// Times two holders were seen: always 0.
    pub violations: u64,
    /// Claims of `gpushare pick` in force.
    pub picks: u32,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct GroupView {
    /// Name.
    pub name: String,
    /// Members of the group.
    pub members: Vec<SlotId>,
    /// True if the operator defined the group; false if a process only named it.
    pub defined: bool,
    /// Quota of all members together on each device.
    pub memory: QuotaValue,
    /// Each member's weight.
    pub weight: Option<u32>,
    /// Each member's cap.
    #[cfg_attr(feature = "serde", serde(rename = "cap_percent"))]
    pub cap: Option<u32>,
    /// Memory on each device that no other process can take, for all members together.
    pub reserve: Option<Reserve>,
    /// Time when the first of these settings reverts by itself.
    pub until_ns: Option<u64>,
}

/// For how long it is believed that a process lives, at least, as long as the kernel has not marked its death.
const LIVES_NS: u64 = 2_000_000_000;

/// The processes that were seen alive, and when, so that a reader seldom asks the kernel. A reader that takes one snapshot
/// starts with an empty cache.
#[derive(Clone, Debug, Default)]
pub struct LivenessCache(Vec<(SlotId, u64)>);

impl LivenessCache {
    /// Returns true if this process was seen alive so recently that the kernel need not be asked.
    fn is_fresh(&self, id: SlotId, now_ns: u64) -> bool {
        let seen = self.0.get(usize::from(id.index));
        // Not all at once.
        let lasts_ns = LIVES_NS + u64::from(id.index % 8) * LIVES_NS / 8;
        seen.is_some_and(|(of, at)| *of == id && now_ns.saturating_sub(*at) < lasts_ns)
    }

    /// Notes that the process is alive.
    fn note(&mut self, id: SlotId, now_ns: u64) {
        let index = usize::from(id.index);
        if self.0.len() <= index {
            self.0.resize(index + 1, (SlotId::default(), 0));
        }
        self.0[index] = (id, now_ns);
    }

    /// Removes a process that was not seen alive.
    fn forget(&mut self, id: SlotId) {
        if let Some(seen) = self.0.get_mut(usize::from(id.index)) {
            *seen = (SlotId::default(), 0);
        }
    }
}
