//! Counters of the lock, and the arithmetic of shares and caps. Times are parameters.

use crate::{
    layout::state::{Device, DeviceEntry},
    protocol::{
        primitive::{AtomicU64, Ordering},
        turn::who,
    },
    value::{Pace, Reason},
};

/// Longest unused time that a capped process may save while it is away. It allows a short burst when the process returns.
pub(super) const IDLE_CREDIT_NS: u64 = 100_000_000;
/// Longest unused time that a capped process may save while it waits. It is longer, because holds of others and late wake-ups
/// then delay the process.
const WAIT_CREDIT_NS: u64 = 1_000_000_000;
/// Time by which a capped process may exceed its cap before it pauses.
pub(super) const DEBT_NS: u64 = 20_000_000;

/// Adds to a word that only we write; a reader may see it a little late.
pub(super) fn add(word: &AtomicU64, amount: u64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

/// Time held, over weight: 100 is the common weight.
pub(crate) fn virtual_ns(held_ns: u64, weight: u32) -> u64 {
    held_ns.saturating_mul(100) / u64::from(weight.max(1))
}

/// Returns the time held that adds `virtual_ns` to the account of a process of this weight.
pub(super) fn held_ns(virtual_ns: u64, weight: u32) -> u64 {
    virtual_ns.saturating_mul(u64::from(weight)) / 100
}

/// Returns the time until which a hold uses a cap up. Each charged nanosecond costs `100 / cap` nanoseconds, counted from the
/// end of the earlier use, or from [`WAIT_CREDIT_NS`] before the hold if that end is long past.
pub(super) fn cap_debt(cap_until: u64, cap: u32, since_ns: u64, charged_ns: u64) -> u64 {
    let base = cap_until.max(since_ns.saturating_sub(WAIT_CREDIT_NS));
    base.saturating_add(charged_ns.saturating_mul(100) / u64::from(cap.clamp(1, 100)))
}

/// Returns true if a process pauses for its cap.
pub(super) fn is_used_up(entry: &DeviceEntry, cap: Option<u32>, now_ns: u64) -> bool {
    cap.is_some_and(|cap| cap < 100) && entry.cap_until.load(Ordering::Relaxed) > now_ns
}

/// Returns how long a holder may go on before its cap requires a pause, in nanoseconds.
pub(super) fn cap_left(
    cap_until: u64,
    cap: u32,
    since_ns: u64,
    charged_ns: u64,
    now_ns: u64,
) -> u64 {
    if cap >= 100 {
        return u64::MAX;
    }
    let debt = cap_debt(cap_until, cap, since_ns, charged_ns);
    let room = now_ns.saturating_add(DEBT_NS).saturating_sub(debt);
    // Holding for t costs t * 100 / cap and pays back t.
    room.saturating_mul(u64::from(cap)) / u64::from(100 - cap)
}

impl Device {
    /// The turn that was passed on is taken up. Only the owner counts, so there is one writer at a time.
    pub(crate) fn count_handoff(&self, now_ns: u64) {
        let passed = self.passed_ns.load(Ordering::Relaxed);
        if passed != 0 {
            let took = now_ns.saturating_sub(passed);
            self.last_handoff_ns.store(took, Ordering::Relaxed);
            self.handoff_times.count(took);
        }
    }
}

impl DeviceEntry {
    /// Returns the part of a hold until now that is charged to the holder's account.
    pub(crate) fn charged(&self, since_ns: u64, now_ns: u64) -> u64 {
        now_ns
            .saturating_sub(since_ns)
            .saturating_sub(self.late_ns.load(Ordering::Relaxed))
    }

    /// Returns how long a holder may go on before its cap requires a pause, in nanoseconds.
    pub(crate) fn cap_left(&self, cap: u32, since_ns: u64, now_ns: u64) -> u64 {
        let until = self.cap_until.load(Ordering::Relaxed);
        cap_left(until, cap, since_ns, self.charged(since_ns, now_ns), now_ns)
    }

    /// Counts a hold that has ended. Returns the part of it that was charged.
    pub(crate) fn count_hold(&self, since_ns: u64, now_ns: u64, reason: Reason, pace: Pace) -> u64 {
        let held = now_ns.saturating_sub(since_ns);
        let charged = self.charged(since_ns, now_ns);
        add(&self.held_ns, held);
        self.holds.count(held);
        add(&self.releases[reason as usize], 1);
        add(&self.vtime, virtual_ns(charged, pace.weight));
        self.charge_cap(charged, since_ns, pace);
        charged
    }

    /// Charges `charged` of the time since `since_ns` to a process that uses the device beside others (`lock::overlap`).
    pub(crate) fn charge(&self, charged: u64, since_ns: u64, pace: Pace) {
        add(&self.held_ns, charged);
        add(&self.vtime, virtual_ns(charged, pace.weight));
        self.charge_cap(charged, since_ns, pace);
    }

    fn charge_cap(&self, charged: u64, since_ns: u64, pace: Pace) {
        if let Some(cap) = pace.cap {
            let until = self.cap_until.load(Ordering::Relaxed);
            let until = cap_debt(until, cap, since_ns, charged);
            self.cap_until.store(until, Ordering::Relaxed);
        }
    }

    /// A wait has ended.
    pub(crate) fn count_wait(&self, waited_ns: u64) {
        add(&self.waited_ns, waited_ns);
        self.waits.count(waited_ns);
    }

    /// A step has ended with a wait of `ns` for the device: the waits for the lock since the last one belong to it too.
    pub(crate) fn count_step(&self, ns: u64) {
        let waited = self.waited_ns.load(Ordering::Relaxed);
        let before = self.step_waited_ns.swap(waited, Ordering::Relaxed);
        // Negative where another thread has ended a step between the two lines.
        let since = waited.wrapping_sub(before).cast_signed().max(0);
        self.steps.count(ns.saturating_add(since.cast_unsigned()));
    }

    /// The present step was delayed by `ns` in another way than by a wait for the lock.
    pub(crate) fn delay_step(&self, ns: u64) {
        self.step_waited_ns.fetch_sub(ns, Ordering::Relaxed);
    }

    /// Records a wait of `ns` for this owner word. Only the owners that cost most are kept.
    pub(crate) fn blame(&self, holder: u64, ns: u64) {
        let holder = who(holder);
        if holder == 0 || ns == 0 {
            return;
        }
        let known = self
            .blamed
            .iter()
            .find(|pair| pair[0].load(Ordering::Relaxed) == holder);
        if let Some(pair) = known {
            return add(&pair[1], ns);
        }
        let Some(least) = self
            .blamed
            .iter()
            .min_by_key(|pair| pair[1].load(Ordering::Relaxed))
        else {
            return;
        };
        least[1].store(ns, Ordering::Relaxed);
        least[0].store(holder, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_quarter_cap_makes_one_hold_cost_four_times_its_length() {
        assert_eq!(cap_debt(1000 * MS, 25, 500 * MS, 10 * MS), 1040 * MS);
    }

    #[test]
    fn time_waited_is_worth_no_more_than_the_credit() {
        assert_eq!(cap_debt(0, 50, 5000 * MS, 0), 4000 * MS);
    }

    #[test]
    fn a_lone_capped_holder_alternates_and_keeps_its_cap() {
        for cap in [1, 10, 30, 50, 90] {
            let (mut now, mut until, mut held) = (1_000_000 * MS, 1_000_000 * MS, 0);
            let start = now;
            while now - start < 10_000 * MS {
                now = now.max(until);
                let since = now;
                let left = cap_left(until, cap, since, 0, now);
                assert!(left > 0, "an eligible holder may hold");
                now += left.max(MS / 10);
                held += now - since;
                until = cap_debt(until, cap, since, now - since);
            }
            let share = held as f64 * 100.0 / (now - start) as f64;
            assert!(
                (share - f64::from(cap)).abs() < 1.0,
                "cap {cap} gave {share}"
            );
        }
    }
}
