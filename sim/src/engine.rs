//! The engine: one kernel at a time over all processes of a world.
//!
//! A kernel that is next in its stream claims the device's next *ticket*; tickets run in order, each for
//! its duration. Everything about a ticket is in the ring that all processes share, so anyone can move
//! the timeline on: a stopped process does not hold up others, as its kernels end by themselves, and
//! the kernel of a process that is killed is cut short by the first who notices. Two processes that
//! keep their streams full take turns.
//!
//! ```text
//!            head                     tail
//!   … ended | running | waiting | waiting | free …        claim → start → end, each set once by CAS
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::clock;
use crate::layout::{BUCKETS, Layout, MAX_DEVICES, ProcessDevice, READY_STEP, TICKETS, Ticket};

/// Tickets kept free between tail and head, so that the previous ticket is always there to read.
pub(crate) const ROOM: u64 = 64;

const DURATION_BITS: u32 = 40;
const SLOT_BITS: u32 = 10;
pub(crate) const LONGEST: u64 = (1 << DURATION_BITS) - 1;

/// A turn goes on for so long without a kernel.
pub(crate) const LINGER: u64 = 200_000;

/// Length of a busy-time bucket.
pub(crate) const BUCKET_NS: u64 = 100_000_000;

pub(crate) fn lap_of(ticket: u64) -> u64 {
    (ticket / TICKETS as u64 + 1) & 0x3fff
}

pub(crate) fn claim_word(ticket: u64, slot: usize, duration: u64) -> u64 {
    lap_of(ticket) << (DURATION_BITS + SLOT_BITS) | (slot as u64) << DURATION_BITS | duration
}

/// A claim word, taken apart.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub lap: u64,
    pub slot: usize,
    pub duration: u64,
}

impl Claim {
    pub fn of(word: u64) -> Self {
        Self {
            lap: word >> (DURATION_BITS + SLOT_BITS),
            slot: (word >> DURATION_BITS) as usize & ((1 << SLOT_BITS) - 1),
            duration: (word & LONGEST).max(1),
        }
    }
}

/// What the engine is doing.
pub(crate) enum Now {
    Idle,
    /// This ticket runs until then, unless it is cut short.
    Runs {
        ticket: u64,
        until: u64,
    },
}

/// Reads a word that processes move the timeline on by.
pub(crate) fn read(word: &AtomicU64) -> u64 {
    // ORDER: pairs with `replace`: what its writer knew of the ring is known here.
    word.load(Acquire)
}

/// Moves the timeline on by one word, unless another process has; then tells what it is now.
pub(crate) fn replace(word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
    // ORDER: publishes all that this process has seen of the ring; pairs with `read`.
    word.compare_exchange(old, new, AcqRel, Acquire)
}

pub(crate) fn ticket_at(layout: &Layout, device: usize, ticket: u64) -> &Ticket {
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
pub(crate) fn advance(
    layout: &Layout,
    device: usize,
    now: u64,
    gone: &dyn Fn(usize) -> bool,
) -> Now {
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
            let idle = layout.processes[claim.slot].devices[device]
                .idle
                .load(Relaxed);
            let given_up = idle.saturating_add(LINGER).max(start + 1);
            let end = match now {
                // A turn whose process has no kernel: see `client`.
                _ if idle > 0 && now >= given_up && given_up < full => given_up,
                _ if now >= full => full,
                _ if gone(claim.slot) => now.max(start + 1),
                _ => {
                    let until = if idle > 0 { full.min(given_up) } else { full };
                    return Now::Runs {
                        ticket: head,
                        until,
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
pub(crate) fn account(books: &ProcessDevice, start: u64, end: u64) {
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
