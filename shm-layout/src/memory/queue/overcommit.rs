//! Eviction on request, on a device whose memory is promised more than once (overcommit). A process that waits for memory asks
//! others to evict theirs.
//!
//! ```text
//!   the process that lacks memory                 the process that is asked
//!   looks at the others, chooses, asks  ───────▶  its keeper wakes, and looks until
//!   sleeps on the queue's bell                    · nothing was requested for `evict-idle`, and all work is done
//!                                                 · it has been back for `stay`
//!   takes the bytes  ◀──────────────────────────  evicts while a process still lacks room, or publishes a reason
//! ```
//!
//! The asked process decides. It drops a request when no process that may have its room lacks any ([`Ledger::is_room_lacking`]), so a
//! request that another tenant writes has no effect by itself. A request is repeated while it is needed.
//!
//! Of the processes that could go at once those are asked whose return costs least in expectation: their bytes, times how often they
//! are used. If they are not enough, all others that could go later are asked, and each goes when it is idle. No process is asked
//! if all together have too little.
//!
//! Memory reserved for a process or its group stays free for it while it is evicted, so only bytes beyond a reserve make room for
//! others.
//!
//! Where memory has turns (`swap=on`, `turn=T`) a process at work goes as well once its turn is over. A process that waits for memory
//! behind the asking one goes at once: otherwise two processes that grow would wait for each other.

mod choose;

use super::{CONTEXT_BYTES, EvictionRules, Ledger, Other, QueueTicket, WantKind, waits_for_others};
use crate::{
    layout::state::{DeviceEntry, Slot},
    lock,
    memory::{ask_to_evict, residence_of},
    os::liveness::{self, Mark},
    protocol::{account::granted, claim, memory_queue::Scope, primitive::Ordering},
    value::{Blocked, Phase, Residence, SlotId, Why},
};

use choose::{Candidate, When, bytes_moved, bytes_of, choose, cost};

/// Time after which a request is repeated, in nanoseconds.
pub const ASK_AGAIN_NS: u64 = 250_000_000;
/// Time in which a process that was asked has to answer: it evicts, or gives a reason. After that it counts as stopped.
const ANSWER_NS: u64 = 3_000_000_000;
/// Time for which an allocation that does not wait by itself waits for processes that are asked and still at work.
const GRACE_NS: u64 = 3_000_000_000;
/// Longest time for which one process's evictions are waited for, in nanoseconds. Another tenant may only pretend to evict.
const EVICTION_NS: u64 = 60_000_000_000;
/// Divisor of the device's memory: the most that is kept free for what a process has in no account, such as its context.
const SPARE: u64 = 32;
/// Divisor: memory that returns leaves this part of that free. Its process has its context already, and only loads modules.
const SPARE_OF_RETURNS: u64 = 4;
/// Least bytes of physical memory that the driver gives and takes (580.159.04).
const GRANULE: u64 = 2 << 20;
/// Time after its registration in which a process makes its context and loads its first modules, in nanoseconds.
const STARTS_NS: u64 = 10_000_000_000;

/// The result of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// No process is asked: the device is not overcommitted, or the limit that refuses is not the device's.
    Off,
    /// There is room, others are on their way out, or were asked.
    Coming,
    /// No processes can make enough room.
    Nobody,
}

/// A process that the ticket has asked, or has seen on its way out.
#[derive(Clone, Copy)]
pub(super) struct Noticed {
    id: SlotId,
    /// Time of the last request; 0 for none.
    asked_ns: u64,
    /// Time since which the process has not answered.
    silent_ns: u64,
    /// Time when it was first seen on its way out; 0 for never.
    evicting_ns: u64,
}

