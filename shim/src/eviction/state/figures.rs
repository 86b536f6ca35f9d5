//! Figures about the process's evictions, for the tools: how many there were, how long memory moved, and how long calls waited
//! for evicted memory.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

use shm_layout::Counters;

/// Number of waits from which the percentiles are made.
const REMEMBERED: usize = 256;
/// Minutes of an hour, in which evictions are counted.
const MINUTES: u64 = 60;
/// A minute in nanoseconds.
const MINUTE_NS: u64 = 60_000_000_000;

/// The figures of one process. The evictor adds to them; the keeper publishes them too.
#[derive(Default)]
pub struct Figures(Mutex<MoveLog>);

impl Figures {
    fn lock(&self) -> MutexGuard<'_, MoveLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an eviction that took `took_ns`.
    pub fn count_eviction(&self, took_ns: u64, now_ns: u64) {
        self.lock().count_eviction(took_ns, now_ns);
    }

    /// Returns true if some evictions have become older than an hour since the last publication.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let log = self.lock();
        log.evictions > 0 && log.minute != now_ns / MINUTE_NS
    }

    /// Publishes the figures in the counters of each device.
    pub fn publish<'c>(&self, devices: impl Iterator<Item = &'c Counters>, now_ns: u64) {
        self.lock().publish(devices, now_ns);
    }

    /// Counts a restore that took `took_ns`, and for which calls waited for `waited_ns`; `None` if none did.
    pub fn count_restore(&self, took_ns: u64, waited_ns: Option<u64>) {
        self.lock().count_restore(took_ns, waited_ns);
    }
}

/// The record from which the figures are made. Its lists are on the heap: a process attaches on a thread of the
/// application, whose stack may be small.
#[derive(Default)]
struct MoveLog {
    evictions: u64,
    moving_ns: u64,
    /// The minutes of the last hour in which there were evictions, oldest first, and how many there were.
    by_minute: VecDeque<(u64, u64)>,
    /// The minute in which the figures were last brought up to date.
    minute: u64,
    /// The last waits in nanoseconds, oldest first.
    waits: VecDeque<u64>,
}

impl MoveLog {
    fn count_eviction(&mut self, took_ns: u64, now_ns: u64) {
        self.pass_minutes(now_ns);
        match self.by_minute.back_mut() {
            Some((minute, count)) if *minute == self.minute => *count += 1,
            _ => self.by_minute.push_back((self.minute, 1)),
        }
        self.evictions += 1;
        self.moving_ns = self.moving_ns.saturating_add(took_ns);
    }

    fn count_restore(&mut self, took_ns: u64, waited_ns: Option<u64>) {
        self.moving_ns = self.moving_ns.saturating_add(took_ns);
        if let Some(waited_ns) = waited_ns {
            if self.waits.len() == REMEMBERED {
                self.waits.pop_front();
            }
            self.waits.push_back(waited_ns);
        }
    }

    /// Forgets the evictions that are older than an hour.
    fn pass_minutes(&mut self, now_ns: u64) {
        self.minute = self.minute.max(now_ns / MINUTE_NS);
        let is_recent = |minute: u64| minute + MINUTES > self.minute;
        self.by_minute.retain(|(minute, _)| is_recent(*minute));
    }

    /// Returns the waits that are remembered, the shortest first.
    fn sorted(&self) -> Vec<u64> {
        let mut waits = Vec::from(self.waits.clone());
        waits.sort_unstable();
        waits
    }

    fn publish<'c>(&mut self, devices: impl Iterator<Item = &'c Counters>, now_ns: u64) {
        self.pass_minutes(now_ns);
        let waits = self.sorted();
        let rank = |percent: usize| (waits.len() * percent).div_ceil(100).saturating_sub(1);
        let wait = |percent| waits.get(rank(percent)).copied().unwrap_or(0);
        let in_hour = self.by_minute.iter().map(|(_, count)| count).sum();
        let [p50, p99, max] = [50, 99, 100].map(wait);
        for counters in devices {
            for (word, value) in [
                (&counters.evictions, self.evictions),
                (&counters.evictions_in_hour, in_hour),
                (&counters.moving_ns, self.moving_ns),
                (&counters.wake_p50_ns, p50),
                (&counters.wake_p99_ns, p99),
                (&counters.wake_max_ns, max),
            ] {
                word.store(value, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn published(log: &mut MoveLog, now_ns: u64) -> shm_layout::CounterView {
        let counters = Counters::default();
        log.publish([&counters].into_iter(), now_ns);
        counters.view()
    }

    #[test]
    fn percentiles_of_the_waits_are_waits_that_occurred() {
        let mut log = MoveLog::default();
        assert_eq!(published(&mut log, 0).wake_max_ns, 0);
        for wait in 1..=100 {
            log.count_restore(MS, Some(wait * MS));
        }
        let figures = published(&mut log, 0);
        let waits = [
            figures.wake_p50_ns,
            figures.wake_p99_ns,
            figures.wake_max_ns,
        ];
        assert_eq!(waits, [50 * MS, 99 * MS, 100 * MS]);
        assert_eq!(figures.moving_ns, 100 * MS);
    }

    #[test]
    fn old_waits_are_forgotten_and_a_restore_without_a_waiting_call_is_none() {
        let mut log = MoveLog::default();
        log.count_restore(MS, Some(9000 * MS));
        for _ in 0..REMEMBERED {
            log.count_restore(MS, Some(5 * MS));
            log.count_restore(MS, None);
        }
        assert_eq!(published(&mut log, 0).wake_max_ns, 5 * MS);
    }

    #[test]
    fn evictions_are_counted_for_an_hour() {
        let mut log = MoveLog::default();
        let minute = |number: u64| 1000 * MINUTE_NS * 60 + number * MINUTE_NS;
        log.count_eviction(MS, minute(0));
        log.count_eviction(MS, minute(0));
        log.count_eviction(MS, minute(30));
        assert_eq!(published(&mut log, minute(59)).evictions_in_hour, 3);
        assert_eq!(published(&mut log, minute(60)).evictions_in_hour, 1);
        let figures = published(&mut log, minute(500));
        assert_eq!((figures.evictions, figures.evictions_in_hour), (3, 0));
    }
}
