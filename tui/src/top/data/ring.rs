//! A ring of time bins: how much of each went to holding, to waiting for the lock, and to waiting for memory.
//!
//! Bins are counted from boot, so every ring of one width shares one axis. A bin keeps time in 2 µs steps.

use std::collections::VecDeque;

const STEP_NS: u64 = 2_000;

/// What a process does with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Hold,
    Wait,
    Memory,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    hold: u16,
    wait: u16,
    memory: u16,
}

/// The recent past in bins of one width.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    bin_ns: u64,
    /// How many bins are kept. A power of two, so that the memory is used in full.
    keep: usize,
    /// The number of `bins[0]`.
    first: u64,
    bins: VecDeque<Bin>,
}

impl Ring {
    pub(super) fn new(bin_ns: u64, keep: usize) -> Self {
        Self {
            bin_ns,
            keep,
            first: 0,
            bins: VecDeque::new(),
        }
    }

    /// The bin with this number, made if it is newer than all; `None` if it is too old.
    fn bin(&mut self, number: u64) -> Option<&mut Bin> {
        if self.bins.is_empty() || number >= self.first + (self.bins.len() + self.keep) as u64 {
            self.bins.clear();
            self.first = number;
        }
        while number >= self.first + self.bins.len() as u64 {
            if self.bins.len() == self.keep {
                self.bins.pop_front();
                self.first += 1;
            }
            self.bins.push_back(Bin::default());
        }
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.bins.get_mut(at)
    }

    pub(super) fn paint(&mut self, doing: Doing, from_ns: u64, to_ns: u64) {
        let oldest = to_ns.saturating_sub(self.bin_ns * self.keep as u64);
        let mut from = from_ns.max(oldest);
        while from < to_ns {
            let number = from / self.bin_ns;
            let to = to_ns.min((number + 1).saturating_mul(self.bin_ns));
            let steps = u16::try_from((to - from) / STEP_NS).unwrap_or(u16::MAX);
            if let Some(bin) = self.bin(number) {
                let word = match doing {
                    Doing::Hold => &mut bin.hold,
                    Doing::Wait => &mut bin.wait,
                    Doing::Memory => &mut bin.memory,
                };
                *word = word.saturating_add(steps);
            }
            from = to;
        }
    }

    /// The shares of `from_ns..to_ns` that went to holding, to waiting for the lock, and to waiting for memory. Both ends are
    /// taken down to whole bins.
    pub(super) fn shares(&self, from_ns: u64, to_ns: u64) -> [f32; 3] {
        let (from, to) = (from_ns / self.bin_ns, to_ns / self.bin_ns);
        let index = |number: u64| {
            let at = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
            at.min(self.bins.len())
        };
        let mut sums = [0.0_f32; 3];
        for bin in self.bins.range(index(from)..index(to).max(index(from))) {
            for (sum, steps) in sums.iter_mut().zip([bin.hold, bin.wait, bin.memory]) {
                *sum += f32::from(steps);
            }
        }
        let whole = (to.saturating_sub(from).max(1) * self.bin_ns / STEP_NS) as f32;
        sums.map(|sum| (sum / whole).min(1.0))
    }

    /// How many bins are kept now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bins.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_ring_forgets_the_far_past_and_survives_a_long_silence() {
        let mut ring = Ring::new(S / 8, 64);
        ring.paint(Doing::Hold, 0, 1000 * S);
        assert_eq!(ring.len(), 64);
        assert_eq!(ring.shares(999 * S, 1000 * S), [1.0, 0.0, 0.0]);
        ring.paint(Doing::Hold, 100_000 * S, 100_001 * S);
        assert!(ring.len() <= 64);
        assert_eq!(ring.shares(100_000 * S, 100_001 * S), [1.0, 0.0, 0.0]);
        assert_eq!(ring.shares(0, S), [0.0; 3]);
    }

    #[test]
    fn what_is_too_old_is_left_out() {
        let mut ring = Ring::new(S / 8, 4);
        ring.paint(Doing::Wait, 10 * S, 10 * S + S / 2);
        ring.paint(Doing::Hold, 2 * S, 3 * S);
        assert_eq!(ring.shares(10 * S, 10 * S + S / 2), [0.0, 1.0, 0.0]);
    }
}
