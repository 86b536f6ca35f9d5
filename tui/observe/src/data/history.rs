//! The history of a device: its utilisation, its memory, the holders of its lock and the waiting processes, and the
//! shares of its time.

/// The state of a device at one point of time. Shares are 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Share of the time in which a kernel ran, as NVML reports it; `None` if NVML does not.
    pub busy: Option<f32>,
    /// Set if `busy` is of this time alone, and not from before NVML was watched.
    pub is_measured: bool,
    /// Share of the time in which the lock was held.
    pub held: f32,
    /// Share of the memory in use.
    pub full: f32,
    /// Average number of waiting processes.
    pub waiting: f32,
}

/// The shares of a device's time by its use; they add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Efficiency {
    /// Share with a kernel running and the lock held.
    pub used: f32,
    /// Share with the lock held and no kernel running.
    pub wasted: f32,
    /// Share with a kernel running without the lock: under policy `off`, or of a process without the shim.
    pub beside: f32,
    /// Share with neither.
    pub idle: f32,
}

impl Efficiency {
    /// Computes the efficiency over these points of time; `None` if the utilisation was measured in none of them.
    ///
    /// NVML and the lock observe the same moments. Within one point as much of the work as fits is counted as work
    /// under the lock.
    pub fn of(moments: impl Iterator<Item = Moment>) -> Option<Self> {
        let mut sum = Self::default();
        let mut count = 0.0;
        for moment in moments {
            let Some(busy) = moment.busy.filter(|_| moment.is_measured) else {
                continue;
            };
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
        let moments = moments.iter().map(|(busy, held)| Moment {
            busy: *busy,
            is_measured: true,
            held: *held,
            ..Moment::default()
        });
        Efficiency::of(moments)
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
