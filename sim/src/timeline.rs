//! The engine: one kernel at a time over all processes of a world.
//!
//! A kernel that is next in its stream claims the device's next *ticket*; tickets run in order, each for
//! its duration. Everything about a ticket is in the ring that all processes share, so anyone can move
//! the timeline on: a process that is stopped holds nobody up, as its kernels end by themselves, and
//! the kernel of a process that is killed is cut short by the first who notices. Two processes that
//! keep their streams full take turns.
//!
//! ```text
//!            head                     tail
//!   … ended | running | waiting | waiting | free …        claim → start → end, each set once by CAS
//! ```
//!
//! The ring is also the log: the last [`LOG`] kernels with start, end and pid, from which tests
//! read that no two kernels overlap.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{BUCKETS, Layout, ProcessDevice, READY_STEP, TICKETS, Ticket};
use crate::{MAX_DEVICES, Member, clock, process};

/// Kernels the log remembers at most.
pub const LOG: usize = TICKETS - ROOM as usize;

/// Tickets kept free between tail and head, so that the previous ticket is always there to read.
const ROOM: u64 = 64;

/// How often a waiting process looks whether the one before it still lives.
const LOOK: u64 = 2_000_000;

/// Below this, waiting is yielding: a sleep would be longer.
const SHORT: u64 = 80_000;

const DURATION_BITS: u32 = 40;
const SLOT_BITS: u32 = 10;
const LONGEST: u64 = (1 << DURATION_BITS) - 1;

/// Length of a busy-time bucket.
pub(crate) const BUCKET_NS: u64 = 100_000_000;

fn lap_of(ticket: u64) -> u64 {
    (ticket / TICKETS as u64 + 1) & 0x3fff
}

fn claim_word(ticket: u64, slot: usize, duration: u64) -> u64 {
    lap_of(ticket) << (DURATION_BITS + SLOT_BITS) | (slot as u64) << DURATION_BITS | duration
}

/// A claim word, taken apart.
#[derive(Clone, Copy)]
struct Claim {
    lap: u64,
    slot: usize,
    duration: u64,
}

impl Claim {
    fn of(word: u64) -> Self {
        Self {
            lap: word >> (DURATION_BITS + SLOT_BITS),
            slot: (word >> DURATION_BITS) as usize & ((1 << SLOT_BITS) - 1),
            duration: (word & LONGEST).max(1),
        }
    }
}

/// One kernel that has ended, from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its ticket: the order of execution.
    pub ticket: u64,
    /// The process.
    pub pid: u32,
    /// When it started, on [`clock::now`].
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// What the engine is doing.
enum Now {
    Idle,
    /// This ticket runs until then, unless it is cut short.
    Runs {
        ticket: u64,
        until: u64,
    },
}

/// Reads a word that processes move the timeline on by.
fn read(word: &AtomicU64) -> u64 {
    // ORDER: pairs with `replace`: what its writer knew of the ring is known here.
    word.load(Acquire)
}

/// Moves the timeline on by one word, if nobody else has; else tells what it is now.
fn replace(word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
    // ORDER: publishes all that this process has seen of the ring; pairs with `read`.
    word.compare_exchange(old, new, AcqRel, Acquire)
}

fn ticket_at(layout: &Layout, device: usize, ticket: u64) -> &Ticket {
    &layout.devices[device].tickets[ticket as usize % TICKETS]
}

/// Since when a ticket could run, if its claimant has said so.
fn ready_of(ticket: &Ticket, number: u64) -> Option<u64> {
    let word = read(&ticket.ready);
    (word >> 50 == lap_of(number)).then_some((word & ((1 << 50) - 1)) * READY_STEP)
}

/// When the ticket before this one ended. It has, because tickets run in order.
fn previous_end(layout: &Layout, device: usize, ticket: u64) -> u64 {
    match ticket.checked_sub(1) {
        Some(previous) => read(&ticket_at(layout, device, previous).end),
        None => 0,
    }
}

