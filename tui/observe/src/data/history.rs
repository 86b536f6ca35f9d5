//! A device over time: how busy it was, how full, who held its lock and how many waited; and what became of its time.

use super::timeline::{POINT_NS, Timeline};

/// A device in one point of time. Shares are 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Share of the time a kernel ran, by NVML; `None` where it does not say.
    pub busy: Option<f32>,
    /// Share of the time its lock was held.
    pub held: f32,
    /// Share of its memory in use.
    pub full: f32,
    /// How many waited, on average.
    pub waiting: f32,
}

/// What became of a device's time, as shares that add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Efficiency {
    /// A kernel ran and the lock was held.
    pub used: f32,
    /// The lock was held and nothing ran.
    pub wasted: f32,
    /// A kernel ran without the lock: under policy off, or of a process without the shim.
    pub beside: f32,
    /// Neither.
    pub idle: f32,
}

/// Efficiency is told of so much time.
pub const JUDGED_NS: u64 = 20_000_000_000;

impl Efficiency {
    /// Of the last [`JUDGED_NS`]; `None` where NVML tells no utilisation.
    ///
    /// NVML and the lock are two witnesses of the same moments: within one point as much of the work as fits is taken to
    /// have run under the lock.
    pub fn of(history: &Timeline<Moment>) -> Option<Self> {
        let points = usize::try_from(JUDGED_NS / POINT_NS).unwrap_or(1);
        let mut sum = Self::default();
        let mut count = 0.0;
        for moment in history.last(points) {
            let Some(busy) = moment.busy else { continue };
            let used = busy.min(moment.held);
            sum.used += used;
            sum.wasted += moment.held - used;
            sum.beside += busy - used;
            sum.idle += 1.0 - busy.max(moment.held);
            count += 1.0;
        }
        (count > 0.0).then(|| Self {
            used: sum.used / count,
            wasted: sum.wasted / count,
            beside: sum.beside / count,
            idle: sum.idle / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(moments: &[(Option<f32>, f32)]) -> Option<Efficiency> {
        let mut history = Timeline::default();
        for ((busy, held), at) in moments.iter().zip(1..) {
            let moment = Moment {
                busy: *busy,
                held: *held,
                ..Moment::default()
            };
            history.put(moment, at * POINT_NS);
        }
        Efficiency::of(&history)
    }

    #[test]
    fn the_shares_add_up_and_each_moment_is_judged_for_itself() {
        let half = of(&[(Some(1.0), 0.0), (Some(0.0), 1.0)]).unwrap();
        assert_eq!((half.used, half.wasted, half.beside), (0.0, 0.5, 0.5));
        let all = of(&[(Some(0.75), 1.0), (Some(0.25), 0.5)]).unwrap();
        assert_eq!((all.used, all.wasted, all.idle), (0.5, 0.25, 0.25));
        assert_eq!(all.used + all.wasted + all.beside + all.idle, 1.0);
    }

    #[test]
    fn without_a_word_of_nvml_there_is_no_judgement() {
        assert_eq!(of(&[(None, 1.0)]), None);
        assert_eq!(of(&[]), None);
    }
}
