//! How much room the segments have.

/// Process slots in a segment.
pub const MAX_PROCESSES: usize = 256;
/// Device entries in one process's slot.
pub const DEVICES_PER_PROCESS: usize = 16;
/// Devices in a segment.
pub const MAX_DEVICES: usize = 64;
/// Groups in a segment.
pub const MAX_GROUPS: usize = 64;
/// Records in the event ring.
pub const EVENT_RING: usize = 65536;
/// Buckets of a log2 histogram of nanoseconds.
pub const HISTOGRAM: usize = 32;

/// A device entry's flag: the device is simulated.
pub const DEVICE_SIM: u32 = 1;
/// A device entry's flag: the device is a MIG instance.
pub const DEVICE_MIG: u32 = 2;
