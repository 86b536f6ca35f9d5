//! Eviction on request, on a device whose memory is promised more than once (overcommit). A process that waits for memory asks
//! idle processes to evict theirs, and where turns include the memory (`swap=on`), also those whose turn is over.
//!
//! An idle or paused process of no higher priority is asked, the longest idle first, and only if enough bytes can be freed. The
//! process is asked ([`ask_to_evict`](crate::ask_to_evict)) and decides itself whether it may be evicted. If it does not evict
//! within [`ANSWER_NS`], it has refused and is left alone. A process that was restored is left alone for ten times as long as
//! its last eviction and restore took. So memory moves for at most an eleventh of the time, however many want it.
//!
//! Under `swap=on` a process at work is asked as well once it has been on the device for a slice. A process that waits for
//! memory behind the asking one is asked at once: otherwise two processes that grow would wait for each other.

use super::{QueueTicket, WantKind};
use crate::{
    lock,
    memory::{ask_to_evict, residence_of},
    os::liveness::{self, Mark},
    protocol::{claim, primitive::Ordering},
    value::{Blocked, Phase, SlotId},
};

/// Time since the last driver call after which a process counts as idle, in nanoseconds. Before that it is neither asked to
/// evict nor evicted.
pub const IDLE_NS: u64 = 5_000_000_000;
/// Time in which a process that was asked has to evict. After that it counts as having refused.
const ANSWER_NS: u64 = 3_000_000_000;
/// Time after a refusal before the same process is asked again, because its reason may have ended. A request costs the process
/// little, and after an attempt that failed it pauses by itself. In between, other processes are asked instead.
const REST_NS: u64 = 2 * ANSWER_NS;
/// How many times the duration of its last eviction and restore a process stays on the device before it may be evicted again.
const STAYS: u64 = 10;

/// The result of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// No process is asked: the device is not overcommitted, or the limit that refuses is not the device's.
    Off,
    /// Others are on their way out, or were asked a moment ago.
    Coming,
    /// No processes can make enough room.
    Nobody,
    /// No processes can make enough room now, because some were restored a short while ago. To evict them at once would be
    /// thrashing.
    TooSoon,
}

/// A process that may be asked to evict.
struct Candidate {
    id: SlotId,
    idle_ns: u64,
    bytes: u64,
}

/// The other processes on a device, as far as their memory could make room.
#[derive(Default)]
struct Others {
    /// Processes that may be asked to evict.
    candidates: Vec<Candidate>,
    /// Bytes on their way out.
    coming: u64,
    /// Bytes of processes that have a turn now, and evict when it is over.
    in_turn: u64,
    /// True if a process was restored too short a time ago.
    too_soon: bool,
}

