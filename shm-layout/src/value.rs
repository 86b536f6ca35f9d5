//! The plain values that segments and tools speak of: who, how much, what happened. Those that can be set are in
//! [`gpushare_settings`], and are here again.
//!
//! No atomics and no system calls stand here. With the feature `serde` every value can be written to a file and read
//! back, under the names that the tools' recordings and the audit log have.

mod entry;
mod event;
mod histogram;
mod identity;
mod loss;
mod memory_wait;
mod quota;
mod residence;
mod sizes;
mod trace;

pub use entry::Entry;
pub use event::{ALL_REASONS, Event, EventKind, REASONS, Reason, What};
#[cfg(feature = "serde")]
pub(crate) use gpushare_settings::value::uuid_text;
pub use gpushare_settings::value::{
    Boost, Change, DEFAULT_RECORDS, DEVICES_PER_PROCESS, Edit, EvictAfter, Gang, LaunchLimits,
    LockPolicy, MAX_PROCESSES, MemoryLimit, OnFull, OneQuota, Order, PolicyKind, Quota, QuotaValue,
    RECORDS, Rule, RuleLimits, Set, Share, ShareEdit, SlotId, Source, Traits, Until, Uuid,
    format_uuid, parse_uuid,
};
pub(crate) use gpushare_settings::value::{Pace, Timed, valid_cap, valid_priority, valid_weight};
pub(crate) use histogram::bucket;
pub use histogram::{Histogram, bucket_start_ns, quantile};
pub use identity::{Identity, Vouched};
pub use loss::Loss;
pub use memory_wait::{Blocked, MemoryWait};
pub use quota::{Denial, Limit, Outlook};
pub use residence::{Phase, Residence, Why};
pub(crate) use sizes::is_pick_held;
pub use sizes::{
    ABI_VERSION, DEVICE_MIG, DEVICE_SIM, EVENT_RING, HISTOGRAM, MAX_DEVICES, MAX_GROUPS, MAX_RULES,
    PICK_NS,
};
pub use trace::{Progress, TraceOrder, TraceState, TraceView};