/// Ends what has run its time and starts what is next. `gone` tells whether a slot's process is dead;
/// it is asked about the running ticket only.
fn advance(layout: &Layout, device: usize, now: u64, gone: &dyn Fn(usize) -> bool) -> Now {
    let engine = &layout.devices[device];
    loop {
        let head = read(&engine.head);
        let ticket = ticket_at(layout, device, head);
        let claim = Claim::of(read(&ticket.claim));
        if claim.lap != lap_of(head) {
            return Now::Idle;
        }
        let floor = previous_end(layout, device, head);
        let mut start = read(&ticket.start);
        if start < floor || start == 0 {
            // A claimant that was killed before it could say started now.
            let since = ready_of(ticket, head).unwrap_or(now);
            let begin = floor.max(since.min(now)).max(1);
            // The loser takes the winner's.
            start = replace(&ticket.start, start, begin).map_or_else(|theirs| theirs, |_| begin);
        }
        if read(&engine.head) != head {
            continue; // What was read may belong to the next lap.
        }
        let full = start.saturating_add(claim.duration);
        let set = read(&ticket.end);
        let end = if set > start {
            set // By someone who was killed, or is slow, before moving the head.
        } else {
            let end = match now {
                _ if now >= full => full,
                _ if gone(claim.slot) => now.max(start + 1),
                _ => {
                    return Now::Runs {
                        ticket: head,
                        until: full,
                    };
                }
            };
            replace(&ticket.end, set, end).map_or_else(|theirs| theirs, |_| end)
        };
        // The one who moves the head keeps the books.
        if replace(&engine.head, head, head + 1).is_ok() {
            account(&layout.processes[claim.slot].devices[device], start, end);
        }
    }
}

/// Adds a kernel's time to its process's books.
fn account(books: &ProcessDevice, start: u64, end: u64) {
    books.busy.fetch_add(end - start, Relaxed);
    let oldest = (end / BUCKET_NS).saturating_sub(BUCKETS as u64 - 1);
    for index in (start / BUCKET_NS).max(oldest)..=end / BUCKET_NS {
        let (from, to) = (index * BUCKET_NS, (index + 1) * BUCKET_NS);
        let share = end.min(to).saturating_sub(start.max(from));
        let bucket = &books.buckets[index as usize % BUCKETS];
        // Cannot fail: the closure always has an answer.
        let _ = bucket.fetch_update(Relaxed, Relaxed, |word| {
            let kept = if word >> 32 == index & 0xffff_ffff {
                word & 0xffff_ffff
            } else {
                0
            };
            Some((index & 0xffff_ffff) << 32 | (kept + share).min(0xffff_ffff))
        });
    }
}

/// Cuts short what a dead process's slot still has on any engine. Called under the world's lock.
pub(crate) fn cancel(layout: &Layout, slot: usize) {
    let now = clock::now();
    for device in 0..MAX_DEVICES {
        advance(layout, device, now, &|running| running == slot);
        // Not up to the tail: the dead may have claimed a ticket and not moved it.
        for number in read(&layout.devices[device].head).. {
            let ticket = ticket_at(layout, device, number);
            let word = read(&ticket.claim);
            let claim = Claim::of(word);
            if claim.lap != lap_of(number) {
                break;
            }
            if claim.slot == slot {
                // Fails only if someone claimed it for a later lap, long after.
                let _ = replace(&ticket.claim, word, claim_word(number, slot, 1));
            }
        }
    }
}

/// How much of a device's running kernel has passed: (slot, nanoseconds).
pub(crate) fn running(layout: &Layout, device: usize, now: u64) -> Option<(usize, u64)> {
    match advance(layout, device, now, &|_| false) {
        Now::Idle => None,
        Now::Runs { ticket, .. } => {
            let entry = ticket_at(layout, device, ticket);
            let slot = Claim::of(read(&entry.claim)).slot;
            Some((slot, now.saturating_sub(read(&entry.start))))
        }
    }
}

