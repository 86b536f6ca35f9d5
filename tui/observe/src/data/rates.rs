//! Rates: launches per second and memory over time, from the counters of two samples.

use std::collections::VecDeque;

use super::lanes::Cell;
use super::timeline::{POINT_NS, Timeline};
use gpushare_sample::{Holding, ProcessSample, SlotId};

/// Time constant with which rates follow changes.
const TAU_S: f64 = 2.0;

/// Time constant of the share of the time for which memory moves. It is longer, because a move takes seconds.
const MOVING_TAU_S: f64 = 10.0;

/// A process on a device at one point of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Past {
    kib: u32,
    /// Share of the time, in units of 1/255.
    hold: u8,
    wait: u8,
}

impl Past {
    fn new(bytes: u64, spent: Cell) -> Self {
        let part = |share: f32| (share.clamp(0.0, 1.0) * 255.0).round() as u8;
        Self {
            kib: u32::try_from(bytes >> 10).unwrap_or(u32::MAX),
            hold: part(spent.hold),
            wait: part(spent.wait),
        }
    }

    /// Returns the bytes of memory held.
    pub fn bytes(self) -> u64 {
        u64::from(self.kib) << 10
    }

    /// Returns the share of the time holding the lock.
    pub fn hold(self) -> f32 {
        f32::from(self.hold) / 255.0
    }

    /// Returns the share of the time waiting for the lock.
    pub fn wait(self) -> f32 {
        f32::from(self.wait) / 255.0
    }
}

/// The rates of one process on one device.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    seen_ns: u64,
    launches: u64,
    late_drains: u64,
    moving_ns: u64,
    /// Share of the recent time for which the process's memory was moved, out or back.
    pub moving: f64,
    /// Kernels and graphs launched per second.
    pub launches_per_s: f64,
    /// Shares of the device's span spent on the lock. Under `overlap` the time in which several processes submit counts for
    /// each in equal parts.
    pub spent: Cell,
    /// The share of the device that it would use if it never waited, 0 to 1.
    pub wants: f64,
    /// The share of the device's lock that it would get by its weight and cap, among all that wanted it recently, at most what it
    /// wants: what it leaves is for the others. `None` if it did not want the lock.
    pub fair: Option<f64>,
    /// The process that it recently waited for most, and the share of its waits.
    pub behind: Option<(SlotId, f64)>,
    /// The time charged to it at the last measurements: time and nanoseconds.
    charged: VecDeque<(u64, u64)>,
    /// The 99th percentile of the holds in that span.
    pub hold_p99_ns: Option<u64>,
    /// The median of the waits in that span.
    pub wait_p50_ns: Option<u64>,
    /// The 99th percentile of the waits in that span.
    pub wait_p99_ns: Option<u64>,
    /// Last observed release of the lock with work still running.
    pub late_ns: Option<u64>,
    /// History of its memory and its use of the lock.
    pub past: Timeline<Past>,
}

/// Number of points from which growth is read: 48 s, in four parts.
const WATCHED: usize = 24;

