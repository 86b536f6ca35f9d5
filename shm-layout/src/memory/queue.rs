//! The queue for a device's memory. A request that its process's quota, its group's quota or the device has no room for waits
//! here for its turn.
//!
//! The queue guarantees to its callers:
//!
//! * First come, first served, within a priority, among processes that wait for the same limit: the device, or one group's
//!   quota. A process that waits for its own quota delays no other.
//! * On an overcommitted device the process comes first that has lacked most: the bytes of its whole memory, at least a quarter of the
//!   device, times the time that it has waited. A process that waits gains on every later one, so none starves, and a small
//!   one waits at most four times as long as one that fills the device.
//! * A process that already holds as much as it asks for may pass, if there is room: it needs the memory to go on and to end,
//!   while a newcomer can wait. So does a process that takes of its reserve. A process that does not wait at all (`on-full=fail`) takes any free memory, as always.
//! * No ticket is handed from one process to another, so a death loses nothing. A process that is dead, stopped or paused is
//!   passed over.
//! * If every process that holds memory waits as well, no process is left to give any back. After a second of that the order no
//!   longer applies, and after two seconds the last in the queue that holds memory is refused. Otherwise they would wait for ever. On an
//!   overcommitted device that takes thirty seconds, as long as others hold what is missing.
//! * Memory that returns is taken as a whole, with one exception: while as much as is missing is on its way out of the device, the
//!   process that is next may take what is free part by part ([`QueueTicket::take_part`]). A process whose memory leaves waits for
//!   none, so the parts end: the process gets the rest, or gives all parts back. Two processes never wait for each other's parts.
//! * No other process can free bytes that a process's own quota lacks. Such a request is refused after two seconds in which
//!   none of the process's own threads could have freed any ([`QueueTicket::own_threads_wait`]).
//! * Nothing sleeps longer than [`POLL_NS`] without looking again.
//!
//! [`Ledger::enqueue`] gives a [`QueueTicket`]; [`QueueTicket::poll`] takes the bytes when it is our turn and there is room.

mod overcommit;
mod rules;
mod ticket;

use std::cell::{Cell, RefCell};
use std::sync::{MutexGuard, PoisonError};

use crate::{
    layout::state::{Device, DeviceEntry, Slot, State},
    lock,
    memory::{
        ledger::{CONTEXT_BYTES, Ledger, Reservation},
        residence_of,
    },
    os::{
        clock, futex,
        liveness::{self, Mark},
    },
    protocol::{
        account::{granted, growth},
        bell,
        crash::crash_point,
        memory_queue::{self, Position, Scope},
        primitive::Ordering,
    },
    value::{Blocked, Denial, Limit, MemoryWait, Phase, Share, SlotId},
};

pub use overcommit::Room;
pub use rules::{EvictionRules, IDLE_NS};

/// Longest sleep of a ticket between two polls.
pub const POLL_NS: u64 = 100_000_000;
/// Time without a poll after which a waiter counts as stopped and is passed over.
const STALE_NS: u64 = 1_000_000_000;
/// Divisor: a process with less than this part of the device waits as long as one with this part.
const SMALL_PART: u64 = 4;
/// A process whose heartbeat is older is stopped, and answers no question.
const SILENT_NS: u64 = 1_000_000_000;

/// The request of a queue ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Number of bytes.
    pub bytes: u64,
    /// The kind of request: an allocation, or memory that returns.
    pub kind: WantKind,
}

/// The use of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantKind {
    /// An allocation: within the process's quota, its group's and the device's limit. Whether the device itself has room
    /// the driver says.
    Allocation,
    /// The memory that the process had before an eviction, which must fit as a whole. It is reserved before the driver is
    /// called, within the limits of the group and the device and in the device's free memory less `margin`. From the poll that
    /// grants it until the ticket is dropped no other managed process takes that room.
    Return {
        /// For programs that are in no account.
        margin: u64,
    },
}

impl Want {
    /// Returns the bytes that have to stay free beside the memory.
    fn margin(&self) -> u64 {
        match self.kind {
            WantKind::Allocation => 0,
            WantKind::Return { margin } => margin,
        }
    }
}

