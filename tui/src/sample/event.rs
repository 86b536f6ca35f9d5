//! Events as samples carry them: resolved to a process and a device, ready to be said.

use serde::{Deserialize, Serialize};

use super::Slot;

/// One event of the ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventLine {
    /// Its number in the ring.
    pub seq: u64,
    /// When it happened.
    pub time_ns: u64,
    /// The process it is about; it may be gone.
    pub slot: Option<Slot>,
    /// That process's pid on this host, where known.
    pub pid: Option<u32>,
    /// That process's name, where known.
    pub name: String,
    /// Position of the device in [`super::Sample::devices`].
    pub gpu: Option<usize>,
    /// What happened.
    pub what: What,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// Its time was up.
    Slice,
    /// Its launches were up.
    Count,
    /// The application synchronised.
    Sync,
    /// It had nothing to do.
    Idle,
    /// The application or the shim asked.
    Explicit,
    /// It was taken away.
    Forced,
    /// The process ended.
    Exit,
    /// The policy became `off`.
    Off,
    /// It was paused or reached its cap.
    Paused,
}

impl End {
    /// Every end, in the order the segment counts them.
    pub const ALL: [End; 9] = [
        End::Slice,
        End::Count,
        End::Sync,
        End::Idle,
        End::Explicit,
        End::Forced,
        End::Exit,
        End::Off,
        End::Paused,
    ];

    /// The word on screen.
    pub fn word(self) -> &'static str {
        match self {
            End::Slice => "slice",
            End::Count => "count",
            End::Sync => "sync",
            End::Idle => "idle",
            End::Explicit => "explicit",
            End::Forced => "forced",
            End::Exit => "exit",
            End::Off => "off",
            End::Paused => "paused",
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum What {
    /// A process claimed a slot.
    Register,
    /// A process left; `reaped` if others had to clean up after it.
    Exit {
        /// It did not say goodbye.
        reaped: bool,
    },
    /// It began to wait for the lock.
    Wait,
    /// It got the lock.
    Hold {
        /// After waiting this long.
        waited_ns: u64,
    },
    /// It gave the lock up.
    Release {
        /// Why.
        reason: End,
        /// After holding it this long.
        held_ns: u64,
    },
    /// An allocation was refused.
    Denial {
        /// Bytes asked for.
        asked_bytes: u64,
        /// The quota that refused them.
        quota_bytes: u64,
        /// The driver call that asked: [`crate::text::calls::name`] has its name.
        call: Option<u16>,
    },
    /// The lock was taken from this process, which outstayed it.
    Forced {
        /// After holding it this long.
        held_ns: u64,
    },
    /// The lock was taken over from this process, which died holding it.
    Takeover,
    /// It holds more than its quota after an edit.
    OverQuota {
        /// Bytes held.
        used_bytes: u64,
        /// The new quota.
        quota_bytes: u64,
    },
    /// A process found no free slot and runs uncounted.
    Refused,
    /// `gpushare pick` claimed the device.
    Pick,
    /// The shim met something it did not understand.
    Trouble,
    /// An operator changed something.
    Edit {
        /// The generation it made.
        generation: u64,
    },
    /// A kind this program does not know.
    #[default]
    Other,
}