impl QueueTicket<'_> {
    /// Asks other processes for the room that is missing, where the operator has overcommitted the device. To be called at
    /// each look, until there is room.
    pub fn make_room(&self, now_ns: u64) -> Room {
        if !self.may_be_given_room() {
            return Room::Off;
        }
        let spare = match self.want.kind {
            WantKind::Allocation => self.ledger.headroom(now_ns),
            WantKind::Return { .. } => 0,
        };
        if self.missing(spare) == 0 && self.is_worth_asking(now_ns) {
            return Room::Coming;
        }
        // Before the sums: bytes that leave in between would count neither as coming nor as free, and a second process would be asked.
        let candidates = self.candidates(now_ns);
        let own = self.missing(0).max(1);
        let potential = bytes_of(&candidates, |_| true);
        if potential < own {
            return Room::Nobody;
        }
        // Earlier processes in the queue take what comes first.
        let before = self.wanted_before(now_ns).saturating_add(spare);
        let missing = self.missing(before).clamp(own, potential);
        let coming = bytes_of(&candidates, |when| when == When::Coming);
        if coming >= missing {
            return Room::Coming;
        }
        let goes_now = bytes_of(&candidates, |when| when == When::Now);
        let of = |when| {
            let all = candidates.iter().filter(move |one| one.when == when);
            all.copied().collect::<Vec<_>>()
        };
        if coming.saturating_add(goes_now) >= missing {
            self.ask(&choose(of(When::Now), missing - coming), now_ns);
            return Room::Coming;
        }
        let later = of(When::Later);
        self.ask(&later, now_ns);
        if later.iter().any(|one| one.too_soon) {
            let word = &self.ledger.device.crowded_ns;
            word.store(now_ns, Ordering::Relaxed);
        }
        let waited_ns = now_ns.saturating_sub(self.began_ns);
        match self.ledger.has_memory_turns() {
            false if waited_ns >= GRACE_NS => Room::Nobody,
            _ => Room::Coming,
        }
    }

    /// Returns true if the eviction of others could help: the operator has overcommitted the device, and the device is what lacks room.
    fn may_be_given_room(&self) -> bool {
        let is_full = !matches!(self.blocked.get(), Blocked::Quota | Blocked::Group);
        is_full && self.ledger.overcommits()
    }

    /// Returns true if what is missing is with others, who may be evicted. Otherwise a limit refuses it, or the device does not have
    /// it: contexts and programs that are in no account take the rest.
    pub(super) fn is_with_others(&self) -> bool {
        let others = self.ledger.other_members();
        let held = others
            .filter(|(_, slot, _)| may_leave(&residence_of(slot)))
            .fold(0, |sum: u64, (.., entry)| {
                sum.saturating_add(spare_of(entry))
            });
        self.may_be_given_room() && held >= self.missing(0).max(GRANULE)
    }

    fn ask(&self, chosen: &[Candidate], now_ns: u64) {
        for candidate in chosen {
            let asks = self.notice(candidate.id, now_ns, |one| {
                let asks = now_ns.saturating_sub(one.asked_ns) >= ASK_AGAIN_NS;
                if asks {
                    one.asked_ns = now_ns;
                }
                asks
            });
            if asks {
                ask_to_evict(self.ledger.own_slot.segments(), candidate.id, now_ns);
            }
        }
    }

    /// Applies a step to what the ticket knows of a process.
    fn notice<T>(&self, id: SlotId, now_ns: u64, step: impl FnOnce(&mut Noticed) -> T) -> T {
        let mut noticed = self.noticed.borrow_mut();
        if let Some(known) = noticed.iter_mut().find(|one| one.id == id) {
            return step(known);
        }
        let mut new = Noticed {
            id,
            asked_ns: 0,
            silent_ns: now_ns,
            evicting_ns: 0,
        };
        let result = step(&mut new);
        noticed.push(new);
        result
    }

    /// Returns true if it is this ticket's turn and as much as is missing is on its way out of the device, so that the process
    /// may [take parts](Self::take_part), and keep those that it has.
    pub fn is_room_leaving(&self, now_ns: u64) -> bool {
        self.begin_poll(now_ns);
        let expected = |id| self.is_expected(id, now_ns);
        let leaving = self.ledger.leaving_bytes(expected);
        leaving != 0 && leaving >= self.missing(0) && self.is_my_turn(now_ns)
    }

    /// Returns how many bytes have to leave the device before the request fits behind `before` bytes of others.
    fn missing(&self, before: u64) -> u64 {
        let limits = match self.want.kind {
            WantKind::Allocation => self.ledger.limits(),
            WantKind::Return { .. } => self.ledger.return_limits(self.wanted()),
        };
        let claimed = self.ledger.claimed_together();
        claimed
            .saturating_add(self.ledger.growth(self.wanted()))
            .saturating_add(before)
            .saturating_sub(self.ledger.card(self.want.margin()).min(limits.device))
    }

    /// Returns how many bytes of the device the processes wait for that come before this one.
    fn wanted_before(&self, now_ns: u64) -> u64 {
        let mine = self.position.get();
        let others = self.ledger.others_for_device(now_ns);
        others
            .filter(|other| other.position.precedes(&mine))
            .fold(0, |sum, other| sum.saturating_add(other.bytes))
    }

    fn candidates(&self, now_ns: u64) -> Vec<Candidate> {
        let rules = self.ledger.eviction_rules();
        let groups = self.ledger.group_reserves();
        let mut spare = self.ledger.beyond_reserves(&groups);
        let members = self.ledger.other_members();
        let candidates = members.filter_map(|(id, slot, entry)| {
            let number = slot.group.load(Ordering::Relaxed);
            let of_group = groups.iter().position(|group| group.number == number);
            let of_group = of_group.filter(|_| number != 0);
            Some((of_group, self.candidate(id, slot, entry, &rules, now_ns)?))
        });
        let mut candidates: Vec<_> = candidates.collect();
        // Only what a group has beyond its reserve makes room for others: the cheapest members first.
        candidates.sort_by_key(|(_, candidate)| candidate.cost);
        let within = candidates.into_iter().map(|(of_group, mut candidate)| {
            if let Some(left) = of_group.and_then(|index| spare.get_mut(index)) {
                candidate.bytes = candidate.bytes.min(*left);
                *left -= candidate.bytes;
            }
            candidate
        });
        within.filter(|candidate| candidate.bytes != 0).collect()
    }

    /// Returns a process as a candidate, or `None` if it does not go for this ticket.
    fn candidate(
        &self,
        id: SlotId,
        slot: &Slot,
        entry: &DeviceEntry,
        rules: &EvictionRules,
        now_ns: u64,
    ) -> Option<Candidate> {
        let own_slot = self.ledger.own_slot;
        let share = own_slot
            .shares()
            .share_of(own_slot.segments(), id, slot, now_ns);
        let residence = residence_of(slot);
        let present_ns = now_ns.saturating_sub(residence.since_ns);
        let unused_ns = match share.paused {
            true => u64::MAX,
            false => now_ns.saturating_sub(residence.used_ns),
        };
        let is_idle = unused_ns >= rules.idle_ns();
        let too_soon = present_ns < rules.stay_ns(residence.swap_ns);
        let may_go = !share.pinned && share.priority <= own_slot.share().priority;
        let when = match residence.phase {
            Phase::Evicting => self.is_expected(id, now_ns).then_some(When::Coming),
            _ if !may_go => None,
            // Its promised bytes are in its account before they are on the device.
            Phase::Returning | Phase::Restoring => Some(When::Later),
            // It has left as far as room was lacking.
            Phase::Evicted if residence.is_in_part => self.answer(id, &residence, now_ns),
            Phase::Evicted | Phase::Lost => None,
            Phase::Resident => {
                let turn = rules.turn_ns(residence.swap_ns);
                let position = self.ledger.position_of(slot, entry, share.priority, now_ns);
                let waits = waits_for_others(entry);
                match self.answer(id, &residence, now_ns) {
                    Some(When::Now) if waits => match self.position.get().precedes(&position) {
                        true => Some(When::Now),
                        // It has its turn once it has the memory that it waits for.
                        false => turn.map(|_| When::Later),
                    },
                    Some(When::Now) if too_soon => Some(When::Later),
                    Some(When::Now) => match is_idle || turn.is_some_and(|turn| present_ns >= turn)
                    {
                        true => Some(When::Now),
                        false => Some(When::Later),
                    },
                    answer => answer,
                }
            }
        }?;
        // A process's reserve stays reserved while it is evicted.
        let bytes = spare_of(entry);
        // A long unused process is not expected soon, however often it was used before.
        let every_ns = entry.gap_ns.load(Ordering::Relaxed).max(unused_ns / 2);
        // A process that has never left pays for its copy at its first eviction, whenever that is.
        let moved = match residence.swap_ns {
            0 => bytes,
            _ => bytes_moved(bytes, residence.host_bytes),
        };
        (bytes != 0).then_some(Candidate {
            id,
            when,
            too_soon,
            bytes,
            cost: match is_idle {
                true => (0, cost(moved, every_ns)),
                // Of the processes at work, the one that has been there longest.
                false => (1, cost(bytes, present_ns)),
            },
        })
    }

    /// Returns when a process with its memory on the device goes, by what it has answered: [`When::Now`] if it was not asked.
    /// `None` if it has refused, or does not answer.
    fn answer(&self, id: SlotId, residence: &Residence, now_ns: u64) -> Option<When> {
        use Why::{Busy, Capturing, CardFull, Locked, TooSoon, Wanted};
        match residence.why {
            Some(Busy | Capturing | CardFull | Locked | TooSoon | Wanted) => {
                self.notice(id, now_ns, |one| one.silent_ns = now_ns);
                Some(When::Later)
            }
            Some(_) => None,
            None => self.notice(id, now_ns, |one| {
                let silent_ns = now_ns.saturating_sub(one.silent_ns);
                // Not asked yet, or what it was asked for is over: it has moved since, or was asked long ago.
                if one.asked_ns < residence.since_ns.max(1) || silent_ns >= 2 * ANSWER_NS {
                    (one.asked_ns, one.silent_ns) = (0, now_ns);
                    return Some(When::Now);
                }
                (silent_ns < ANSWER_NS).then_some(When::Coming)
            }),
        }
    }

    /// Returns true if the eviction of a process is still waited for.
    fn is_expected(&self, id: SlotId, now_ns: u64) -> bool {
        self.notice(id, now_ns, |one| {
            if one.evicting_ns == 0 {
                one.evicting_ns = now_ns;
            }
            now_ns.saturating_sub(one.evicting_ns) < EVICTION_NS
        })
    }
}

