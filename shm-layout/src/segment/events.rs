//! The event ring: records with many writers, and readers that count the records they lost.

use crate::{
    layout::state::State,
    protocol::{
        crash::crash_point,
        primitive::{Ordering, fence},
    },
    value::{ALL_REASONS, EVENT_RING, Event, EventKind},
};

/// The number of events that were overwritten before they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost(pub u64);

/// A place in the ring. Reading changes nothing in the segment.
#[derive(Clone, Debug)]
pub struct EventReader {
    next: u64,
    lost: u64,
    looks: u32,
}

const SIZE: u64 = EVENT_RING as u64;

impl State {
    /// Appends an event; its `seq` is given here. Only through a mapping opened for a workload or the operator.
    pub fn publish(&self, event: Event) {
        let number = self.ring.head.fetch_add(1, Ordering::Relaxed);
        let cell = &self.ring.cells[(number % SIZE) as usize];
        let writing = number.wrapping_mul(2).wrapping_add(1);
        cell.stamp.store(writing, Ordering::Relaxed);
        // ORDER: pairs with the Acquire fence in read; a reader that sees a new word sees the odd stamp too.
        fence(Ordering::Release);
        crash_point!("event:writing");
        cell.time_ns.store(event.time_ns, Ordering::Relaxed);
        cell.who.store(
            u64::from(event.slot) | u64::from(event.epoch) << 16,
            Ordering::Relaxed,
        );
        cell.what.store(sealed(number, &event), Ordering::Relaxed);
        cell.arg0.store(event.arg0, Ordering::Relaxed);
        cell.arg1.store(event.arg1, Ordering::Relaxed);
        // A writer a whole ring later may be at this cell too: the exchange leaves the stamp to it, and the seal tells
        // a mixture of our words and its own.
        // ORDER: pairs with the Acquire load in read; publishes the words.
        let _ = cell.stamp.compare_exchange(
            writing,
            writing.wrapping_add(1),
            Ordering::Release,
            Ordering::Relaxed,
        );
    }

    /// Returns a reader that starts after the newest event.
    pub fn events(&self) -> EventReader {
        EventReader::from_tail(self)
    }

    /// Counts a process that could not be managed. (A full table is counted by [`crate::register()`] itself.)
    pub fn count_unmanaged(&self, now_ns: u64) {
        self.unmanaged_ns.store(now_ns, Ordering::Relaxed);
        self.unmanaged.fetch_add(1, Ordering::Relaxed);
    }
}

fn what(event: &Event) -> u64 {
    let (kind, reason) = match event.kind {
        EventKind::Register => (1, 0),
        EventKind::Exit => (2, 0),
        EventKind::Wait => (3, 0),
        EventKind::Hold => (4, 0),
        EventKind::Release(reason) => (5, reason as u64),
        EventKind::Denial => (6, 0),
        EventKind::Edit => (7, 0),
        EventKind::Forced => (8, 0),
        EventKind::Takeover => (9, 0),
        EventKind::OverQuota => (10, 0),
        EventKind::Unmanaged => (11, 0),
        EventKind::Pick => (12, 0),
        EventKind::Trouble => (13, 0),
        EventKind::Active => (14, 0),
        EventKind::Rest => (15, 0),
        EventKind::Back => (16, 0),
        EventKind::Lost => (17, 0),
        EventKind::MemoryWait => (18, 0),
        EventKind::MemoryDone => (19, 0),
        EventKind::Residence => (20, 0),
    };
    kind | reason << 8 | u64::from(event.device) << 16 | u64::from(event.call) << 32
}

/// A quick hash whose upper bits depend on every word.
fn check_of(words: [u64; 6]) -> u64 {
    words
        .into_iter()
        .fold(0, |hash: u64, word| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        })
        .wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The kind word with a check of the whole event in its upper 16 bits.
fn sealed(number: u64, event: &Event) -> u64 {
    let what = what(event);
    let who = u64::from(event.slot) | u64::from(event.epoch) << 16;
    let check = check_of([number, event.time_ns, who, what, event.arg0, event.arg1]);
    what | check >> 48 << 48
}

