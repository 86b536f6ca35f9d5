//! The whole segment as plain owned data, whatever its bytes.

mod read;

use crate::{
    HISTOGRAM,
    edit::QuotaValue,
    events::REASONS,
    ids::{SlotId, Uuid},
    ledger::{CounterView, Quota},
    limits::Source,
    lock,
    register::Identity,
    settings::{LockPolicy, Share},
    trace::TraceView,
};

pub use read::snapshot;

/// Everything at about one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub time_ns: u64,
    /// The living, by slot.
    pub processes: Vec<ProcessView>,
    /// The devices anybody entered.
    pub devices: Vec<DeviceView>,
    /// The groups anybody named.
    pub groups: Vec<GroupView>,
    /// The operator's policy for all devices that have none of their own.
    pub default_policy: Option<LockPolicy>,
    /// The newest edit.
    pub generation: u64,
    /// Processes that found no slot.
    pub unmanaged: u64,
    /// The next event's number.
    pub events_head: u64,
    /// Times two holders were seen: always 0.
    pub violations: u64,
    /// What could not be read, as sentences.
    pub warnings: Vec<String>,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It lives.
    Live,
    /// It lives; its keeper thread has not started.
    NoKeeper,
    /// It died and nobody has given its slot back yet.
    Dead,
    /// Its lock could not be looked at.
    Unknown,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// Its slot.
    pub slot: SlotId,
    /// Who it is, by its own account.
    pub identity: Identity,
    /// When it registered.
    pub registered_ns: u64,
    /// Its keeper's last tick.
    pub heartbeat_ns: u64,
    /// Whether it lives.
    pub alive: Liveness,
    /// Its share.
    pub share: Share,
    /// Its group.
    pub group: Option<String>,
    /// The last control generation it obeyed.
    pub acked: u64,
    /// A launch variable had a bad value.
    pub invalid: bool,
    /// Its trace.
    pub trace: TraceView,
    /// Its devices.
    pub devices: Vec<ProcessDeviceView>,
}

/// One process on one device.
#[derive(Clone, Debug)]
pub struct ProcessDeviceView {
    /// Its entry in the slot.
    pub entry: u8,
    /// The process's own ordinal of the device.
    pub ordinal: u8,
    /// The device's index in the segment.
    pub device: u8,
    /// The device's UUID.
    pub uuid: Uuid,
    /// Bytes held.
    pub used: u64,
    /// The most it ever held.
    pub peak: u64,
    /// Its quota in force.
    pub quota: Quota,
    /// When the quota reverts by itself.
    pub quota_until_ns: Option<u64>,
    /// What it did.
    pub counters: CounterView,
    /// Its dealings with the lock.
    pub lock: LockView,
    /// The policy that holds for it.
    pub policy: (LockPolicy, Source),
}

/// Where a process stands with a device's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

/// A process's lock statistics on one device. A hold or wait under way is included in the sums.
#[derive(Clone, Debug, Default)]
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
    /// Holds by log2 of nanoseconds.
    pub hold_hist: [u32; HISTOGRAM],
    /// Waits by log2 of nanoseconds.
    pub wait_hist: [u32; HISTOGRAM],
    /// Releases by [`crate::Reason`].
    pub releases: [u64; REASONS],
    /// Whom it waited for longest: holder and nanoseconds, most first.
    pub waited_for: Vec<(SlotId, u64)>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceView {
    /// Its index in the segment.
    pub index: u8,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its memory.
    pub total_bytes: u64,
    /// [`crate::DEVICE_SIM`], [`crate::DEVICE_MIG`].
    pub flags: u32,
    /// Who holds its lock.
    pub owner: Option<SlotId>,
    /// Since when.
    pub owner_since_ns: u64,
    /// Who waits, longest first.
    pub waiters: Vec<SlotId>,
    /// The operator's policy, or the default.
    pub policy: (LockPolicy, Source),
    /// The operator's limit on all processes together.
    pub limit: Option<u64>,
    /// Hand-offs.
    pub handoffs: u64,
    /// Forced releases.
    pub forced: u64,
    /// Times the lock was taken over from a dead holder.
    pub takeovers: u64,
    /// From the last release to its waiter running.
    pub last_handoff_ns: u64,
    /// Hand-offs by log2 of nanoseconds, from the release (or the death, once it was seen) to the waiter running.
    pub handoff_hist: [u32; HISTOGRAM],
    /// Times two holders were seen: always 0.
    pub violations: u64,
    /// Claims of `gpushare pick` in force.
    pub picks: u32,
}

/// One group.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<SlotId>,
    /// Whether the operator defined it; else a process only named it.
    pub defined: bool,
    /// What its members may hold together on each device.
    pub memory: QuotaValue,
    /// Each member's weight.
    pub weight: Option<u32>,
    /// Each member's cap.
    pub cap: Option<u32>,
}

/// The `q` quantile of a log2 histogram, as nanoseconds (the bucket's geometric middle); `None` when it is empty.
pub fn quantile(hist: &[u32; HISTOGRAM], q: f64) -> Option<u64> {
    let total: u64 = hist.iter().map(|count| u64::from(*count)).sum();
    let rank = (q.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (bucket, count) in hist.iter().enumerate() {
        seen += u64::from(*count);
        if seen >= rank {
            return Some(lock::bucket_middle(bucket));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_nothing_are_nothing() {
        assert_eq!(quantile(&[0; HISTOGRAM], 0.5), None);
    }

    #[test]
    fn quantiles_name_the_bucket_they_fall_in() {
        let mut hist = [0; HISTOGRAM];
        (hist[10], hist[20]) = (99, 1);
        assert_eq!(quantile(&hist, 0.5), Some(lock::bucket_middle(10)));
        assert_eq!(quantile(&hist, 0.99), Some(lock::bucket_middle(10)));
        assert_eq!(quantile(&hist, 1.0), Some(lock::bucket_middle(20)));
        assert_eq!(quantile(&hist, f64::NAN), Some(lock::bucket_middle(10)));
    }
}
