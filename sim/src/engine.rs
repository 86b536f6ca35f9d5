//! The engine of a device runs one kernel at a time, over all processes of a world.
//!
//! A kernel that is next in its stream claims the device's next *ticket*. Tickets run in order, each for its duration. All data
//! of a ticket is in a ring that all processes share, so every process can advance the timeline. A stopped process therefore
//! does not delay others: its kernels end by themselves. The kernel of a killed process is cut short by the first process that
//! notices the death. Two processes that keep their streams full alternate.
//!
//! ```text
//!            head                     tail
//!   … ended | running | waiting | waiting | free …        claim → start → end, each set once by CAS
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::clock;
use crate::layout::{BUCKETS, Layout, MAX_DEVICES, ProcessDevice, READY_STEP, TICKETS, Ticket};

/// Number of tickets kept free between tail and head, so that the previous ticket can always be read.
pub(crate) const ROOM: u64 = 64;

const DURATION_BITS: u32 = 40;
const SLOT_BITS: u32 = 10;
pub(crate) const LONGEST: u64 = (1 << DURATION_BITS) - 1;

/// Time for which a turn continues without a kernel.
pub(crate) const LINGER: u64 = 200_000;

pub(crate) const BUCKET_NS: u64 = 100_000_000;

pub(crate) fn lap_of(ticket: u64) -> u64 {
    (ticket / TICKETS as u64 + 1) & 0x3fff
}

pub(crate) fn claim_word(ticket: u64, slot: usize, duration: u64) -> u64 {
    lap_of(ticket) << (DURATION_BITS + SLOT_BITS) | (slot as u64) << DURATION_BITS | duration
}

/// The fields of a claim word.
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

pub(crate) enum Now {
    Idle,
    /// A ticket runs until `until`, unless it is cut short.
    Runs {
        ticket: u64,
        until: u64,
    },
}

/// Reads a word of the timeline.
pub(crate) fn read(word: &AtomicU64) -> u64 {
    // ORDER: pairs with `replace`: what its writer had read of the ring is visible here.
    word.load(Acquire)
}

/// Replaces one word of the timeline, unless another process has changed it. Returns the current value otherwise.
pub(crate) fn replace(word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
    // ORDER: publishes what this process has read of the ring; pairs with `read`.
    word.compare_exchange(old, new, AcqRel, Acquire)
}

pub(crate) fn ticket_at(layout: &Layout, device: usize, ticket: u64) -> &Ticket {
    &layout.devices[device].tickets[ticket as usize % TICKETS]
}

/// Returns the time from which a ticket could run, if its owner has written it.
fn ready_of(ticket: &Ticket, number: u64) -> Option<u64> {
    let word = read(&ticket.ready);
    (word >> 50 == lap_of(number)).then_some((word & ((1 << 50) - 1)) * READY_STEP)
}

/// Returns the end of the previous ticket. That ticket has ended, because tickets run in order.
fn previous_end(layout: &Layout, device: usize, ticket: u64) -> u64 {
    match ticket.checked_sub(1) {
        Some(previous) => read(&ticket_at(layout, device, previous).end),
        None => 0,
    }
}

/// Ends the tickets whose time has passed and starts the next one. `gone` returns whether a slot's process is dead; it is
/// called for the running ticket only.
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
            // The owner was killed before it wrote the time: the ticket could run from now on.
            let since = ready_of(ticket, head).unwrap_or(now);
            let begin = floor.max(since.min(now)).max(1);
            // Another process may have written the start first; its value counts.
            start = replace(&ticket.start, start, begin).map_or_else(|theirs| theirs, |_| begin);
        }
        if read(&engine.head) != head {
            continue; // The values read may belong to the next lap.
        }
        let full = start.saturating_add(claim.duration);
        let set = read(&ticket.end);
        let end = if set > start {
            set // Written by a process that was killed, or is slow, before it moved the head.
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
        // The process that moves the head adds the time to the account.
        if replace(&engine.head, head, head + 1).is_ok() {
            account(&layout.processes[claim.slot].devices[device], start, end);
        }
    }
}

/// Adds a kernel's time to its process's account.
pub(crate) fn account(books: &ProcessDevice, start: u64, end: u64) {
    books.busy.fetch_add(end - start, Relaxed);
    let oldest = (end / BUCKET_NS).saturating_sub(BUCKETS as u64 - 1);
    for index in (start / BUCKET_NS).max(oldest)..=end / BUCKET_NS {
        let (from, to) = (index * BUCKET_NS, (index + 1) * BUCKET_NS);
        let share = end.min(to).saturating_sub(start.max(from));
        let bucket = &books.buckets[index as usize % BUCKETS];
        // Never an error: the closure always returns a value.
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

/// Cuts short all tickets of a dead process's slot. The caller holds the world's lock.
pub(crate) fn cancel(layout: &Layout, slot: usize) {
    let now = clock::now();
    for device in 0..MAX_DEVICES {
        advance(layout, device, now, &|running| running == slot);
        // The search goes beyond the tail: the dead process may have claimed a ticket without moving the tail.
        for number in read(&layout.devices[device].head).. {
            let ticket = ticket_at(layout, device, number);
            let word = read(&ticket.claim);
            let claim = Claim::of(word);
            if claim.lap != lap_of(number) {
                break;
            }
            if claim.slot == slot {
                // Fails only if the ticket was claimed for a later lap, long afterwards.
                let _ = replace(&ticket.claim, word, claim_word(number, slot, 1));
            }
        }
    }
}

/// Returns the slot of the running kernel and how many nanoseconds of it have passed.
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