fn kind_of(what: u64) -> Option<EventKind> {
    Some(match what & 0xff {
        1 => EventKind::Register,
        2 => EventKind::Exit,
        3 => EventKind::Wait,
        4 => EventKind::Hold,
        5 => EventKind::Release(*ALL_REASONS.get((what >> 8 & 0xff) as usize)?),
        6 => EventKind::Denial,
        7 => EventKind::Edit,
        8 => EventKind::Forced,
        9 => EventKind::Takeover,
        10 => EventKind::OverQuota,
        11 => EventKind::Unmanaged,
        12 => EventKind::Pick,
        13 => EventKind::Trouble,
        14 => EventKind::Active,
        15 => EventKind::Rest,
        16 => EventKind::Back,
        17 => EventKind::Lost,
        18 => EventKind::MemoryWait,
        19 => EventKind::MemoryDone,
        20 => EventKind::Residence,
        _ => return None,
    })
}

enum CellRead {
    Event(Event),
    /// The record is not written yet.
    NotYet,
    /// Overwritten, torn, or no event.
    Gone,
}

fn read_cell(state: &State, number: u64) -> CellRead {
    let cell = &state.ring.cells[(number % SIZE) as usize];
    let done = number.wrapping_mul(2).wrapping_add(2);
    // ORDER: pairs with the Release in publish; the words of that stamp are visible.
    let stamp = cell.stamp.load(Ordering::Acquire);
    if stamp != done {
        return if stamp < done {
            CellRead::NotYet
        } else {
            CellRead::Gone
        };
    }
    let time_ns = cell.time_ns.load(Ordering::Relaxed);
    let who = cell.who.load(Ordering::Relaxed);
    let what = cell.what.load(Ordering::Relaxed);
    let arg0 = cell.arg0.load(Ordering::Relaxed);
    let arg1 = cell.arg1.load(Ordering::Relaxed);
    // ORDER: pairs with the Release fence in publish; a newer word makes the stamp below differ.
    fence(Ordering::Acquire);
    if cell.stamp.load(Ordering::Relaxed) != done {
        return CellRead::Gone;
    }
    let Some(kind) = kind_of(what) else {
        return CellRead::Gone;
    };
    let event = Event {
        seq: number,
        time_ns,
        slot: who as u16,
        epoch: (who >> 16) as u32,
        device: (what >> 16) as u8,
        kind,
        arg0,
        arg1,
        call: (what >> 32) as u16,
    };
    if sealed(number, &event) == what {
        CellRead::Event(event)
    } else {
        CellRead::Gone
    }
}

/// Limit of waiting for a cell that is reserved but not written, whose writer may have died: in newer events, and in reads of
/// the cell.
const PATIENCE: u64 = 64;
const READS: u32 = 16;

impl EventReader {
    /// Returns a reader that starts at the oldest event that still exists.
    pub fn from_start(state: &State) -> EventReader {
        let head = state.ring.head.load(Ordering::Relaxed);
        EventReader {
            next: head.saturating_sub(SIZE),
            lost: 0,
            looks: 0,
        }
    }

    /// Behind the newest.
    pub fn from_tail(state: &State) -> EventReader {
        EventReader {
            next: state.ring.head.load(Ordering::Relaxed),
            lost: 0,
            looks: 0,
        }
    }

    /// The next event, or how many were lost before it, or `None` when there is none yet.
    #[allow(
        clippy::should_implement_trait,
        reason = "it needs the state each time"
    )]
    pub fn next(&mut self, state: &State) -> Option<Result<Event, Lost>> {
        let head = state.ring.head.load(Ordering::Relaxed);
        if self.next > head {
            // The ring was re-created, or its head is nonsense.
            self.next = head;
            return None;
        }
        if head - self.next > SIZE {
            let behind = head - SIZE - self.next;
            return Some(Err(self.skip(behind)));
        }
        if self.next == head {
            return None;
        }
        match read_cell(state, self.next) {
            CellRead::Event(event) => {
                self.next += 1;
                self.looks = 0;
                Some(Ok(event))
            }
            CellRead::NotYet if head - self.next <= PATIENCE && self.looks < READS => {
                self.looks += 1;
                None
            }
            CellRead::NotYet | CellRead::Gone => Some(Err(self.skip(1))),
        }
    }

    fn skip(&mut self, count: u64) -> Lost {
        self.next += count;
        self.lost += count;
        self.looks = 0;
        Lost(count)
    }

    /// Returns how many events were lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