/// The result of a poll.
#[must_use = "granted bytes that are dropped are given back"]
pub enum Poll<'r> {
    /// The bytes are ours. An allocation still has to be granted by the driver.
    Granted(Reservation<'r>),
    /// The ticket has to wait on.
    Wait,
    /// The request fails: there could never be room, the time is up, or no process is left to make room.
    Refused(Denial),
}

/// The result of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Without the bytes.
    GaveUp,
    /// The wait ended with the bytes granted.
    Granted,
    /// The wait was interrupted and goes on under another ticket.
    Interrupted,
}

/// A wait that has left the queue and continues there later ([`Ledger::enqueue_again`]).
#[must_use = "the wait counts when its last place is dropped"]
pub struct Interrupted {
    want: Want,
    denial: Denial,
    blocked: Blocked,
    began_ns: u64,
}

impl Interrupted {
    /// Returns the last refusal.
    pub fn denial(&self) -> Denial {
        self.denial
    }
}

/// A place in the queue, which [`Ledger::enqueue_return_at`] takes again.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    ticket: u64,
    began_ns: u64,
}

/// A ticket in the queue, until it is dropped. A process has at most one on a device.
pub struct QueueTicket<'r> {
    ledger: Ledger<'r>,
    want: Want,
    /// Bytes that the process has taken already, part by part.
    taken: Cell<u64>,
    position: Cell<Position>,
    began_ns: u64,
    until_ns: Cell<Option<u64>>,
    denial: Cell<Denial>,
    blocked: Cell<Blocked>,
    /// Bytes that all processes held when the driver last refused, and the time at which it is asked again at the latest.
    refused: Cell<Option<(u64, u64)>>,
    /// Time since which every process that holds memory waits; 0 while one does not.
    stalled_ns: Cell<u64>,
    /// True if no thread of this process could free memory.
    own_threads_wait: Cell<bool>,
    polled_ns: Cell<u64>,
    /// The value of the device's bell at the first poll since the last sleep.
    bell: Cell<Option<u32>>,
    ended: Cell<End>,
    /// True once the wait is counted and its event written: for returning memory not before a poll has found no room.
    announced: Cell<bool>,
    /// The processes that were asked to make room, or that make some.
    noticed: RefCell<Vec<overcommit::Noticed>>,
    _mine: MutexGuard<'r, ()>,
}

/// Another process in the queue.
struct Other {
    position: Position,
    /// Index + 1 of its group, 0 for none.
    group: u32,
    /// True for a process that waits for its memory to return.
    is_return: bool,
    /// True for a process that holds memory, and so may free some.
    holds: bool,
    /// Bytes that the process waits for.
    bytes: u64,
    /// Bytes that have to stay free beside them.
    margin: u64,
}

