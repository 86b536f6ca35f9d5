//! Execution of kernels on a device: concurrently for MPS clients ([`concurrency`]), in time slices, or one after the other.
//!
//! With a `slice` in the scenario a ticket of the engine is a turn of a process and not a kernel. The process runs its kernels
//! one after the other in its turns, and a kernel that is longer than the turn continues in the next one. A turn ends early
//! when its process has had no kernel for a moment. A process with one short kernel therefore waits for one turn of each other
//! process, as under a driver's time slices, and a long kernel does not block other processes. A process may have turns of another
//! length ([`Member::set_slice`]).

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock;
use crate::concurrency::{self, Wants};
use crate::engine::{self, Now};
use crate::process::Member;

/// Interval at which a kernel reads its share, in nanoseconds.
const LOOK: u64 = 100_000;
/// Longest time by which a kernel's start is dated back, because its thread may wake up late.
const LATE: u64 = 1_000_000;

/// A kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Duration with all multiprocessors that it can use.
    pub duration: u64,
    /// Number of blocks; each uses one multiprocessor.
    pub blocks: u64,
    /// Time from which it could run.
    pub ready: u64,
}

impl Member {
    /// Runs a kernel and returns the time at which it ended.
    pub fn run(&self, device: usize, kernel: Kernel) -> u64 {
        let slice = match self.slice(device) {
            0 => self
                .world()
                .devices()
                .get(device)
                .map_or(0, |device| device.slice),
            slice => slice,
        };
        match (self.mps(), slice) {
            (Some(_), _) => {}
            (None, 0) => return self.run_kernel(device, kernel.duration, kernel.ready),
            (None, slice) => return self.run_in_turns(device, kernel, slice),
        }
        loop {
            if let Some(ended) = self.run_beside(device, kernel) {
                return ended;
            }
            std::thread::yield_now();
        }
    }

    fn run_in_turns(&self, device: usize, kernel: Kernel, slice: u64) -> u64 {
        let layout = self.world().layout();
        let idle = &self.process().devices[device].idle;
        let mut turn = self.turns[device]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (mut left, mut at) = (kernel.duration.max(1), kernel.ready);
        let mut next = None;
        loop {
            let goes_on = |number: &u64| {
                let now = engine::advance(layout, device, clock::now(), &|_| false);
                matches!(now, Now::Runs { ticket, .. } if ticket == *number)
            };
            let kept = turn.take().filter(goes_on);
            idle.store(0, Relaxed);
            let number = kept.or_else(|| next.take());
            let number = number.unwrap_or_else(|| self.claim(device, slice, at));
            let start = self.wait_for_turn(device, number);
            let ticket = engine::ticket_at(layout, device, number);
            // Another process may have ended the turn while it was idle.
            let limit = |start: u64| match engine::read(&ticket.end) {
                end if end > start => end,
                _ => start + slice,
            };
            let begin = at.max(start);
            let piece = left.min(limit(start).saturating_sub(begin));
            if piece < left && next.is_none() {
                // Claimed now, so that a late wake-up loses no place in the order.
                next = Some(self.claim(device, slice, at));
            }
            let now = clock::now();
            if begin + piece > now {
                clock::sleep_until(begin + piece);
            }
            let done = piece.min(limit(start).saturating_sub(begin));
            at = begin + done;
            left -= done;
            if left == 0 || self.fault(device) != 0 {
                // While more work is queued the next kernel follows soon, however late its thread wakes up, so the turn is
                // kept.
                if self.process().queued.load(Relaxed) <= 1 {
                    idle.store(at, Relaxed);
                }
                *turn = Some(number);
                return at;
            }
        }
    }

    /// Runs a kernel concurrently with others. Returns `None` if the process is no MPS client or the table is full.
    fn run_beside(&self, device: usize, kernel: Kernel) -> Option<u64> {
        let layout = self.world().layout();
        let all = self.world().devices().get(device)?.multiprocessors.max(1);
        let client = self.mps()?;
        let useful = kernel.blocks.clamp(1, all.into()) as u32;
        let mut last = kernel.ready.max(clock::now().saturating_sub(LATE));
        let wants = Wants {
            multiprocessors: useful.min(client.multiprocessors(all)),
            priority: client.priority,
            in_waves: kernel.blocks > all.into(),
            arrived: kernel.ready,
        };
        let own = concurrency::enter(layout, device, self.slot(), wants, last)?;
        // Unit: multiprocessors times nanoseconds.
        let mut left = kernel.duration.max(1) as f64 * f64::from(useful);
        let mut began = None;
        let ended = loop {
            let given = concurrency::share(layout, device, own, all, last);
            let until = (given > 0).then(|| last + (left / f64::from(given)).ceil() as u64);
            concurrency::says(layout, device, own, last, (given, until));
            began = began.or(until.map(|_| last));
            let now = clock::now();
            match until {
                Some(until) if until <= now => break until,
                _ if self.fault(device) != 0 => break now,
                _ => {}
            }
            let wait = until.map_or(LOOK, |until| until - now).min(LOOK);
            clock::nap(now, wait);
            let now = clock::now();
            let passed = until
                .map_or(now, |until| now.min(until))
                .saturating_sub(last);
            left -= passed as f64 * f64::from(given);
            last = last.max(now);
            if left < 0.5 {
                break until.unwrap_or(now);
            }
        };
        concurrency::leave(layout, device, own);
        if let Some(began) = began {
            engine::account(&self.process().devices[device], began.min(ended), ended);
        }
        Some(ended)
    }
}

#[cfg(test)]
mod tests;