impl QueueTicket<'_> {
    /// Asks idle processes for the room that is missing, where the operator has overcommitted the device. To be called at
    /// each look, until there is room.
    pub fn make_room(&self, now_ns: u64) -> Room {
        let full = matches!(self.blocked.get(), Blocked::Device | Blocked::Limit);
        if !full || !self.ledger.overcommits() {
            return Room::Off;
        }
        let Others {
            candidates,
            coming,
            in_turn,
            too_soon,
        } = self.others_to_ask(now_ns);
        let missing = self.missing().max(1);
        if coming >= missing {
            return Room::Coming;
        }
        let in_all = candidates.iter().map(|one| one.bytes);
        let in_all = in_all.fold(coming.saturating_add(in_turn), u64::saturating_add);
        let chosen = choose(candidates, missing - coming);
        if chosen.is_empty() {
            if too_soon {
                let word = &self.ledger.device.crowded_ns;
                word.store(now_ns, Ordering::Relaxed);
            }
            return match (coming > 0 || in_turn > 0 && in_all >= missing, too_soon) {
                (true, _) => Room::Coming,
                (false, true) => Room::TooSoon,
                (false, false) => Room::Nobody,
            };
        }
        let mut asked = self.asked.borrow_mut();
        for candidate in chosen {
            ask_to_evict(self.ledger.own_slot.segments(), candidate.id, now_ns);
            asked.retain(|(id, _)| *id != candidate.id);
            asked.push((candidate.id, now_ns));
        }
        Room::Coming
    }

    /// Returns how many bytes have to leave the device before the request fits.
    fn missing(&self) -> u64 {
        let wanted = self.held_by_all().saturating_add(self.want.bytes);
        let margin = match self.want.kind {
            WantKind::Allocation => 0,
            WantKind::Return { margin } => margin,
        };
        let card = self.total().saturating_sub(self.ledger.outside());
        let limit = match self.blocked.get() {
            Blocked::Limit => self.denial.get().quota,
            _ => u64::MAX,
        };
        wanted.saturating_sub(card.saturating_sub(margin).min(limit))
    }

    fn others_to_ask(&self, now_ns: u64) -> Others {
        let own_slot = self.ledger.own_slot;
        let turn = self.ledger.memory_turn();
        let device = usize::from(self.ledger.entry.device());
        let mine = own_slot.share().priority;
        let asked = self.asked.borrow();
        let mut others = Others::default();
        for (index, slot) in own_slot.segments().state().slots.iter().enumerate() {
            let Some(epoch) = claim::live(&slot.claim) else {
                continue;
            };
            let id = SlotId {
                index: index as u16,
                epoch,
            };
            let Some(entry) = lock::entry_on(slot, device).filter(|_| id != own_slot.slot()) else {
                continue;
            };
            if liveness::mark_of(&slot.keeper) == Mark::Dead {
                continue;
            }
            let residence = residence_of(slot);
            let bytes = entry.used.load(Ordering::Relaxed);
            if bytes == 0 {
                continue;
            }
            match residence.phase {
                Phase::Evicting => {
                    others.coming = others.coming.saturating_add(bytes);
                    continue;
                }
                Phase::Resident => {}
                // Its promised bytes are in its account before they are on the device.
                Phase::Returning | Phase::Restoring if turn.is_some() => {
                    others.in_turn = others.in_turn.saturating_add(bytes);
                    continue;
                }
                _ => continue,
            }
            let since_asked = asked.iter().find(|(other, _)| *other == id);
            match since_asked.map(|(_, at)| now_ns.saturating_sub(*at)) {
                Some(0..ANSWER_NS) => {
                    others.coming = others.coming.saturating_add(bytes);
                    continue;
                }
                // On a busy machine an eviction takes longer; a process that refuses gives a reason.
                Some(ANSWER_NS..REST_NS) if turn.is_some() && residence.why.is_none() => {
                    others.coming = others.coming.saturating_add(bytes);
                    continue;
                }
                Some(ANSWER_NS..REST_NS) => continue,
                _ => {}
            }
            let share = own_slot
                .shares()
                .share_of(own_slot.segments(), id, slot, now_ns);
            let idle_ns = now_ns.saturating_sub(residence.used_ns);
            let is_idle = share.paused || idle_ns >= IDLE_NS;
            let waits = entry.line_bytes.load(Ordering::Relaxed) != 0;
            let ticket = entry.line_ticket.load(Ordering::Relaxed);
            let is_behind = waits && ticket > self.position.get().ticket;
            let may_go = match turn {
                Some(_) => !waits || is_behind,
                None => !waits && is_idle,
            };
            if share.priority > mine {
                continue;
            }
            if !may_go {
                if turn.is_some() {
                    // It has its turn once it has the memory that it waits for.
                    others.in_turn = others.in_turn.saturating_add(bytes);
                }
                continue;
            }
            let stays = residence.swap_ns.saturating_mul(STAYS);
            let stays = match turn {
                _ if is_behind => 0,
                Some(turn) if !is_idle => stays.max(turn),
                _ => stays,
            };
            if now_ns < residence.since_ns.saturating_add(stays) {
                if turn.is_some() {
                    others.in_turn = others.in_turn.saturating_add(bytes);
                } else {
                    others.too_soon = true;
                }
                continue;
            }
            // Of the processes at work, the one that has been there longest.
            let idle_ns = match is_idle {
                true => idle_ns,
                false => now_ns.saturating_sub(residence.since_ns).min(IDLE_NS),
            };
            others.candidates.push(Candidate { id, idle_ns, bytes });
        }
        others
    }
}

/// The longest idle that has enough, else as many as it takes; none if all of them are not enough.
fn choose(mut candidates: Vec<Candidate>, missing: u64) -> Vec<Candidate> {
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.idle_ns));
    let enough = candidates.iter().position(|one| one.bytes >= missing);
    if let Some(at) = enough {
        return vec![candidates.swap_remove(at)];
    }
    let mut sum = 0_u64;
    let mut taken = 0;
    for candidate in &candidates {
        if sum >= missing {
            break;
        }
        sum = sum.saturating_add(candidate.bytes);
        taken += 1;
    }
    candidates.truncate(if sum >= missing { taken } else { 0 });
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(of: &[(u64, u64)], missing: u64) -> Vec<u16> {
        let candidates = of
            .iter()
            .enumerate()
            .map(|(index, (idle_ns, bytes))| Candidate {
                id: SlotId {
                    index: index as u16,
                    epoch: 1,
                },
                idle_ns: *idle_ns,
                bytes: *bytes,
            });
        let chosen = choose(candidates.collect(), missing);
        chosen.iter().map(|candidate| candidate.id.index).collect()
    }

    #[test]
    fn the_longest_idle_that_has_enough_goes_else_as_many_as_it_takes() {
        let all = [(10, 5), (30, 2), (20, 8)];
        assert_eq!(chosen(&all, 5), [2], "the longest idle has too little");
        assert_eq!(chosen(&all, 1), [1]);
        assert_eq!(chosen(&all, 9), [1, 2], "and no more than needed");
        assert_eq!(chosen(&all, 15), [1, 2, 0]);
        assert!(chosen(&all, 16).is_empty(), "for nothing nobody goes");
    }
}