/// Returns true if an eviction could move what a process has on the device: it has not left yet, or only in part.
fn may_leave(residence: &Residence) -> bool {
    match residence.phase {
        Phase::Evicted | Phase::Returning => residence.is_in_part,
        phase => phase != Phase::Lost,
    }
}

/// Returns the bytes that the device has for others once a process is evicted.
fn spare_of(entry: &DeviceEntry) -> u64 {
    let reserved = granted(entry.reserve.load(Ordering::Relaxed));
    let used = entry.used.load(Ordering::Relaxed);
    used.saturating_sub(reserved)
}

/// The requests of several processes in the queue together.
#[derive(Default)]
struct Wanted {
    bytes: u64,
    /// The most that one of them needs free beside its bytes. Otherwise a process would leave until all bytes fit, and the process
    /// that waits for them would not return.
    margin: u64,
}

impl Wanted {
    fn and(self, other: Other) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            margin: self.margin.max(other.margin),
        }
    }
}

impl<'r> Ledger<'r> {
    /// Returns true if processes in the queue lack room that this process's memory could give them: of no lower priority, and if this
    /// process waits itself, those before it. Bytes on their way out count as room unless `ignores_evictions`.
    pub fn is_room_lacking(&self, ignores_evictions: bool, now_ns: u64) -> bool {
        let (slot, priority) = (self.own_slot.words(), self.own_slot.share().priority);
        let mine = self.position_of(slot, self.words, priority, now_ns);
        let waits = self.is_queued_for_others();
        let (group, is_beyond) = (self.own_slot.group(), self.is_beyond_group_reserve());
        // The leaving bytes are read first and the wanted ones last: a part that moves in between counts as neither, not as both.
        let leaving = match ignores_evictions {
            true => 0,
            false => self.leaving_bytes(|_| true),
        };
        let held = self.claimed_together().saturating_sub(leaving);
        let wanted = self
            .others(now_ns)
            .filter(|other| is_beyond || other.group == group)
            .filter(|other| {
                let position = &other.position;
                position.scope == Scope::Device && position.priority >= priority
            })
            .filter(|other| !waits || other.position.precedes(&mine))
            .fold(Wanted::default(), Wanted::and);
        if wanted.bytes == 0 || self.used() <= self.reserved() {
            return false;
        }
        let spare = self.spare(now_ns).max(wanted.margin);
        held.saturating_add(wanted.bytes) > self.card(spare).min(self.limits().device)
    }

