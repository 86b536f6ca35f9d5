//! A member's kernels on the `engine`, and the log of the kernels that ran.
//!
//! The ring of tickets is also the log: it has start, end and pid of the last [`LOG`] kernels. Tests read in it that no two
//! kernels overlap.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::engine::{
    Claim, LONGEST, Now, ROOM, advance, claim_word, lap_of, read, replace, ticket_at,
};
use crate::layout::{READY_STEP, TICKETS};
use crate::locks::Lives;
use crate::process::Member;
use crate::world::World;
use crate::{clock, slots};

/// Maximum number of kernels in the log.
pub const LOG: usize = TICKETS - ROOM as usize;

/// Interval at which a waiting process checks for dead processes, in nanoseconds.
const LOOK: u64 = 2_000_000;

/// A kernel that has ended, from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Ticket number, which gives the order of execution.
    pub ticket: u64,
    /// The process's pid.
    pub pid: u32,
    /// Start time, on [`clock::now`].
    pub start: u64,
    /// End time.
    pub end: u64,
}

/// Returns the kernels that have ended on a device, oldest first, as far back as the log goes.
pub fn log(world: &World, device: usize) -> Vec<Ran> {
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

/// The time of the next search for dead processes.
#[derive(Default)]
struct Looks {
    next: u64,
}

impl Member {
    /// Runs a kernel of this duration: waits for its turn and its end, and returns the end time. `ready` is the time from which
    /// it could run, the end of its stream's previous work.
    pub fn run_kernel(&self, device: usize, duration: u64, ready: u64) -> u64 {
        let number = self.claim(device, duration.clamp(1, LONGEST), ready);
        let layout = self.world().layout();
        let mut looks = Looks::default();
        loop {
            let (now, state) = self.look(device, &mut looks);
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
            clock::nap(now, wait);
        }
    }

    /// Advances the timeline to now. Searches for dead processes only once every [`LOOK`] ns.
    fn look(&self, device: usize, looks: &mut Looks) -> (u64, Now) {
        let now = clock::now();
        let look = now >= looks.next;
        if look {
            looks.next = now + LOOK;
        }
        let gone = |slot| look && self.is_gone(slot);
        (now, advance(self.world().layout(), device, now, &gone))
    }

    /// Waits until our ticket runs or has run, and returns its start time.
    pub(crate) fn wait_for_turn(&self, device: usize, number: u64) -> u64 {
        let layout = self.world().layout();
        let mut looks = Looks::default();
        loop {
            match self.look(device, &mut looks) {
                (now, Now::Runs { ticket, until }) if ticket < number => {
                    clock::nap(now, until.saturating_sub(now).min(LOOK));
                }
                _ => return read(&ticket_at(layout, device, number).start),
            }
        }
    }

    pub(crate) fn claim(&self, device: usize, duration: u64, ready: u64) -> u64 {
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
                // ORDER: publishes, to every process that advances the timeline, when the ticket could run.
                ticket.ready.store(word, Release);
                ticket.pid.store(u64::from(std::process::id()), Relaxed);
            }
            // ORDER: the tail is a hint; a process that finds a taken ticket moves it on.
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
        !process.taken() || slots::is_gone(process, &Lives::of(self.world().lock_path()), slot)
    }
}

#[cfg(test)]
mod tests;