/// The kernels that have ended on a device, oldest first, as far as the log goes back.
pub fn log(world: &crate::World, device: usize) -> Vec<Ran> {
    let layout = world.layout();
    let head = read(&layout.devices[device].head);
    let entries = head.saturating_sub(LOG as u64)..head;
    let read = entries.filter_map(|number| {
        let ticket = ticket_at(layout, device, number);
        let lap = Claim::of(read(&ticket.claim)).lap;
        let ran = Ran {
            ticket: number,
            pid: ticket.pid.load(Relaxed) as u32,
            start: read(&ticket.start),
            end: read(&ticket.end),
        };
        (lap == lap_of(number)).then_some(ran)
    });
    read.collect()
}

impl Member {
    /// Runs a kernel of this duration: waits for its turn and until it has ended, and returns when that
    /// was. `ready` is since when it could have run (when its stream's previous work ended).
    pub fn run_kernel(&self, device: usize, duration: u64, ready: u64) -> u64 {
        let number = self.claim(device, duration.clamp(1, LONGEST), ready);
        let layout = self.world().layout();
        let mut next_look = 0;
        loop {
            let now = clock::now();
            let look = now >= next_look;
            if look {
                next_look = now + LOOK;
            }
            let gone = |slot| look && self.is_gone(slot);
            let state = advance(layout, device, now, &gone);
            let (running, until) = match state {
                Now::Runs { ticket, until } if ticket <= number => (ticket, until),
                _ => return self.end_of(device, number, now),
            };
            let mut wait = until.saturating_sub(now);
            for between in running + 1..=number {
                let claim = Claim::of(read(&ticket_at(layout, device, between).claim));
                wait = wait.saturating_add(claim.duration);
            }
            if running < number {
                wait = wait.min(LOOK);
            }
            if wait < SHORT {
                std::thread::yield_now();
            } else {
                clock::sleep_until(now + wait - SHORT / 2);
            }
        }
    }

    fn claim(&self, device: usize, duration: u64, ready: u64) -> u64 {
        let layout = self.world().layout();
        let engine = &layout.devices[device];
        loop {
            let number = read(&engine.tail);
            if number.saturating_sub(read(&engine.head)) >= TICKETS as u64 - ROOM {
                advance(layout, device, clock::now(), &|slot| self.is_gone(slot));
                std::thread::yield_now();
                continue;
            }
            let ticket = ticket_at(layout, device, number);
            let old = read(&ticket.claim);
            let mine = claim_word(number, self.slot(), duration);
            let taken = Claim::of(old).lap == lap_of(number);
            // ORDER: publishes the claim; pairs with the loads in `advance`.
            let won = !taken && replace(&ticket.claim, old, mine).is_ok();
            if won {
                let word = lap_of(number) << 50 | ((ready / READY_STEP) & ((1 << 50) - 1));
                // ORDER: tells everyone who moves the timeline since when it could run.
                ticket.ready.store(word, Release);
                ticket.pid.store(u64::from(std::process::id()), Relaxed);
            }
            // ORDER: the tail is a hint; whoever sees a taken ticket moves it on.
            let _ = replace(&engine.tail, number, number + 1);
            if won {
                return number;
            }
        }
    }

    fn end_of(&self, device: usize, number: u64, now: u64) -> u64 {
        let ticket = ticket_at(self.world().layout(), device, number);
        let end = read(&ticket.end);
        let ours = Claim::of(read(&ticket.claim)).lap == lap_of(number);
        if ours { end.min(now) } else { now }
    }

    fn is_gone(&self, slot: usize) -> bool {
        if slot == self.slot() {
            return false;
        }
        let process = &self.world().layout().processes[slot];
        !process.taken() || process::is_gone(process, self.world().lock_path(), slot)
    }
}

#[cfg(test)]
mod tests;