impl<'r> Ledger<'r> {
    /// Enqueues a request that was just denied. Waits while another thread of this process has a ticket.
    pub fn enqueue(&self, want: Want, denial: Denial, now_ns: u64) -> QueueTicket<'r> {
        self.enqueue_as(Blocked::by(denial.limit), want, denial, now_ns)
    }

    /// Enqueues a request that [comes after others](Self::blocked_by) in the same way.
    pub fn enqueue_behind(&self, want: Want, denial: Denial, now_ns: u64) -> QueueTicket<'r> {
        let blocked = match denial.limit {
            Limit::Device => Blocked::Behind,
            limit => Blocked::by(limit),
        };
        self.enqueue_as(blocked, want, denial, now_ns)
    }

    fn enqueue_as(
        &self,
        blocked: Blocked,
        want: Want,
        denial: Denial,
        now_ns: u64,
    ) -> QueueTicket<'r> {
        let place = self.take_ticket(want, denial, blocked, now_ns, self.lock_ticket());
        place.announce(now_ns);
        place
    }

    /// Enqueues a request for memory that returns and that no limit has refused: the wait counts from the first poll that finds
    /// no room.
    pub fn enqueue_return(&self, bytes: u64, margin: u64, now_ns: u64) -> QueueTicket<'r> {
        let want = Want {
            bytes,
            kind: WantKind::Return { margin },
        };
        let denial = Denial {
            limit: Limit::Device,
            used: self.used(),
            quota: self.total(),
            asked: bytes,
        };
        self.take_ticket(want, denial, Blocked::Device, now_ns, self.lock_ticket())
    }

    /// Enqueues memory that returns at the place that it had before it let others go first for a while. The wait before counts by
    /// itself.
    pub fn enqueue_return_at(
        &self,
        place: Place,
        bytes: u64,
        margin: u64,
        now_ns: u64,
    ) -> QueueTicket<'r> {
        let mut again = self.enqueue_return(bytes, margin, now_ns);
        again.position.get_mut().ticket = place.ticket;
        let (ticket, since) = (&self.words.line_ticket, &self.words.line_since);
        ticket.store(place.ticket, Ordering::Relaxed);
        since.store(place.began_ns, Ordering::Relaxed);
        again
    }

    /// Enqueues a wait again that was [interrupted](QueueTicket::interrupt): it continues, and counts once.
    pub fn enqueue_again(&self, wait: Interrupted, now_ns: u64) -> QueueTicket<'r> {
        let Interrupted {
            want,
            denial,
            blocked,
            began_ns,
        } = wait;
        let mut place = self.take_ticket(want, denial, blocked, now_ns, self.lock_ticket());
        place.began_ns = began_ns;
        // The process's lack of memory counts from there.
        let since = &self.words.line_since;
        since.store(began_ns, Ordering::Relaxed);
        place.announced.set(true);
        place
    }

    /// No other thread of this process has a place.
    fn lock_ticket(&self) -> MutexGuard<'r, ()> {
        let mine = self.limits.queued.lock();
        mine.unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues like [`enqueue`](Self::enqueue), unless another thread of this process has a ticket.
    pub fn try_enqueue(&self, want: Want, denial: Denial, now_ns: u64) -> Option<QueueTicket<'r>> {
        let mine = match self.limits.queued.try_lock() {
            Ok(mine) => mine,
            Err(std::sync::TryLockError::Poisoned(mine)) => mine.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        let place = self.take_ticket(want, denial, Blocked::by(denial.limit), now_ns, mine);
        place.announce(now_ns);
        Some(place)
    }

    fn take_ticket(
        &self,
        want: Want,
        denial: Denial,
        blocked: Blocked,
        now_ns: u64,
        mine: MutexGuard<'r, ()>,
    ) -> QueueTicket<'r> {
        let ticket = self.device.line_tickets.fetch_add(1, Ordering::Relaxed) + 1;
        let is_return = want.kind != WantKind::Allocation;
        crash_point!("line:numbered");
        for (word, value) in [
            (&self.words.line_ticket, ticket),
            (&self.words.line_since, now_ns),
            (&self.words.line_until, 0),
            (&self.words.line_pulse, now_ns),
            (&self.words.line_margin, want.margin()),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        self.words
            .line_limit
            .store(blocked.to_word(is_return), Ordering::Relaxed);
        // ORDER: Release, behind the words above; pairs with the Acquire in waiting: a reader that sees the bytes sees the
        // number.
        self.words
            .line_bytes
            .store(want.bytes.max(1), Ordering::Release);
        memory_queue::join(&self.device.line, self.slot_index());
        crash_point!("line:joined");
        QueueTicket {
            ledger: *self,
            want,
            taken: Cell::new(0),
            position: Cell::new(Position {
                priority: self.own_slot.share().priority,
                lack: 0,
                ticket,
                scope: self.scope(blocked),
            }),
            began_ns: now_ns,
            until_ns: Cell::new(None),
            denial: Cell::new(denial),
            blocked: Cell::new(blocked),
            refused: Cell::new(None),
            stalled_ns: Cell::new(0),
            own_threads_wait: Cell::new(false),
            polled_ns: Cell::new(0),
            bell: Cell::new(None),
            ended: Cell::new(End::GaveUp),
            announced: Cell::new(false),
            noticed: RefCell::default(),
            _mine: mine,
        }
    }

    /// Returns the limit that an earlier process waits for, which this process has to let go first. Processes that would wait
    /// call this before an allocation.
    pub fn blocked_by(&self, bytes: u64, now_ns: u64) -> Option<Denial> {
        let me = Position {
            priority: self.own_slot.share().priority,
            lack: 0,
            ticket: u64::MAX,
            scope: Scope::Device,
        };
        let group = self.own_slot.group();
        let first = (self.used() < bytes && !self.is_reserved(bytes)).then(|| {
            self.others(now_ns)
                .map(|other| other.position)
                .find(|other| other.precedes(&me) && other.blocks(group))
        });
        first.flatten().map(|first| Denial {
            limit: match first.scope {
                Scope::Group(_) => Limit::Group,
                Scope::Own | Scope::Device => Limit::Device,
            },
            used: self.used(),
            quota: self.device.total_bytes.load(Ordering::Relaxed),
            asked: bytes,
        })
    }

    /// Checks that there could ever be room for `bytes`. Otherwise returns the limit that refuses them.
    pub fn could_ever(&self, bytes: u64) -> Result<(), Denial> {
        let limits = self.limits();
        let total = self.device.total_bytes.load(Ordering::Relaxed);
        for (limit, quota) in [
            (Limit::Process, limits.quota),
            (Limit::Group, limits.group),
            (Limit::Device, limits.device.min(total)),
        ] {
            if bytes > quota {
                return Err(Denial {
                    limit,
                    used: self.used(),
                    quota,
                    asked: bytes,
                });
            }
        }
        Ok(())
    }

    /// Returns true if a process that finds the device full may have others evicted: the operator overcommitted the device, or
    /// turns include the memory.
    pub fn overcommits(&self) -> bool {
        self.eviction_rules().are_on()
    }

    /// Returns true if processes at work are evicted too, after their turn.
    pub fn has_memory_turns(&self) -> bool {
        self.eviction_rules().turn_ns(0).is_some()
    }

    /// Returns the rules by which processes are evicted for others on the device.
    pub fn eviction_rules(&self) -> EvictionRules {
        EvictionRules::of(
            self.own_slot.policy(self.entry).0,
            self.own_slot.overcommits(self.entry),
        )
    }

    /// Wakes the processes in the device's memory queue, so that they look again.
    pub fn wake_queued(&self) {
        self.device.wake_queued();
    }

    /// Returns true if a thread of this process waits in the device's memory queue.
    pub fn is_queued(&self) -> bool {
        self.words.line_bytes.load(Ordering::Relaxed) != 0
    }

    /// Returns true if a dead process has an account on the device. Its bytes can be given back.
    pub fn has_dead_members(&self) -> bool {
        let state = self.own_slot.segments().state();
        let mut found = false;
        state.each_member(usize::from(self.entry.device()), None, &mut |slot, _| {
            found |= liveness::mark_of(&slot.keeper) == Mark::Dead;
        });
        found
    }

    /// Returns true if a thread of this process waits for memory that other processes could give up.
    pub fn is_queued_for_others(&self) -> bool {
        waits_for_others(self.words)
    }

    fn scope(&self, blocked: Blocked) -> Scope {
        scope_of(blocked, self.own_slot.group())
    }

    /// Lists the other processes in the queue that count: alive, not stopped, not paused.
    fn others(&self, now_ns: u64) -> impl Iterator<Item = Other> + use<'_, 'r> {
        self.others_queued().filter_map(move |(id, slot, entry)| {
            let fresh = now_ns.saturating_sub(entry.line_pulse.load(Ordering::Relaxed)) < STALE_NS;
            if !fresh || liveness::mark_of(&slot.keeper) == Mark::Dead {
                return None;
            }
            let share: Share =
                self.own_slot
                    .shares()
                    .share_of(self.own_slot.segments(), id, slot, now_ns);
            let (_, is_return) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
            (!share.paused).then(|| Other {
                position: self.position_of(slot, entry, share.priority, now_ns),
                group: slot.group.load(Ordering::Relaxed),
                is_return,
                holds: entry.used.load(Ordering::Relaxed) != 0,
                bytes: growth_of(entry),
                margin: entry.line_margin.load(Ordering::Relaxed),
            })
        })
    }

    /// Returns the position of a process in the queue, as its words show it.
    fn position_of(
        &self,
        slot: &Slot,
        entry: &DeviceEntry,
        priority: i32,
        now_ns: u64,
    ) -> Position {
        let (blocked, _) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
        Position {
            priority,
            lack: self.lack_of(entry, now_ns),
            ticket: entry.line_ticket.load(Ordering::Relaxed),
            scope: scope_of(blocked, slot.group.load(Ordering::Relaxed)),
        }
    }

    /// Returns what a process in the queue has lacked, in MiB times milliseconds; 0 where the order is by ticket. A process that
    /// allocates lacks all that it holds besides, because it cannot use that either. Little memory counts like a [part](SMALL_PART) of
    /// the device: who is small, or is only starting, would otherwise wait for hours behind large processes that are always asked.
    fn lack_of(&self, entry: &DeviceEntry, now_ns: u64) -> u64 {
        if !self.overcommits() {
            return 0;
        }
        let words = [&entry.used, &entry.evicted, &entry.line_bytes];
        let bytes = words
            .map(|word| word.load(Ordering::Relaxed))
            .into_iter()
            .fold(0, u64::saturating_add)
            .clamp(self.total() / SMALL_PART, self.total());
        let waited_ns = now_ns.saturating_sub(entry.line_since.load(Ordering::Relaxed));
        (bytes >> 20).max(1).saturating_mul(waited_ns / 1_000_000)
    }

    fn others_queued(&self) -> impl Iterator<Item = (SlotId, &'r Slot, &'r DeviceEntry)> + use<'r> {
        let me = self.own_slot.slot();
        let state = self.own_slot.segments().state();
        // No gpushare process asks for more than there is. Such a request was forged and would wait for ever.
        let total = self.total();
        waiting(state, usize::from(self.entry.device()))
            .filter(move |(id, ..)| *id != me)
            .filter(move |(.., entry)| entry.line_bytes.load(Ordering::Relaxed) <= total)
    }

    /// Returns true if every process that holds bytes under this limit waits for bytes of others.
    fn is_stalled(&self, blocked: Blocked) -> bool {
        let group = match blocked {
            // Only its own threads could free any.
            Blocked::Quota => return false,
            Blocked::Group => Some(self.own_slot.group()),
            Blocked::Limit | Blocked::Device | Blocked::Behind => None,
        };
        let state = self.own_slot.segments().state();
        let device = usize::from(self.entry.device());
        let (mut all_wait, mut members, mut held) = (true, 0, 0_u64);
        state.each_member(device, group, &mut |slot, entry| {
            members += 1;
            let used = entry.used.load(Ordering::Relaxed);
            held = held.saturating_add(used);
            let waits = waits_for_others(entry);
            let lives = liveness::mark_of(&slot.keeper) != Mark::Dead;
            // One that holds nothing, and has reserved something, may end.
            let holds = used != 0 || granted(entry.reserve.load(Ordering::Relaxed)) != 0;
            all_wait &= !holds || lives && waits;
        });
        let foreign = self.outside().saturating_sub(members * CONTEXT_BYTES);
        all_wait && (blocked != Blocked::Device || foreign == 0)
    }
}

