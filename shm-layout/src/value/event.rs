//! Events, and the reasons that holds end.

use super::{Blocked, Phase, SlotId, Why};

/// The reason that a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[repr(u8)]
pub enum Reason {
    /// Its time slice was over.
    Slice,
    /// Its launches were used up.
    Count,
    /// The application synchronised.
    Sync,
    /// The holder had no work.
    Idle,
    /// The application or shim asked.
    Explicit,
    /// The lock was taken away, or the drain outlasted the grace time.
    Forced,
    /// The process ended.
    Exit,
    /// The policy became `off`.
    Off,
    /// The process was paused or reached its cap.
    Paused,
}

/// Number of reasons.
pub const REASONS: usize = 9;

/// Every reason, in the order of `LockView::releases`.
pub const ALL_REASONS: [Reason; REASONS] = [
    Reason::Slice,
    Reason::Count,
    Reason::Sync,
    Reason::Idle,
    Reason::Explicit,
    Reason::Forced,
    Reason::Exit,
    Reason::Off,
    Reason::Paused,
];

impl Reason {
    /// In one word, as tables and JSON show it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Slice => "slice",
            Reason::Count => "count",
            Reason::Sync => "sync",
            Reason::Idle => "idle",
            Reason::Explicit => "explicit",
            Reason::Forced => "forced",
            Reason::Exit => "exit",
            Reason::Off => "off",
            Reason::Paused => "paused",
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A process registered.
    Register,
    /// A process left; `arg0` 1 when it was reaped.
    Exit,
    /// Waits for the lock.
    Wait,
    /// Holds the lock; `arg0` ns waited.
    Hold,
    /// Released the lock; `arg0` ns held, `arg1` the next holder's slot word.
    Release(Reason),
    /// An allocation refused: `arg0` bytes asked, `arg1` quota.
    Denial,
    /// The operator edited; `arg0` generation.
    Edit,
    /// The lock was forced away from this slot; `arg0` ns held, `arg1` the next holder's slot word.
    Forced,
    /// The lock was taken over from this dead slot; `arg1` the next holder's slot word.
    Takeover,
    /// Above its quota after an edit: `arg0` used, `arg1` quota.
    OverQuota,
    /// A process found no slot.
    Unmanaged,
    /// A device was claimed by `gpushare pick`.
    Pick,
    /// Something the shim did not understand; `arg0`, `arg1` its own.
    Trouble,
    /// Submits beside others, under `overlap`; `arg0` ns held back before.
    Active,
    /// Has no more work, under `overlap`; `arg0` ns since it was last held back or idle.
    Rest,
    /// Held back, under `overlap`; `arg0` ns active before, `arg1` the slot word of a process that goes first.
    Back,
    /// Lost its context; `arg0` the driver's error code and, above 16 bits, the state of MPS (0 unknown, 1 no, 2 or 3 yes);
    /// `arg1` its pid in its own namespace and, above 32 bits, milliseconds since it last submitted.
    Lost,
    /// Waits for memory: `arg0` bytes, `arg1` the limit that leaves no room ([`Blocked`]).
    MemoryWait,
    /// Waits for it no more: `arg0` ns waited, `arg1` 1 if it got it.
    MemoryDone,
    /// The process's memory moved, or was to move: `arg0` has the phase, the reason above 8 bits, the driver's code above 16,
    /// and the duration in milliseconds above 32; `arg1` has the bytes.
    Residence,
}

/// One record of the event ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Sequence number, given by the ring.
    pub seq: u64,
    /// Time of the event.
    pub time_ns: u64,
    /// Index of the slot; 0xffff for none.
    pub slot: u16,
    /// Life of the slot.
    pub epoch: u32,
    /// Index of the device in the segment; 0xff for none.
    pub device: u8,
    /// Kind of the event.
    pub kind: EventKind,
    /// See the kind.
    pub arg0: u64,
    /// See the kind.
    pub arg1: u64,
    /// The driver call, by the shim's own numbering; 0xffff for none.
    pub call: u16,
}

impl Event {
    /// An event of a slot, without device, call or arguments.
    pub fn of(time_ns: u64, slot: SlotId, kind: EventKind) -> Event {
        Event {
            seq: 0,
            time_ns,
            slot: slot.index,
            epoch: slot.epoch,
            device: u8::MAX,
            kind,
            arg0: 0,
            arg1: 0,
            call: u16::MAX,
        }
    }

