//! A ticket in the queue: its polls, its sleep, and its end.

use super::{End, Interrupted, Ledger, Other, POLL_NS, Place, Poll, QueueTicket, WantKind};
use crate::{
    layout::state::DeviceEntry,
    memory::ledger::Reservation,
    os::futex,
    protocol::{
        crash::crash_point,
        memory_queue::{self, Position, Scope},
        primitive::Ordering,
    },
    value::{Blocked, Denial, Event, EventKind, Limit},
};

/// Least time between two polls, so that bytes that are given back in many pieces do not wake a process for each.
const BREATH_NS: u64 = 1_000_000;
/// Time for which every process that holds memory waits before the order is given up. After twice this time one is refused.
const STALL_NS: u64 = 1_000_000_000;
/// Time for which processes on an overcommitted device may all wait for each other before one is refused, in nanoseconds: those that
/// come first have the others evicted, and a refused call may end its program. Where others do not hold enough, one is refused as on
/// any device.
const EVICTIONS_NS: u64 = 30_000_000_000;
/// Time after which the driver is asked again, whatever the accounts say: unmanaged programs may have ended.
const ASK_AGAIN_NS: u64 = 1_000_000_000;
/// Time after which the driver is asked again where it reports much more free memory than was requested.
const ASK_SOON_NS: u64 = 100_000_000;

impl<'r> QueueTicket<'r> {
    /// Sets the end of the wait. A poll after that time grants or refuses.
    pub fn allow_until(&self, until_ns: Option<u64>) {
        self.until_ns.set(until_ns);
        let word = until_ns.map_or(0, |until| until.max(1));
        self.words().line_until.store(word, Ordering::Relaxed);
    }

    /// Since when it is there.
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Returns its place in the queue.
    pub fn place(&self) -> Place {
        Place {
            ticket: self.position.get().ticket,
            began_ns: self.began_ns,
        }
    }

    /// Returns the last refusal.
    pub fn denial(&self) -> Denial {
        self.denial.get()
    }