/// Returns true if a process waits for memory, and not only for room within its own quota.
fn waits_for_others(entry: &DeviceEntry) -> bool {
    let (blocked, _) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
    entry.line_bytes.load(Ordering::Relaxed) != 0 && blocked != Blocked::Quota
}

/// Returns the bytes that a process in the queue wants beyond what it has reserved.
fn growth_of(entry: &DeviceEntry) -> u64 {
    let [used, reserve, wanted] =
        [&entry.used, &entry.reserve, &entry.line_bytes].map(|word| word.load(Ordering::Relaxed));
    growth(used, granted(reserve), wanted)
}

fn scope_of(blocked: Blocked, group: u32) -> Scope {
    match blocked {
        Blocked::Quota => Scope::Own,
        Blocked::Group => Scope::Group(group),
        Blocked::Limit | Blocked::Device | Blocked::Behind => Scope::Device,
    }
}

/// Lists the processes in a device's memory queue that want bytes now.
pub(crate) fn waiting(
    state: &State,
    device: usize,
) -> impl Iterator<Item = (SlotId, &Slot, &DeviceEntry)> {
    let words = state.devices.get(device);
    let bits =
        std::array::from_fn(|at| words.map_or(0, |device| device.line[at].load(Ordering::Relaxed)));
    // ORDER: Acquire pairs with the Release in stand.
    lock::waiters(state, device, &bits)
        .filter(|(.., entry)| entry.line_bytes.load(Ordering::Acquire) != 0)
}

