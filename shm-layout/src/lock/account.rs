//! The virtual time and the cap that a waiter starts with: it gets no credit for the time it was away.

use super::{DeviceLock, POLL_NS, PULSE_NS, choose, order, stats, wait::Watch};
use crate::protocol::primitive::Ordering;

impl DeviceLock<'_> {
    /// A waiter that was stopped, paused or over its cap was away as well: it gets no pay for that time.
    pub(super) fn take_part_again(&self, now_ns: u64, watch: &mut Watch) {
        let held_back = self.own_slot.may_be_held_back() && !self.eligible(now_ns);
        let was_held_back = std::mem::replace(&mut watch.held_back, held_back);
        let stopped = now_ns.saturating_sub(self.words.pulse_ns.load(Ordering::Relaxed)) > PULSE_NS;
        if stopped || was_held_back && !held_back {
            self.open_account(now_ns);
        }
    }

    /// A process that was away is paid for little of that time.
    pub(super) fn open_account(&self, now_ns: u64) {
        self.start_virtual_time(now_ns);
        self.open_cap(now_ns);
    }

    /// Limits the unused part of the cap that a process keeps for later.
    pub(super) fn open_cap(&self, now_ns: u64) {
        if self.own_slot.may_be_held_back() {
            let least = now_ns.saturating_sub(stats::IDLE_CREDIT_NS);
            let until = self.words.cap_until.load(Ordering::Relaxed).max(least);
            let until = match self.own_slot.segments().is_brokered() {
                true => until.min(now_ns.saturating_add(self.longest_pause())),
                false => until,
            };
            self.words.cap_until.store(until, Ordering::Relaxed);
        }
    }

    /// Reckons the pause that is left by the present cap, if that was edited: what was used costs a larger cap less.
    pub(super) fn follow_cap(&self, cap: Option<u32>, now_ns: u64) {
        let cap = cap.unwrap_or(100).clamp(1, 100);
        let reckoned = &self.own_slot.cached_limits(self.entry).reckoned_cap;
        if reckoned.load(Ordering::Relaxed) == cap {
            return;
        }
        let before = reckoned.swap(cap, Ordering::Relaxed);
        let until = self.words.cap_until.load(Ordering::Relaxed);
        if before != 0 && before != cap && until > now_ns {
            let left = (until - now_ns).saturating_mul(before.into()) / u64::from(cap);
            let until = now_ns.saturating_add(left);
            self.words.cap_until.store(until, Ordering::Relaxed);
        }
    }

    /// Returns the longest pause that our cap can cause after a hold, in nanoseconds.
    pub(super) fn longest_pause(&self) -> u64 {
        let longest = self.hold_limit().saturating_add(self.policy().grace_ns);
        self.own_slot.share().cap.map_or(0, |cap| {
            longest.saturating_add(POLL_NS).saturating_mul(100) / u64::from(cap.max(1))
        })
    }

    /// Limits our virtual time, where other tenants may write it, to one turn more than the least of the active. A tenant that
    /// raises it once can then delay us only for a bounded time.
    pub(super) fn temper(&self, least: Option<u64>) {
        let Some(least) = least.filter(|_| self.own_slot.segments().is_brokered()) else {
            return;
        };
        let longest = self.hold_limit().saturating_add(self.policy().grace_ns);
        let turn = stats::virtual_ns(longest, self.own_slot.pace().weight);
        let most = least.saturating_add(turn);
        if self.words.vtime.load(Ordering::Relaxed) > most {
            self.words.vtime.store(most, Ordering::Relaxed);
        }
    }

    /// A newcomer starts at the least virtual time of the active, or where it was if it is back at once.
    fn start_virtual_time(&self, now_ns: u64) {
        let mut shares = self.own_slot.shares();
        let least = choose::least_active(
            self.own_slot.segments(),
            &mut shares,
            self.index,
            self.me,
            now_ns,
        );
        let away_ns = now_ns.saturating_sub(self.words.left_ns.load(Ordering::Relaxed));
        let floor = least.unwrap_or_else(|| self.device.floor.load(Ordering::Relaxed));
        let slack = self.words.slack_ns.load(Ordering::Relaxed);
        let floor = order::opening(floor, away_ns, slack);
        if self.words.vtime.load(Ordering::Relaxed) < floor {
            self.words.vtime.store(floor, Ordering::Relaxed);
        }
        drop(shares);
        self.temper(least);
        if least.is_none() {
            self.device
                .floor
                .fetch_max(self.words.vtime.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::pair::{MS, pair, queued, slices},
        *,
    };
    use crate::{Identity, LaunchLimits, Segments, ShareEdit, os::clock, register};

    #[test]
    fn a_waiter_that_was_stopped_gets_no_pay_for_it_and_nobody_starts_at_its_time() {
        let (dir, holder, waiter, entry) = pair(slices());
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = waiter.lock(entry);
        let mut watch = queued(&waiter, start);
        let later = start + 10_000 * MS;
        let segments = Segments::open_workload(dir.path()).expect("segments");
        let (identity, limits) = (Identity::default(), LaunchLimits::default());
        let third = register(&segments, &identity, &limits).expect("a slot");
        let third_entry = third.add_device([1; 16], 0, "", 1, 0).expect("an entry");
        third.lock(third_entry).enqueue(later);
        let vtime = |lock: &DeviceLock<'_>| lock.words.vtime.load(Ordering::Relaxed);
        assert!(vtime(&third.lock(third_entry)) >= 10_000 * MS);
        assert!(vtime(&waiter) < 1000 * MS, "it has not looked yet");
        waiter.take_part_again(later, &mut watch);
        assert!(vtime(&waiter) >= 10_000 * MS);
    }

    #[test]
    fn a_waiter_that_was_paused_gets_no_pay_for_it() {
        let (dir, holder, process, entry) = pair(slices());
        let operator = crate::Operator::open(dir.path()).expect("operator");
        let pause = |paused| {
            ShareEdit {
                paused: crate::Set::To(paused),
                ..ShareEdit::default()
            }
            .change(process.slot())
        };
        let start = clock::now();
        assert!(holder.lock(entry).try_acquire(start));
        let waiter = process.lock(entry);
        let mut watch = queued(&waiter, start);
        operator.edit(None, &pause(true), start).expect("edited");
        for look in 1..=100 {
            let now = start + look * POLL_NS;
            waiter.take_part_again(now, &mut watch);
            waiter.words.pulse_ns.store(now, Ordering::Relaxed);
        }
        let vtime = || waiter.words.vtime.load(Ordering::Relaxed);
        assert!(vtime() < 1000 * MS);
        operator.edit(None, &pause(false), start).expect("edited");
        waiter.take_part_again(start + 101 * POLL_NS, &mut watch);
        assert!(vtime() >= 5000 * MS, "{}", vtime());
    }
}