    /// Returns true if a process waits for room of the device, whatever its priority.
    pub fn is_waited_for(&self, now_ns: u64) -> bool {
        self.others_for_device(now_ns).next().is_some()
    }

    /// Returns true if those in the queue that lack room of the device wait for memory that returns: they want all of it at once, while
    /// a program that allocates goes on to want more.
    pub fn is_wanted_for_returns(&self, now_ns: u64) -> bool {
        let mut lacking = self.others_for_device(now_ns).peekable();
        lacking.peek().is_some() && lacking.all(|other| other.is_return)
    }

    /// Returns true if the device has room for all that wait for some, and beside that for what is in no account.
    pub fn has_room_for_all(&self, now_ns: u64) -> bool {
        // The wanted bytes are read last: a part that moves in between counts twice.
        let spare = self.headroom_with(self.spare(now_ns), now_ns);
        let held = self.claimed_together();
        let wanted = self
            .others_for_device(now_ns)
            .fold(Wanted::default(), Wanted::and);
        let most = self.card(spare.max(wanted.margin));
        held.saturating_add(wanted.bytes) <= most.min(self.limits().device)
    }

    /// Lists the other processes in the queue that lack room of the device, and not within a limit of their own or their group's.
    fn others_for_device(&self, now_ns: u64) -> impl Iterator<Item = Other> + use<'_, 'r> {
        let others = self.others(now_ns);
        others.filter(|other| other.position.scope == Scope::Device)
    }