/// Returns the request that a process waits for on a device.
pub(crate) fn view(entry: &DeviceEntry) -> Option<MemoryWait> {
    // ORDER: Acquire pairs with the Release in stand.
    let bytes = entry.line_bytes.load(Ordering::Acquire);
    let (limit, is_return) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
    (bytes != 0).then(|| MemoryWait {
        bytes,
        limit,
        is_return,
        since_ns: entry.line_since.load(Ordering::Relaxed),
        until_ns: Some(entry.line_until.load(Ordering::Relaxed)).filter(|until| *until != 0),
        ticket: entry.line_ticket.load(Ordering::Relaxed),
    })
}

/// Wakes every waiting process, because the operator changed something.
pub(crate) fn nudge(state: &State) {
    state.devices.iter().for_each(Device::wake_queued);
}

/// Takes a slot that leaves (or is dead) out of a device's line.
pub(crate) fn withdraw(device: &Device, id: SlotId) {
    let slot = usize::from(id.index);
    memory_queue::leave(&device.promises, slot);
    memory_queue::leave(&device.line, slot);
}

impl Device {
    /// Wakes every process in the queue, so that it polls again.
    pub(crate) fn wake_queued(&self) {
        if bell::strike(&self.line_bell) {
            futex::wake(&self.line_bell, i32::MAX);
        }
    }
}