    /// Returns true if the time is up.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns.get().is_some_and(|until| until <= now_ns)
    }

    /// Records that the driver refused although the accounts had room, or refused at first. The driver is asked again when more
    /// is free than now, and at intervals.
    pub fn refused_by_device(&self, now_ns: u64) {
        let again_ns = now_ns.saturating_add(ASK_AGAIN_NS);
        self.refused.set(Some((self.held_by_all(), again_ns)));
        self.denial.set(Denial {
            limit: Limit::Device,
            used: self.held_by_all(),
            quota: self.total(),
            asked: self.wanted(),
        });
        self.set_blocked(Blocked::Device);
        if self.want.kind != WantKind::Allocation {
            // The bytes that were promised by the granting poll are wanted again.
            self.want_whole();
        }
        self.announce(now_ns);
    }

    /// Has the driver asked again soon, because it reported much free memory when it refused.
    pub fn ask_again_soon(&self, now_ns: u64) {
        if let Some((held, _)) = self.refused.get() {
            let again_ns = now_ns.saturating_add(ASK_SOON_NS);
            self.refused.set(Some((held, again_ns)));
        }
    }

    /// Returns the bytes that are still wanted.
    pub(super) fn wanted(&self) -> u64 {
        self.want.bytes.saturating_sub(self.taken.get())
    }

    /// Records that no bytes are taken: what was taken is wanted again.
    fn want_whole(&self) {
        self.taken.set(0);
        self.ledger.keep_promise();
        let wanted = self.want.bytes.max(1);
        self.words().line_bytes.store(wanted, Ordering::Relaxed);
    }

    /// Takes a part of memory that returns, if it is this ticket's turn and there is room. Until [`give_back`](Self::give_back) or
    /// the end of the wait no process measures what is in no account, so the caller publishes first that it restores its memory.
    pub fn take_part(&self, bytes: u64, now_ns: u64) -> Option<Reservation<'r>> {
        self.begin_poll(now_ns);
        if self.ledger.own_slot.share().paused || !self.is_my_turn(now_ns) {
            return None;
        }
        // Before the sums: see protocol::line.
        self.ledger.promise();
        crash_point!("line:promised");
        let part = self.ledger.reserve_return(bytes, self.want.margin()).ok();
        match &part {
            Some(_) => {
                self.taken.set(self.taken.get().saturating_add(bytes));
                let wanted = self.wanted();
                self.words().line_bytes.store(wanted, Ordering::Relaxed);
                crash_point!("line:taken");
            }
            None if self.taken.get() == 0 => self.ledger.keep_promise(),
            None => {}
        }
        part
    }

    /// Gives a part back that the driver had no room for, and wants it again: what is in no account was larger than was known.
    pub fn put_back(&self, part: Reservation<'r>, bytes: u64) {
        self.taken.set(self.taken.get().saturating_sub(bytes));
        let wanted = self.wanted();
        // First the want, so that the bytes count twice for a moment, and not for neither.
        self.words().line_bytes.store(wanted, Ordering::Relaxed);
        crash_point!("line:put-back");
        drop(part);
        if self.taken.get() == 0 {
            self.ledger.keep_promise();
        }
    }

    /// Wants everything again, after the caller has dropped all parts.
    pub fn give_back(&self) {
        self.want_whole();
        self.ledger.device.wake_queued();
    }

    /// Records whether no thread of this process could free memory: each waits for some, or for a thread that does. The caller
    /// sets this before a poll while the process's own quota is what it lacks.
    pub fn own_threads_wait(&self, they_do: bool) {
        self.own_threads_wait.set(they_do);
    }

    /// Polls once: takes the bytes if it is this ticket's turn and there is room.
    pub fn poll(&self, now_ns: u64) -> Poll<'r> {
        self.begin_poll(now_ns);
        if self.want.kind == WantKind::Allocation
            && let Err(denial) = self.ledger.could_ever(self.want.bytes)
        {
            return Poll::Refused(denial);
        }
        let share = self.ledger.own_slot.share();
        let over = self.is_over(now_ns);
        if share.paused && !over {
            // The operator ends that, and what follows is seen anew.
            self.stalled_ns.set(0);
            return Poll::Wait;
        }
        let stalled_for = self.watch_stall(now_ns);
        if (over || stalled_for >= STALL_NS || self.is_my_turn(now_ns))
            && (over || self.is_worth_asking(now_ns))
        {
            match self.take() {
                Ok(reservation) => {
                    crash_point!("line:taken");
                    return Poll::Granted(reservation);
                }
                Err(denial) => {
                    self.denial.set(denial);
                    // A refusal of the driver may stand, because the accounts are behind.
                    if self.refused.get().is_none() || denial.limit != Limit::Device {
                        self.set_blocked(self.what_blocks(&denial));
                    }
                }
            }
        }
        if over || self.is_hopeless(stalled_for, now_ns) {
            return Poll::Refused(self.denial.get());
        }
        self.announce(now_ns);
        Poll::Wait
    }

    /// Shows that this process polls, and updates its position. Whatever changes after the first poll behind a sleep ends the next
    /// one.
    pub(super) fn begin_poll(&self, now_ns: u64) {
        self.polled_ns.set(now_ns);
        self.words().line_pulse.store(now_ns, Ordering::Relaxed);
        if self.bell.get().is_none() {
            // Before the sums: bytes that are given back after them change the word.
            let heard = memory_queue::listen(&self.ledger.device.line_bell);
            self.bell.set(Some(heard));
        }
        self.position.set(Position {
            priority: self.ledger.own_slot.share().priority,
            lack: self.ledger.lack_of(self.words(), now_ns),
            ..self.position.get()
        });
    }

    /// Returns the limit to report for a refusal: the device's limit, or the device itself where it has less room than the
    /// limit leaves.
    fn what_blocks(&self, denial: &Denial) -> Blocked {
        match denial.limit {
            Limit::Device if denial.quota < self.ledger.limits().device => Blocked::Device,
            limit => Blocked::by(limit),
        }
    }

    /// Counts the wait, once.
    pub(super) fn announce(&self, now_ns: u64) {
        if !self.announced.replace(true) {
            let blocked = self.blocked.get().code();
            let (wait, wanted) = (EventKind::MemoryWait, self.want.bytes);
            self.ledger.publish(wait, wanted, blocked.into(), now_ns);
        }
    }

    /// Sleeps until memory is given back, an operator changes something, or it is time for the next poll.
    pub fn sleep(&self, now_ns: u64) {
        let mut timeout = POLL_NS;
        if let Some(until) = self.until_ns.get() {
            timeout = timeout.min(until.saturating_sub(now_ns).max(BREATH_NS));
        }
        if let Some(heard) = self.bell.take() {
            futex::wait(&self.ledger.device.line_bell, heard, timeout);
        }
        let passed = crate::os::clock::now().saturating_sub(self.polled_ns.get());
        if passed < BREATH_NS {
            // No process wakes this word.
            let never = crate::protocol::primitive::AtomicU32::new(0);
            futex::wait(&never, 0, BREATH_NS - passed);
        }
    }

    /// Looks and sleeps until the bytes are ours or it will not be; `give_up` is asked at each look.
    pub fn wait(&self, give_up: &dyn Fn() -> bool) -> Result<Reservation<'r>, Denial> {
        loop {
            let now = crate::os::clock::now();
            match self.poll(now) {
                Poll::Granted(reservation) => return Ok(reservation),
                Poll::Refused(denial) => return Err(denial),
                Poll::Wait if give_up() => return Err(self.denial.get()),
                Poll::Wait => self.sleep(now),
            }
        }
    }

    /// Ends the wait with success: the process got the memory.
    pub fn complete(&self) {
        self.ended.set(End::Granted);
    }

    /// Leaves the queue for now, neither granted nor refused.
    pub fn interrupt(self) -> Interrupted {
        self.ended.set(End::Interrupted);
        Interrupted {
            want: self.want,
            denial: self.denial.get(),
            blocked: self.blocked.get(),
            began_ns: self.began_ns,
        }
    }

    fn words(&self) -> &'r DeviceEntry {
        self.ledger.words
    }

    pub(super) fn total(&self) -> u64 {
        self.ledger.total()
    }

    pub(super) fn held_by_all(&self) -> u64 {
        self.ledger.held_together(None)
    }

    fn set_blocked(&self, blocked: Blocked) {
        self.blocked.set(blocked);
        let mut position = self.position.get();
        position.scope = self.ledger.scope(blocked);
        self.position.set(position);
        let is_return = self.want.kind != WantKind::Allocation;
        self.words()
            .line_limit
            .store(blocked.to_word(is_return), Ordering::Relaxed);
    }

    pub(super) fn is_my_turn(&self, now_ns: u64) -> bool {
        let mine = self.position.get();
        let inhabits =
            self.want.kind == WantKind::Allocation && self.ledger.used() >= self.want.bytes;
        inhabits || self.ledger.is_reserved(self.want.bytes) || {
            let others = self.ledger.others(now_ns).map(|other| other.position);
            memory_queue::is_next(&mine, self.ledger.own_slot.group(), others)
        }
    }

    /// Returns true if the driver, which has refused, may grant the request by now.
    pub(super) fn is_worth_asking(&self, now_ns: u64) -> bool {
        let Some((held_then, again_ns)) = self.refused.get() else {
            return true;
        };
        let held = self.held_by_all();
        let filled = held
            .saturating_add(self.want.bytes)
            .saturating_add(self.ledger.outside());
        held < held_then && filled <= self.total() || now_ns >= again_ns
    }

    fn take(&self) -> Result<Reservation<'r>, Denial> {
        match self.want.kind {
            WantKind::Allocation => self.ledger.reserve(self.want.bytes),
            WantKind::Return { margin } => {
                // Before the sums: see protocol::line.
                self.ledger.promise();
                crash_point!("line:promised");
                let taken = self.ledger.reserve_return(self.want.bytes, margin);
                match &taken {
                    // The bytes that it wanted are reserved; it no longer delays the processes behind it.
                    Ok(_) => self.words().line_bytes.store(0, Ordering::Relaxed),
                    Err(_) => self.ledger.keep_promise(),
                }
                taken
            }
        }
    }

    /// Returns for how long every process that holds the missing bytes has waited itself, so that none could free them.
    fn watch_stall(&self, now_ns: u64) -> u64 {
        let is_stalled = match self.blocked.get() {
            Blocked::Quota => self.own_threads_wait.get(),
            shared => self.ledger.is_stalled(shared),
        };
        let since = match self.stalled_ns.get() {
            _ if !is_stalled => 0,
            0 => now_ns,
            since => since,
        };
        self.stalled_ns.set(since);
        if since == 0 {
            0
        } else {
            now_ns.saturating_sub(since)
        }
    }

    /// Returns true if the request is to be refused after a stall, so that others can go on.
    fn is_hopeless(&self, stalled_ns: u64, now_ns: u64) -> bool {
        if self.want.kind != WantKind::Allocation || stalled_ns < 2 * STALL_NS {
            return false;
        }
        if stalled_ns < EVICTIONS_NS && self.is_with_others() {
            return false;
        }
        // The refusal of a process that holds nothing would free nothing. Where none holds anything, the wait is for nothing.
        let helps = self.ledger.used() > 0 || self.held_by_all() == 0;
        helps && self.is_last(now_ns)
    }

    /// Returns true if no later request is queued whose refusal would let its process go on and free the missing bytes.
    fn is_last(&self, now_ns: u64) -> bool {
        let mine = self.position.get();
        let may_help = |other: &Other| match mine.scope {
            Scope::Own => false,
            Scope::Group(group) => other.group == group && other.position.scope != Scope::Own,
            Scope::Device => other.position.scope != Scope::Own,
        };
        !self.ledger.others(now_ns).any(|other| {
            other.position.ticket > mine.ticket
                && other.holds
                && !other.is_return
                && may_help(&other)
        })
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let now = crate::os::clock::now();
        let waited = now.saturating_sub(self.began_ns);
        self.words().line_bytes.store(0, Ordering::Relaxed);
        // An allocation marks nothing: the mark may be that of memory of this process that leaves.
        if self.want.kind != WantKind::Allocation {
            self.ledger.keep_promise();
        }
        memory_queue::leave(&self.ledger.device.line, self.ledger.slot_index());
        crash_point!("line:left");
        self.ledger.device.wake_queued();
        if self.announced.get() && self.ended.get() != End::Interrupted {
            let granted = self.ended.get() == End::Granted;
            self.ledger.count_wait(waited, granted, now);
        }
    }
}

impl Ledger<'_> {
    /// Ends a wait that was [interrupted](QueueTicket::interrupt) and does not go on, because the memory was got outside of the
    /// queue or is not wanted any more.
    pub fn end_interrupted(&self, wait: &Interrupted, granted: bool, now_ns: u64) {
        let waited = now_ns.saturating_sub(wait.began_ns);
        self.count_wait(waited, granted, now_ns);
    }

    fn count_wait(&self, waited: u64, granted: bool, now_ns: u64) {
        let counters = &self.words.counters;
        counters.memory_waits.fetch_add(1, Ordering::Relaxed);
        counters
            .memory_waited_ns
            .fetch_add(waited, Ordering::Relaxed);
        if !granted {
            counters.memory_gave_up.fetch_add(1, Ordering::Relaxed);
        }
        let (done, granted) = (EventKind::MemoryDone, u64::from(granted));
        self.publish(done, waited, granted, now_ns);
    }

    fn publish(&self, kind: EventKind, arg0: u64, arg1: u64, now_ns: u64) {
        self.own_slot.segments().state().publish(Event {
            device: self.entry.device(),
            arg0,
            arg1,
            ..Event::of(now_ns, self.own_slot.slot(), kind)
        });
    }
}