    /// Returns the bytes that allocations leave free on an overcommitted device, where others can make room: for what is in no
    /// account, such as contexts and modules, and as much again for each process that has just started and holds nothing yet.
    pub fn headroom(&self, now_ns: u64) -> u64 {
        self.headroom_with(self.spare_each(), now_ns)
    }

    /// Returns the [headroom](Self::headroom) with `spare` bytes for the processes that hold memory.
    fn headroom_with(&self, spare: u64, now_ns: u64) -> u64 {
        if !self.overcommits() || self.other_members().next().is_none() {
            return 0;
        }
        let device = usize::from(self.entry.device());
        let slots = self.own_slot.segments().state().slots.iter();
        let starting = slots.filter(|slot| {
            let began_ns = slot.registered_ns.load(Ordering::Relaxed);
            let holds = |entry: &DeviceEntry| {
                let words = [&entry.used, &entry.evicted];
                words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
            };
            claim::live(&slot.claim).is_some()
                && now_ns.saturating_sub(began_ns) < STARTS_NS
                && !lock::entry_on(slot, device).is_some_and(holds)
        });
        let of_starting = self.spare_each().saturating_mul(starting.count() as u64);
        let all = spare.saturating_add(of_starting);
        // Also where many processes start and hold nothing.
        all.min(self.total() / 4)
    }

    /// Returns the bytes that stay free beside the memory that the others in the queue get.
    fn spare(&self, now_ns: u64) -> u64 {
        match self.is_wanted_for_returns(now_ns) {
            true => self.spare_each() / SPARE_OF_RETURNS,
            false => self.spare_each(),
        }
    }

    /// Returns the bytes that are kept free for what one process has in no account.
    fn spare_each(&self) -> u64 {
        (self.total() / SPARE).min(CONTEXT_BYTES)
    }

    /// Returns the bytes of other processes that are on their way out of the device and make room.
    fn leaving_bytes(&self, is_expected: impl Fn(SlotId) -> bool) -> u64 {
        let members = self.other_members();
        let leaving = members.filter(|(id, slot, _)| {
            residence_of(slot).phase == Phase::Evicting && is_expected(*id)
        });
        leaving
            .map(|(.., entry)| spare_of(entry))
            .fold(0, u64::saturating_add)
    }

    /// Returns true if memory of another process is on the host in place of the device. Under a broker any tenant may have written
    /// this word, so it is only good for preparations.
    pub fn is_outgrown(&self) -> bool {
        let mut others = self.other_entries();
        others.any(|(.., entry)| entry.evicted.load(Ordering::Relaxed) != 0)
    }

    /// Lists the other living processes that hold bytes on the device.
    fn other_members(&self) -> impl Iterator<Item = (SlotId, &'r Slot, &'r DeviceEntry)> + use<'r> {
        let others = self.other_entries();
        others.filter(|(.., entry)| entry.used.load(Ordering::Relaxed) != 0)
    }

    /// Lists the other living processes that use the device.
    fn other_entries(&self) -> impl Iterator<Item = (SlotId, &'r Slot, &'r DeviceEntry)> + use<'r> {
        let (own_slot, device) = (self.own_slot, usize::from(self.entry.device()));
        let slots = own_slot.segments().state().slots.iter().enumerate();
        slots.filter_map(move |(index, slot)| {
            let id = SlotId {
                index: index as u16,
                epoch: claim::live(&slot.claim)?,
            };
            let entry = lock::entry_on(slot, device).filter(|_| id != own_slot.slot())?;
            let lives = liveness::mark_of(&slot.keeper) != Mark::Dead;
            lives.then_some((id, slot, entry))
        })
    }
}
