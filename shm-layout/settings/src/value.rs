//! The types of values that can be set, and the sizes that their ranges depend on.

mod evict_after;
mod ids;
mod on_full;
mod quota;
mod reserve;
mod setting;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod stored;

pub use evict_after::EvictAfter;
pub use ids::{SlotId, Uuid, format_uuid, parse_uuid};
pub use on_full::OnFull;
pub use quota::{Amount, MemoryList, Quota, QuotaValue, in_bytes, parse_amount, parse_memory_list};
pub use reserve::Reserve;
pub use setting::{ALIASES, Boost, Set, Source, Timed, Until};

/// Process slots in a segment.
pub const MAX_PROCESSES: usize = 256;
/// Device entries in one process's slot.
pub const DEVICES_PER_PROCESS: usize = 16;
/// Records a buffer may have.
pub const RECORDS: std::ops::RangeInclusive<u32> = 1_000..=4_000_000;
/// Default number of records of a buffer: 8 MiB.
pub const DEFAULT_RECORDS: u32 = 262_144;
