//! What counters become when two samples are compared: launches a second, and memory over time.

use std::collections::VecDeque;

use crate::sample::{Holding, ProcessSample};

/// Rates follow changes with this time constant.
const TAU_S: f64 = 2.0;
/// One point of the memory history.
const POINT_NS: u64 = 2_000_000_000;
/// Ten minutes of them.
const POINTS: usize = 300;

/// One process on one device, over time.
#[derive(Clone, Debug, Default)]
pub struct Pulse {
    seen_ns: u64,
    launches: u64,
    late_drains: u64,
    /// Kernels and graphs launched in a second.
    pub launches_per_s: f64,
    /// When it last gave the lock up with work still running, as far as we saw.
    pub late_ns: Option<u64>,
    /// Held memory in KiB, one point every two seconds, newest last.
    memory_kib: VecDeque<u32>,
    point_ns: u64,
}

impl Pulse {
    /// Takes in the next sample.
    pub fn update(&mut self, process: &ProcessSample, holding: &Holding, now_ns: u64) {
        if self.seen_ns == 0 {
            let age_s = now_ns.saturating_sub(process.registered_ns).max(1) as f64 / 1e9;
            self.launches_per_s = holding.launches() as f64 / age_s;
        } else if now_ns > self.seen_ns {
            let seconds = (now_ns - self.seen_ns) as f64 / 1e9;
            let rate = holding.launches().saturating_sub(self.launches) as f64 / seconds;
            let weight = 1.0 - (-seconds / TAU_S).exp();
            self.launches_per_s += (rate - self.launches_per_s) * weight;
            if holding.counters.drain_timeouts > self.late_drains {
                self.late_ns = Some(now_ns);
            }
        }
        self.seen_ns = now_ns;
        self.launches = holding.launches();
        self.late_drains = holding.counters.drain_timeouts;
        self.remember(holding.used, now_ns);
    }

    fn remember(&mut self, bytes: u64, now_ns: u64) {
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        let point = now_ns / POINT_NS;
        let missed = match self.point_ns {
            0 => 1,
            last => point.saturating_sub(last).min(POINTS as u64),
        };
        for _ in 0..missed {
            self.memory_kib.push_back(kib);
        }
        if let Some(last) = self.memory_kib.back_mut() {
            *last = kib;
        }
        while self.memory_kib.len() > POINTS {
            self.memory_kib.pop_front();
        }
        self.point_ns = point.max(1);
    }

    /// `columns` points of the last ten minutes, oldest first; `None` before the process was seen.
    pub fn memory(&self, columns: usize) -> Vec<Option<u64>> {
        let at = |column: usize| {
            let back =
                POINTS - 1 - (column * POINTS.saturating_sub(1)) / columns.saturating_sub(1).max(1);
            let index = self.memory_kib.len().checked_sub(back + 1)?;
            self.memory_kib.get(index).map(|kib| u64::from(*kib) << 10)
        };
        (0..columns).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_rate_starts_with_the_average_of_its_life_and_follows() {
        let process = ProcessSample::default();
        let mut holding = Holding::default();
        holding.view.counters.launches = 1000;
        let mut pulse = Pulse::default();
        pulse.update(&process, &holding, 10 * S);
        assert!((pulse.launches_per_s - 100.0).abs() < 0.1);
        for second in 11..40 {
            holding.counters.launches += 500;
            pulse.update(&process, &holding, second * S);
        }
        assert!(
            (pulse.launches_per_s - 500.0).abs() < 1.0,
            "{}",
            pulse.launches_per_s
        );
    }

    #[test]
    fn memory_before_the_first_sight_is_unknown() {
        let mut pulse = Pulse::default();
        let mut holding = Holding::default();
        holding.view.used = 1 << 30;
        for second in 0..20 {
            pulse.update(&ProcessSample::default(), &holding, (100 + second) * S);
        }
        let points = pulse.memory(60);
        assert_eq!(points[0], None);
        assert_eq!(points[59], Some(1 << 30));
    }
}
