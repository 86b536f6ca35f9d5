//! The types of values that can be set.

mod evict_after;
mod ids;
mod on_full;
mod quota;
mod reserve;
mod set;
mod sizes;
mod source;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod stored;

pub use evict_after::EvictAfter;
pub use ids::{SlotId, Uuid, format_uuid, parse_uuid};
pub use on_full::OnFull;
pub use quota::{Amount, MemoryList, Quota, QuotaValue, in_bytes, parse_amount, parse_memory_list};
pub use reserve::Reserve;
pub use set::{Boost, Set, Timed, Until};
pub use sizes::{DEFAULT_RECORDS, DEVICES_PER_PROCESS, MAX_PROCESSES, RECORDS};
pub use source::{ALIASES, Source};