impl Rates {
    /// Forecasts the time until the process's memory reaches `quota`; `None` unless its peak has risen in each part of the last
    /// 48 s. A process that loads its data at once, or allocates and frees in a rhythm, does not grow.
    pub fn reaches_in_ns(&self, quota: u64) -> Option<u64> {
        let bytes: Vec<u64> = self.past.last(WATCHED).map(Past::bytes).collect();
        if bytes.len() < WATCHED {
            return None;
        }
        let part = WATCHED / 4;
        let peaks = bytes.chunks(part).map(|part| part.iter().copied().max());
        let peaks: Vec<u64> = peaks.flatten().collect();
        if !peaks.is_sorted_by(|before, after| before < after) {
            return None;
        }
        let (first, last) = (peaks.first()?, peaks.last()?);
        let grown_in_ns = 3 * part as u128 * u128::from(POINT_NS);
        let left = u128::from(quota.saturating_sub(*last));
        let ns = left * grown_in_ns / u128::from(last - first);
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the share of the last `span_ns` that was charged to the process; `None` after the first measurement.
    pub fn charged(&mut self, held_ns: u64, now_ns: u64, span_ns: u64) -> Option<f32> {
        let begin = now_ns.saturating_sub(span_ns);
        self.charged
            .retain(|(time, _)| (begin..now_ns).contains(time));
        self.charged.push_back((now_ns, held_ns));
        let (time, before) = *self.charged.front().filter(|(time, _)| *time < now_ns)?;
        Some(held_ns.saturating_sub(before) as f32 / (now_ns - time) as f32)
    }

    /// Adds the next sample. When a point of time is complete, `lately` returns its activity.
    pub fn update(
        &mut self,
        process: &ProcessSample,
        holding: &Holding,
        lately: impl FnOnce() -> Cell,
        now_ns: u64,
    ) {
        let moving_ns = process.moving_ns(now_ns);
        if self.seen_ns == 0 {
            let age_s = now_ns.saturating_sub(process.registered_ns).max(1) as f64 / 1e9;
            self.launches_per_s = holding.launches() as f64 / age_s;
            self.moving = moving_ns as f64 / 1e9 / age_s;
        } else if now_ns > self.seen_ns {
            let seconds = (now_ns - self.seen_ns) as f64 / 1e9;
            let rate = holding.launches().saturating_sub(self.launches) as f64 / seconds;
            let weight = 1.0 - (-seconds / TAU_S).exp();
            self.launches_per_s += (rate - self.launches_per_s) * weight;
            let moved_s = moving_ns.saturating_sub(self.moving_ns) as f64 / 1e9;
            let weight = 1.0 - (-seconds / MOVING_TAU_S).exp();
            self.moving += (moved_s / seconds - self.moving) * weight;
            if holding.counters.drain_timeouts > self.late_drains {
                self.late_ns = Some(now_ns);
            }
        }
        self.seen_ns = now_ns;
        self.launches = holding.launches();
        self.late_drains = holding.counters.drain_timeouts;
        self.moving_ns = moving_ns;
        if self.past.is_due(now_ns) {
            self.past.put(Past::new(holding.used, lately()), now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::Phase;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_rate_starts_with_the_average_of_its_life_and_follows() {
        let process = ProcessSample::default();
        let mut holding = Holding::default();
        holding.view.counters.launches = 1000;
        let mut rates = Rates::default();
        rates.update(&process, &holding, Cell::default, 10 * S);
        assert!((rates.launches_per_s - 100.0).abs() < 0.1);
        for second in 11..40 {
            holding.counters.launches += 500;
            rates.update(&process, &holding, Cell::default, second * S);
        }
        assert!(
            (rates.launches_per_s - 500.0).abs() < 1.0,
            "{}",
            rates.launches_per_s
        );
    }

    #[test]
    fn the_share_of_moves_counts_the_move_under_way_once() {
        let mut process = ProcessSample::default();
        process.devices.push(Holding::default());
        let mut rates = Rates::default();
        // Of each ten seconds memory moves for five.
        for second in 1..=100 {
            let into = second % 10;
            let counters = &mut process.devices[0].view.counters;
            counters.evictions = 1;
            counters.moving_ns = second / 10 * 5 * S + if into >= 5 { 5 * S } else { 0 };
            process.view.residence.since_ns = (second - into) * S;
            process.view.residence.phase = match into < 5 {
                true => Phase::Evicting,
                false => Phase::Resident,
            };
            let holding = process.devices[0].clone();
            rates.update(&process, &holding, Cell::default, second * S);
        }
        assert!((0.3..0.7).contains(&rates.moving), "{}", rates.moving);
    }

    #[test]
    fn what_it_did_is_remembered_with_its_memory() {
        let mut rates = Rates::default();
        let mut holding = Holding::default();
        holding.view.used = 1 << 30;
        let spent = Cell {
            hold: 1.0,
            wait: 0.2,
            ..Cell::default()
        };
        rates.update(&ProcessSample::default(), &holding, || spent, 100 * S);
        let past = rates.past.last(1).next().unwrap();
        assert_eq!((past.bytes(), past.hold()), (1 << 30, 1.0));
        assert!((past.wait() - 0.2).abs() < 0.01);
    }

    #[test]
    fn the_time_to_a_quota_is_forecast_from_steady_growth_alone() {
        const MIB: u64 = 1 << 20;
        let left = |bytes: fn(u64) -> u64| {
            let mut rates = Rates::default();
            let mut holding = Holding::default();
            for second in 0..60 {
                holding.view.used = bytes(second) * MIB;
                let now_ns = (100 + second) * S;
                rates.update(&ProcessSample::default(), &holding, Cell::default, now_ns);
            }
            rates.reaches_in_ns(1000 * MIB).map(|ns| ns / S)
        };
        // 500 MiB after a minute, and ten more each second: 1000 MiB in about 50 s.
        assert!((40..=50).contains(&left(|second| second * 10).unwrap()));
        assert_eq!(
            left(|second| if second < 30 { 0 } else { 900 }),
            None,
            "it loaded its data"
        );
        assert_eq!(
            left(|second| second % 5 * 100),
            None,
            "it allocates and frees"
        );
        assert_eq!(left(|second| 900 - second), None);
    }

    #[test]
    fn time_that_was_charged_is_a_share_of_the_span() {
        let mut rates = Rates::default();
        assert_eq!(rates.charged(5 * S, 100 * S, 20 * S), None);
        let share = rates.charged(5 * S + S / 4, 101 * S, 20 * S);
        assert_eq!(share, Some(0.25));
        assert_eq!(rates.charged(6 * S, 110 * S, S), None, "the span is new");
    }
}
