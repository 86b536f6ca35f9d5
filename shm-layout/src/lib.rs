//! gpushare's shared-memory segments: layout, ledger, lock and event protocols, snapshots.
//!
//! (The interface; each module's own docs say what it promises.)

mod book;
pub mod clock;
mod codec;
mod control;
pub mod crash;
mod create;
pub mod edit;
pub mod error;
pub mod events;
mod futex;
mod identity;
pub mod ids;
pub mod layout;
pub mod ledger;
pub mod limits;
mod liveness;
pub mod locate;
pub mod lock;
mod primitive;
pub mod protocol;
mod reap;
mod records;
pub mod register;
pub mod segment;
pub mod settings;
pub mod snapshot;
mod state;
mod tables;
pub mod text;

pub use edit::{Boost, Change, Edit, EditError, Operator, QuotaValue, Set};
pub use error::OpenError;
pub use events::{Event, EventKind, EventReader, Lost, Reason};
pub use ids::{Entry, SlotId, Uuid};
pub use ledger::{CounterView, Counters, Denial, Ledger, Limit, Quota, Reservation};
pub use limits::{ALIASES, LaunchLimits, MemoryLimit, Source};
pub use locate::{Mode, SegmentDir, locate, locate_existing};
pub use lock::{Acquire, DeviceLock};
pub use register::{
    DevicesFull, Identity, KeeperMark, RegisterError, Registration, reap, register,
};
pub use segment::{Control, Segments, State};
pub use settings::{LockPolicy, Order, PolicyKind, Share, control_bell};
pub use snapshot::{
    DeviceView, GroupView, Liveness, LockState, LockView, ProcessDeviceView, ProcessView, Snapshot,
    quantile, snapshot,
};

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
/// The layout's version; grows whenever a shared offset moves.
pub const ABI_VERSION: u32 = 1;
/// Buckets of a log2 histogram of nanoseconds.
pub const HISTOGRAM: usize = 32;

/// A device entry's flag: the device is simulated.
pub const DEVICE_SIM: u32 = 1;
/// A device entry's flag: the device is a MIG instance.
pub const DEVICE_MIG: u32 = 2;
