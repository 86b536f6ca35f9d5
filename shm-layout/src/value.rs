//! The plain values that segments and tools speak of: who, how much, by which policy, what happened.
//!
//! No atomics and no system calls stand here. With the feature `serde` every value can be written to a file and read
//! back, under the names that the tools' recordings and the audit log have.

mod change;
mod event;
mod histogram;
mod identity;
mod ids;
mod launch;
mod loss;
mod memory_wait;
mod on_full;
mod policy;
mod quota;
mod residence;
mod share;
mod sizes;
mod source;
mod trace;

pub(crate) use change::Timed;
#[cfg(feature = "serde")]
pub(crate) use change::uuid_text;
pub use change::{Boost, Change, Edit, OneQuota, Rule, RuleLimits, Set, ShareEdit, Traits, Until};
pub use event::{ALL_REASONS, Event, EventKind, REASONS, Reason, What};
pub(crate) use histogram::bucket;
pub use histogram::{Histogram, bucket_start_ns, quantile};
pub use identity::{Identity, Vouched};
pub use ids::{Entry, SlotId, Uuid, format_uuid, parse_uuid};
pub use launch::{Gang, LaunchLimits, MemoryLimit};
pub use loss::Loss;
pub use memory_wait::{Blocked, MemoryWait};
pub use on_full::OnFull;
pub use policy::{LockPolicy, Order, PolicyKind};
pub use quota::{Denial, Limit, Outlook, Quota, QuotaValue};
pub use residence::{EvictAfter, Phase, Residence, Why};
pub use share::Share;
pub(crate) use share::{Pace, valid_cap, valid_priority, valid_weight};
pub(crate) use sizes::is_pick_held;
pub use sizes::{
    ABI_VERSION, DEVICE_MIG, DEVICE_SIM, DEVICES_PER_PROCESS, EVENT_RING, HISTOGRAM, MAX_DEVICES,
    MAX_GROUPS, MAX_PROCESSES, MAX_RULES, PICK_NS,
};
pub use source::Source;
pub use trace::{DEFAULT_RECORDS, Progress, RECORDS, TraceOrder, TraceState, TraceView};