/// Measurements that processes on a device make for one whose memory returns to it. That process cannot call the driver yet, and
/// memory in no account (contexts, memory pools, unmanaged programs) may have taken the room.
impl Ledger<'_> {
    /// Returns true if another process waits for its memory to return to the device, or is about to restore it.
    pub fn is_return_under_way(&self) -> bool {
        let state = self.own_slot.segments().state();
        self.is_promised_elsewhere()
            || memory_queue::is_busy(&self.device.line)
                && waiting(state, usize::from(self.entry.device())).any(|(id, _, entry)| {
                    let (_, is_return) = Blocked::of_word(entry.line_limit.load(Ordering::Relaxed));
                    is_return && id != self.own_slot.slot()
                })
    }

    /// Returns true if another living process has its memory on the device, so that it can ask the driver for the free bytes.
    pub fn can_others_measure(&self) -> bool {
        let (state, now) = (self.own_slot.segments().state(), clock::now());
        let mut found = false;
        state.each_member(usize::from(self.entry.device()), None, &mut |slot, _| {
            let index = usize::from(self.own_slot.slot().index);
            let is_other = !std::ptr::eq(slot, &state.slots[index]);
            let beats = now.saturating_sub(slot.heartbeat_ns.load(Ordering::Relaxed)) < SILENT_NS;
            found |= is_other
                && beats
                && residence_of(slot).phase == Phase::Resident
                && liveness::mark_of(&slot.keeper) != Mark::Dead;
        });
        found
    }

    /// Returns true if a process has [published](Self::publish_free) the free bytes since then.
    pub fn is_measured_since(&self, at_ns: u64) -> bool {
        self.device.outside_ns.load(Ordering::Relaxed) > at_ns
    }

    /// Returns true if this process may take `bytes` that are in no account now. They must not take room that another process
    /// was promised.
    pub fn leaves_room_for_returns(&self, bytes: u64) -> bool {
        !self.is_promised_elsewhere() || self.has_room_beside(bytes)
    }

    /// Returns true if the device has room for all accounts, for the bytes outside them, and for `margin` more.
    pub fn has_room_beside(&self, margin: u64) -> bool {
        let held = self.held_together(None).saturating_add(margin);
        held.saturating_add(self.outside()) <= self.total()
    }
}
