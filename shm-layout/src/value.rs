//! The plain values in the interface of segments and tools: identities, amounts and events; the capacities and the version of the
//! segments. Values that can be set are in [`gpushare_settings`], and are exported here too.
//!
//! No atomics and no system calls stand here. With the feature `serde` every value can be written to a file and read
//! back, under the names that the tools' recordings and the audit log have.

/// Declares the reasons of one kind, numbered from 0 in the order of their rows.
macro_rules! reasons {
    (
        $(#[$about:meta])* enum $Kind:ident;
        $($(#[$doc:meta])* $name:ident = $sentence:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "snake_case")
        )]
        #[repr(u8)]
        pub enum $Kind {
            $($(#[$doc])* $name,)*
        }

        impl $Kind {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the reason as a clause.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }
        }
    };
}

mod card_slice;
mod event;
mod histogram;
mod identity;
mod loss;
mod memory_wait;
mod residence;
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
pub use memory_wait::{Blocked, Denial, Limit, MemoryWait, Outlook};
pub use residence::{Phase, Residence, Why};
pub use trace::{Progress, TraceOrder, TraceState, TraceView};

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
