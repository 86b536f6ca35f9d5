//! How often the application uses its devices.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A shorter time without requests is part of a phase of use, in nanoseconds: memory would hardly have left and returned in it. A
/// model that is loaded has many of them, which say nothing about how often it is asked later.
const SHORT_PAUSE: u64 = 250_000_000;
/// One phase of use.
const PHASE: u64 = 1 << 16;
/// Divisor: this part of what is known about earlier phases of use is forgotten with each new one. So the last four count most.
const REMEMBERED: u64 = 4;

/// How the application uses its devices, as the keeper sees it from the number of requests: driver calls that are no
/// queries.
#[derive(Default)]
pub struct Usage {
    /// The number of requests at the last look.
    requests: AtomicU64,
    /// The last look found no new request.
    was_still: AtomicBool,
    /// The time of the look that last found a new request, in nanoseconds.
    requested_ns: AtomicU64,
    /// The time without requests between phases of use, in nanoseconds; what was before counts less with each phase.
    pauses_ns: AtomicU64,
    /// The number of phases of use in units of [`PHASE`]; earlier ones count less with each phase.
    phases: AtomicU64,
    /// The time from which the process is idle if nothing is requested, in nanoseconds: its last request or its last restore.
    used_ns: AtomicU64,
}

impl Usage {
    /// Takes note of the number of requests. Returns true if the application has made one since the last look.
    pub fn note(&self, requests: u64, now: u64) -> bool {
        let before = self.requested_ns.load(Relaxed);
        let is_first = before == 0;
        if self.requests.swap(requests, Relaxed) == requests && !is_first {
            self.was_still.store(true, Relaxed);
            return false;
        }
        let pause_ns = now.saturating_sub(before);
        if is_first {
            self.begin(0);
        } else if self.was_still.swap(false, Relaxed) && pause_ns >= SHORT_PAUSE {
            self.begin(pause_ns);
        }
        self.requested_ns.store(now, Relaxed);
        self.used_ns.store(now, Relaxed);
        true
    }

    fn begin(&self, pause_ns: u64) {
        for (word, more) in [(&self.pauses_ns, pause_ns), (&self.phases, PHASE)] {
            let before = word.load(Relaxed);
            word.store((before - before / REMEMBERED).saturating_add(more), Relaxed);
        }
    }

    /// Records that the memory was restored, and since when a call waited for it. That call began a phase of use. Most calls count
    /// as requests only when they go on, so no look may have seen it, and the next calls are no further phase.
    pub fn restored(&self, wanted_ns: Option<u64>, now: u64) {
        let requested_ns = self.requested_ns.load(Relaxed);
        let pause_ns = wanted_ns.map_or(0, |since| since.saturating_sub(requested_ns));
        if pause_ns >= SHORT_PAUSE {
            self.begin(pause_ns);
        }
        self.used_ns.store(now, Relaxed);
        self.requested_ns.store(now, Relaxed);
        self.was_still.store(false, Relaxed);
    }

    /// Returns the number of requests at the last look.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Returns the mean time without requests after a phase of use, in nanoseconds. The present pause counts, so it grows for a
    /// process that is not used any more.
    pub fn gap_ns(&self, now: u64) -> u64 {
        let pause_ns = now.saturating_sub(self.requested_ns.load(Relaxed));
        let pauses_ns = self.pauses_ns.load(Relaxed).saturating_add(pause_ns);
        let phases = self.phases.load(Relaxed).max(PHASE);
        u64::try_from(u128::from(pauses_ns) * u128::from(PHASE) / u128::from(phases))
            .unwrap_or(u64::MAX)
    }

    /// Returns the time of the last use, in nanoseconds.
    pub fn used_ns(&self) -> u64 {
        self.used_ns.load(Relaxed)
    }

    /// Returns the time from which the process counts as idle if all its work is done, where `idle_ns` without a request make it so.
    pub fn idle_at(&self, idle_ns: u64) -> u64 {
        self.used_ns().saturating_add(idle_ns)
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::memory::queue::IDLE_NS;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_phase_of_use_begins_with_a_call_after_a_look_without_one() {
        let usage = Usage::default();
        assert!(usage.note(1, 1000 * MS), "the first look");
        let mut calls = 1;
        // Used in each of five looks, and not in the next five; once a second.
        for look in 1..=100_u64 {
            let now = (1000 + 100 * look) * MS;
            if look / 5 % 2 == 0 {
                calls += 1;
            }
            usage.note(calls, now);
        }
        let gap = usage.gap_ns(11_000 * MS);
        assert!(
            (580 * MS..600 * MS).contains(&gap),
            "0.6 s between two phases, not {gap} ns"
        );
        assert!(
            usage.gap_ns(71_000 * MS) > 10 * gap,
            "it is not used any more"
        );
    }

    #[test]
    fn a_process_at_work_without_a_pause_is_in_one_phase_of_use() {
        let usage = Usage::default();
        for look in 1..100 {
            assert!(usage.note(look, look * 100 * MS));
        }
        assert_eq!(usage.gap_ns(99 * 100 * MS), 0);
        assert_eq!(usage.idle_at(IDLE_NS), 99 * 100 * MS + IDLE_NS);
    }

    #[test]
    fn the_short_pauses_while_a_model_is_loaded_are_no_pauses_between_requests() {
        let usage = Usage::default();
        for look in 0..100 {
            usage.note(1 + look / 2, (1000 + 100 * look) * MS);
        }
        usage.note(60, 21_000 * MS);
        let gap = usage.gap_ns(21_000 * MS);
        assert!(
            gap >= 5000 * MS,
            "half of its 10 s without one, not {gap} ns"
        );
    }

    #[test]
    fn a_request_that_waits_for_its_memory_is_one_phase_of_use() {
        for is_counted_first in [false, true] {
            let usage = Usage::default();
            usage.note(1, 1000 * MS);
            for second in 2..=9 {
                let (at, calls) = (second * 1000 * MS, 10 * second);
                usage.note(calls - 10, at - 100 * MS);
                // The first call waits, and the others follow when the memory is there.
                let seen = calls - 10 + u64::from(is_counted_first);
                usage.note(seen, at + MS);
                usage.note(seen, at + 100 * MS);
                usage.restored(Some(at), at + 350 * MS);
                usage.note(calls, at + 400 * MS);
            }
            let gap = usage.gap_ns(9400 * MS);
            assert!(
                (500 * MS..600 * MS).contains(&gap),
                "0.6 s between two requests, not {gap} ns, {is_counted_first}"
            );
        }
    }

    #[test]
    fn a_restore_that_no_call_waited_for_is_no_use() {
        let usage = Usage::default();
        usage.note(1, 1000 * MS);
        usage.restored(None, 9000 * MS);
        assert_eq!(usage.gap_ns(9000 * MS), 0);
    }
}
