//! The limit of the work that others may queue ahead of a process.

/// The work that others may queue ahead of a process, in microseconds. It is 0 while the process has not measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// The device time of all their queued work together.
    pub together_us: u32,
    /// The time that the process usually leaves between two submissions: kernels that are not longer fit into it.
    pub gap_us: u32,
}

impl Tolerance {
    /// Others may queue as if the process were idle. It will probably wait for the device `within_ns` from now.
    pub fn all(within_ns: u64, now_ns: u64) -> Self {
        Self {
            together_us: u32::MAX,
            gap_us: (now_ns.saturating_add(within_ns) / 1000) as u32,
        }
    }

    /// Returns true if others may queue as if the process were idle.
    pub fn is_all(self) -> bool {
        self.together_us == u32::MAX
    }

    /// Returns the time until the process that tolerates everything probably waits for the device, in nanoseconds.
    pub(super) fn left_ns(self, now_ns: u64) -> u64 {
        let left_us = self.gap_us.wrapping_sub((now_ns / 1000) as u32) as i32;
        u64::try_from(left_us).unwrap_or(0) * 1000
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.gap_us) << 32 | u64::from(self.together_us)
    }

    pub(super) fn of_word(word: u64) -> Self {
        Self {
            together_us: word as u32,
            gap_us: (word >> 32) as u32,
        }
    }

    pub(super) fn least(self, other: Self) -> Self {
        Self {
            together_us: self.together_us.min(other.together_us),
            gap_us: self.gap_us.min(other.gap_us),
        }
    }
}