    /// Decodes the event, with its arguments by name.
    pub fn what(&self) -> What {
        match self.kind {
            EventKind::Register => What::Register,
            EventKind::Exit => What::Exit {
                reaped: self.arg0 == 1,
            },
            EventKind::Wait => What::Wait,
            EventKind::Hold => What::Hold {
                waited_ns: self.arg0,
            },
            EventKind::Release(reason) => What::Release {
                reason,
                held_ns: self.arg0,
            },
            EventKind::Denial => What::Denial {
                asked_bytes: self.arg0,
                quota_bytes: self.arg1,
                call: (self.call != u16::MAX).then_some(self.call),
            },
            EventKind::Edit => What::Edit {
                generation: self.arg0,
            },
            EventKind::Forced => What::Forced { held_ns: self.arg0 },
            EventKind::Takeover => What::Takeover,
            EventKind::OverQuota => What::OverQuota {
                used_bytes: self.arg0,
                quota_bytes: self.arg1,
            },
            EventKind::Unmanaged => What::Refused,
            EventKind::Pick => What::Pick,
            EventKind::Trouble => What::Trouble,
            EventKind::Active => What::Active {
                waited_ns: self.arg0,
            },
            EventKind::Rest => What::Rest {
                active_ns: self.arg0,
            },
            EventKind::Back => What::Back {
                active_ns: self.arg0,
            },
            EventKind::Lost => What::Lost {
                code: self.arg0 as u16,
                call: (self.call != u16::MAX).then_some(self.call),
                mps: match self.arg0 >> 16 {
                    1 => Some(false),
                    2 | 3 => Some(true),
                    _ => None,
                },
                idle_ms: (self.arg1 >> 32) as u32,
                ns_pid: self.arg1 as u32,
            },
            EventKind::MemoryWait => What::MemoryWait {
                asked_bytes: self.arg0,
                limit: Blocked::of_code(self.arg1 as u32),
            },
            EventKind::MemoryDone => What::MemoryDone {
                waited_ns: self.arg0,
                granted: self.arg1 == 1,
            },
            EventKind::Residence => What::Residence {
                phase: Phase::of_byte(self.arg0 as u8),
                why: Why::of_byte((self.arg0 >> 8) as u8),
                code: (self.arg0 >> 16) as u16,
                took_ms: (self.arg0 >> 32) as u32,
                bytes: self.arg1,
            },
        }
    }
}

/// A decoded event: its kind with its arguments by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case", tag = "kind")
)]
pub enum What {
    /// A process claimed a slot.
    Register,
    /// A process left.
    Exit {
        /// True if it died and another process gave its slot back.
        reaped: bool,
    },
    /// The process began to wait for the lock.
    Wait,
    /// The process got the lock.
    Hold {
        /// After waiting this long.
        waited_ns: u64,
    },
    /// The process gave the lock up.
    Release {
        /// The reason.
        reason: Reason,
        /// After holding it this long.
        held_ns: u64,
    },
    /// An allocation was refused.
    Denial {
        /// Bytes asked for.
        asked_bytes: u64,
        /// The quota that refused them.
        quota_bytes: u64,
        /// The driver call that asked, by the shim's own numbering.
        call: Option<u16>,
    },
    /// The lock was taken from this process, which held it too long.
    Forced {
        /// After holding it this long.
        held_ns: u64,
    },
    /// The lock was taken over from this process, which died holding it.
    Takeover,
    /// The process holds more than its quota after an edit.
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
    /// The process began to submit beside others.
    Active {
        /// After it was held back this long.
        waited_ns: u64,
    },
    /// The process has no more work on the device.
    Rest {
        /// After this long.
        active_ns: u64,
    },
    /// The process was held back.
    Back {
        /// After this long.
        active_ns: u64,
    },
    /// The process lost its context.
    Lost {
        /// The driver's error code.
        code: u16,
        /// The driver call that got it, by the shim's own numbering.
        call: Option<u16>,
        /// True if the process was a client of MPS there.
        mps: Option<bool>,
        /// For how long it had submitted nothing there.
        idle_ms: u32,
        /// The process's pid in its own namespace.
        ns_pid: u32,
    },
    /// The process waits for memory.
    MemoryWait {
        /// Bytes asked for.
        asked_bytes: u64,
        /// The limit that leaves no room for the bytes.
        limit: Blocked,
    },
    /// The process no longer waits for memory.
    MemoryDone {
        /// After this long.
        waited_ns: u64,
        /// True if the process got the memory.
        granted: bool,
    },
    /// The process's memory moved between its devices and the host, or was to move.
    Residence {
        /// The new phase.
        phase: Phase,
        /// The reason that the memory did not move.
        why: Option<Why>,
        /// The driver's error code that goes with it; 0 for none.
        code: u16,
        /// Duration of the phase before, in milliseconds.
        took_ms: u32,
        /// Number of bytes.
        bytes: u64,
    },
    /// An operator changed something.
    Edit {
        /// The generation it made.
        generation: u64,
    },
    /// A kind this program does not know.
    #[default]
    Other,
}
