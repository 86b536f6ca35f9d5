//! The plain values in the interface of segments and tools: identities, amounts and events. Values that can be set are in
//! [`gpushare_settings`], and are exported here too.
//!
//! No atomics and no system calls stand here. With the feature `serde` every value can be written to a file and read
//! back, under the names that the tools' recordings and the audit log have.

mod card_slice;
mod event;
mod histogram;
mod identity;
mod loss;
mod memory_wait;
mod quota;
mod reasons;
mod residence;
mod sizes;
mod trace;

pub use card_slice::{CardSlice, Unsliced};
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
pub use histogram::{BUCKETS_PER_OCTAVE, Histogram, bucket, bucket_start_ns};
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
