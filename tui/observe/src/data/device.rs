//! The past of one device: its utilisation, the hand-offs and violations of its lock, its history, and the work of its jobs
//! under each policy.

use std::collections::VecDeque;

use gpushare_sample::DeviceSample;

use super::effects::Effects;
use super::history::Moment;
use super::timeline::{POINT_NS, Timeline};

const UTIL_KEPT: usize = 1200;
/// Time for which NVML's first value may be repeated, which is from before it was watched.
const FIRST_NS: u64 = 2_000_000_000;

/// The state derived from all samples of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct DevicePast {
    /// Utilisation: time and per cent, newest last.
    util: VecDeque<(u64, u8)>,
    pub(super) history: Timeline<Moment>,
    /// The work of its jobs under each policy.
    pub(super) effects: Effects,
    /// Time and count of the hand-offs at the last sample.
    handoffs: Option<(u64, u64)>,
    pub(super) handoffs_per_s: f64,
    /// The counter of violations at the last sample.
    violations: Option<u64>,
    /// The number of violations since the dashboard started, and the time of the last one.
    violated: (u64, u64),
}

impl DevicePast {
    /// Adds the next sample.
    pub(super) fn update(&mut self, device: &DeviceSample, now_ns: u64) {
        if let Some(percent) = device.nvml.util_percent {
            let percent = u8::try_from(percent.min(100)).unwrap_or(100);
            self.util.push_back((now_ns, percent));
            if self.util.len() > UTIL_KEPT {
                self.util.pop_front();
            }
        }
        self.count_handoffs(device.handoffs, now_ns);
        let seen = self.violations.replace(device.violations);
        let more = seen.map_or(0, |seen| device.violations.saturating_sub(seen));
        if more > 0 {
            self.violated = (self.violated.0 + more, now_ns);
        }
    }

    fn count_handoffs(&mut self, handoffs: u64, now_ns: u64) {
        let (time, count) = *self.handoffs.get_or_insert((now_ns, handoffs));
        if now_ns <= time {
            return;
        }
        let seconds = (now_ns - time) as f64 / 1e9;
        let now = handoffs.saturating_sub(count) as f64 / seconds;
        self.handoffs_per_s += (now - self.handoffs_per_s) * (1.0 - (-seconds / 2.0).exp());
        self.handoffs = Some((now_ns, handoffs));
    }

    /// Adds a point to the history, with the mean utilisation in it.
    pub(super) fn add_moment(&mut self, moment: Moment, now_ns: u64) {
        let since = now_ns.saturating_sub(POINT_NS);
        let first = self.util.front();
        let utils = self.util.iter().rev().take_while(|(time, _)| *time > since);
        let (sum, count) = utils.fold((0.0, 0.0), |(sum, count), (_, percent)| {
            (sum + f32::from(*percent) / 100.0, count + 1.0)
        });
        let moment = Moment {
            busy: (count > 0.0).then(|| sum / count),
            is_measured: first.is_some_and(|(time, _)| time.saturating_add(FIRST_NS) <= since),
            ..moment
        };
        self.history.put(moment, now_ns);
    }

    /// Returns the number of violations since the dashboard started, and the time of the last one.
    pub(super) fn violated(&self) -> Option<(u64, u64)> {
        Some(self.violated).filter(|(times, _)| *times > 0)
    }

    /// Returns the highest utilisation in a span of time; without a value inside, the last one before it.
    pub(super) fn utilisation(&self, from_ns: u64, to_ns: u64) -> Option<u8> {
        let end = self.util.partition_point(|(time, _)| *time < to_ns);
        let start = self.util.partition_point(|(time, _)| *time < from_ns);
        let inside = self.util.range(start..end).map(|(_, percent)| *percent);
        let before = || Some(self.util.get(start.checked_sub(1)?)?.1);
        inside.max().or_else(before)
    }

    /// Reports whether the device is known to have been idle since a moment.
    pub(super) fn is_idle_since(&self, since_ns: u64) -> bool {
        let newest_first = self.util.iter().rev();
        let mut recent = newest_first.take_while(|(time, _)| *time >= since_ns);
        let first = self.util.front();
        first.is_some_and(|(time, _)| *time <= since_ns) && recent.all(|(_, percent)| *percent <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Efficiency;
    use super::*;

    #[test]
    fn how_the_time_is_used_is_unknown_while_the_value_of_nvml_may_be_from_before_the_first_look() {
        let mut past = DevicePast::default();
        for tenths in 1000..1100_u64 {
            let now_ns = tenths * 100_000_000;
            let mut device = DeviceSample::default();
            // A job holds the lock and fills the device from the first look on. NVML is read every two seconds.
            device.nvml.util_percent = Some(if tenths < 1020 { 4 } else { 97 });
            past.update(&device, now_ns);
            let moment = Moment {
                held: 1.0,
                ..Moment::default()
            };
            if past.history.is_due(now_ns) {
                past.add_moment(moment, now_ns);
            }
            let told = Efficiency::of(past.history.last(10));
            assert_eq!(told.is_some(), tenths >= 1040, "{tenths}");
            assert!(told.is_none_or(|told| told.used > 0.9), "{told:?}");
        }
        assert_eq!(past.history.last(10).next().unwrap().busy, Some(0.04));
    }
}
