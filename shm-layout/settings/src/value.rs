//! What can be set, and the edits that set it.

mod change;
mod evict_after;
mod ids;
mod launch;
mod on_full;
mod policy;
mod quota;
mod share;
mod sizes;
mod source;

#[cfg(feature = "serde")]
#[doc(hidden)]
pub use change::uuid_text;
pub use change::{
    Boost, Change, Edit, OneQuota, Rule, RuleLimits, Set, ShareEdit, Timed, Traits, Until,
};
pub use evict_after::EvictAfter;
pub use ids::{SlotId, Uuid, format_uuid, parse_uuid};
pub use launch::{Gang, LaunchLimits, MemoryLimit};
pub use on_full::OnFull;
pub use policy::{LockPolicy, Order, PolicyKind};
pub use quota::{Quota, QuotaValue};
pub use share::{Pace, Share, valid_cap, valid_priority, valid_weight};
pub use sizes::{DEFAULT_RECORDS, DEVICES_PER_PROCESS, MAX_PROCESSES, RECORDS};
pub use source::Source;
