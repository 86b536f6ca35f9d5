//! What happened: a ring of records, many writers, readers that learn what they lost.

use crate::segment::State;

/// Why a holder released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Its time was up.
    Slice,
    /// Its launches were up.
    Count,
    /// The application synchronised.
    Sync,
    /// It had nothing to do.
    Idle,
    /// The application or shim asked.
    Explicit,
    /// It was taken away, or the drain outlasted grace.
    Forced,
    /// The process ended.
    Exit,
    /// The policy became `off`.
    Off,
    /// The process was paused or reached its cap.
    Paused,
}

/// How many reasons there are.
pub const REASONS: usize = 9;

/// What happened.
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
}

/// One record of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number; given by the ring.
    pub seq: u64,
    /// When.
    pub time_ns: u64,
    /// Whose slot; 0xffff for nobody's.
    pub slot: u16,
    /// Which life of it.
    pub epoch: u32,
    /// Which device of the segment; 0xff for none.
    pub device: u8,
    /// What.
    pub kind: EventKind,
    /// See the kind.
    pub arg0: u64,
    /// See the kind.
    pub arg1: u64,
    /// The driver call, by the shim's own numbering; 0xffff for none.
    pub call: u16,
}

/// So many events were overwritten before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost(pub u64);

/// A place in the ring. Reading changes nothing in the segment.
#[derive(Clone, Debug)]
pub struct EventReader {
    _next: u64,
    _lost: u64,
}

impl EventReader {
    /// From the oldest event that is still there.
    pub fn from_start(_state: &State) -> EventReader {
        todo!()
    }

    /// Behind the newest.
    pub fn from_tail(_state: &State) -> EventReader {
        todo!()
    }

    /// The next event, or how many were lost before it, or `None` when there is none yet.
    #[allow(
        clippy::should_implement_trait,
        reason = "it needs the state each time"
    )]
    pub fn next(&mut self, _state: &State) -> Option<Result<Event, Lost>> {
        todo!()
    }

    /// How many were lost so far.
    pub fn lost(&self) -> u64 {
        todo!()
    }
}
