//! The rhythm of a job on a device: how much it gets done in a second, and how long the device keeps it waiting in a step.
//!
//! The figures are the program's own and exist under every policy, also without one: its launches, and its steps, each of
//! which ends with a synchronisation or a copy to the host. A rate is taken between two heartbeats of the program, in which its
//! keeper counts, so it does not depend on the moments at which somebody looked.

use gpushare_sample::{Histogram, Holding, ProcessSample};

/// A smaller change of a rate, in parts of it, is chance.
pub const RATE_CHANCE: f64 = 0.02;
/// A smaller change of a percentile is chance: it is known to a part of a fourth of an octave.
pub const P99_CHANCE: f64 = 0.1;

/// The counters of a job at one moment.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    counted_ns: u64,
    launches: u64,
    steps: Histogram,
}

/// The work of a job in a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rhythm {
    ns: u64,
    launches: u64,
    steps: Histogram,
}

impl Mark {
    /// Reads the counters of a process on a device.
    pub fn of(process: &ProcessSample, holding: &Holding) -> Self {
        Self {
            counted_ns: process.heartbeat_ns,
            launches: holding.launches(),
            steps: holding.lock.steps.clone(),
        }
    }

    /// Returns what the job did from this moment to a later one.
    pub fn until(&self, later: &Self) -> Rhythm {
        Rhythm {
            ns: later.counted_ns.saturating_sub(self.counted_ns),
            launches: later.launches.saturating_sub(self.launches),
            steps: later.steps.since(&self.steps),
        }
    }

    /// Reports whether the job has launched since an earlier moment.
    pub fn has_worked_since(&self, earlier: &Self) -> bool {
        self.launches > earlier.launches
    }
}

impl Rhythm {
    /// Adds what the job did in another span.
    pub fn merge(&mut self, other: &Self) {
        self.ns += other.ns;
        self.launches += other.launches;
        self.steps.merge(&other.steps);
    }

    /// Returns the seconds of the span.
    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// Returns the kernels and graphs launched in a second.
    pub fn launches_per_s(&self) -> f64 {
        match self.ns {
            0 => 0.0,
            _ => self.launches as f64 / self.seconds(),
        }
    }

    /// Returns the 99th percentile of the times for which the device kept the job waiting in a step; `None` if no step
    /// ended.
    pub fn step_p99_ns(&self) -> Option<u64> {
        self.steps.quantile(0.99)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a rhythm of one second, with this many launches and a step of this length for each.
    pub(crate) fn of_one_second(launches: u32, step_ns: u64) -> Rhythm {
        let mut steps = Histogram::default();
        steps.add(step_ns, launches);
        Rhythm {
            ns: 1_000 * MS,
            launches: launches.into(),
            steps,
        }
    }

    #[test]
    fn a_rate_is_taken_between_heartbeats_and_not_between_looks() {
        let mut process = ProcessSample::default();
        let mut holding = Holding::default();
        process.view.heartbeat_ns = 5_000 * MS;
        holding.counters.launches = 100;
        let then = Mark::of(&process, &holding);
        process.view.heartbeat_ns += 2_000 * MS;
        holding.counters.launches += 300;
        holding.lock.steps.add(3 * MS, 300);
        let rhythm = then.until(&Mark::of(&process, &holding));
        assert_eq!(rhythm.launches_per_s(), 150.0);
        assert_eq!(rhythm.step_p99_ns(), Some(3 * MS));
        let silent = then.until(&then);
        assert_eq!((silent.launches_per_s(), silent.step_p99_ns()), (0.0, None));
    }
}
