//! Capacities and version of the segments.

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

/// Returns true while a claim of `gpushare pick` holds. A claim that ends later than any pick asks for was written by no pick.
pub(crate) fn is_pick_held(until_ns: u64, now_ns: u64) -> bool {
    // The claim may be younger than the reader's clock.
    (1..=2 * PICK_NS).contains(&until_ns.saturating_sub(now_ns))
}
