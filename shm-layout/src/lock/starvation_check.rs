//! The starvation check: a waiter's own estimate of its turn, used where other tenants may write over the shared words.
//!
//! The check trusts the broker, the settings, and what the waiter has seen since it began to wait:
//!
//! * A process that came later has waited since then at most, whatever its words say.
//! * No process has more of a head start than one turn makes.
//! * The process that has the turn is charged for it.
//!
//! A waiter that by these rules deserves the device for longer than any holder may keep it was passed over because of forged
//! words. It then goes without turns for a while ([`UntrustedFallback`]), each time longer. Otherwise it would wait for as long
//! as another tenant chooses.

use super::{
    ACTIVE, Acquire, DeviceLock, STALL_NS, choose, entry_on, gang::CREDIT, order, order::AGE_NS,
    stats, waiters,
};
use crate::{
    cached_settings::UntrustedFallback,
    os::clock,
    protocol::{primitive::Ordering, turn::who},
    value::{Event, EventKind, MAX_PROCESSES, Order, Share, SlotId},
};

/// Time that hand-offs and late polls may add to a wait.
const SLACK_NS: u64 = 250_000_000;

/// Observations of one waiter since it began to wait.
pub(super) struct StarvationCheck {
    began_ns: u64,
    looked_ns: u64,
    looks: u32,
    /// By slot.
    seen: Vec<Option<Seen>>,
    /// For how long no other process deserved the device more.
    deserved_ns: u64,
}

/// Another process.
#[derive(Clone, Copy)]
struct Seen {
    id: SlotId,
    /// Earliest time from which the process can have waited.
    since_ns: u64,
    /// Virtual time that the process has left before it is level with us.
    ahead_ns: i128,
    /// The last look that found it in the queue.
    look: u32,
}

impl StarvationCheck {
    pub(super) fn begin(now_ns: u64) -> StarvationCheck {
        StarvationCheck {
            began_ns: now_ns,
            looked_ns: now_ns,
            looks: 0,
            seen: vec![None; MAX_PROCESSES],
            deserved_ns: 0,
        }
    }

    /// Polls once. Returns true if we were passed over for so long that the shared words cannot be true.
    pub(super) fn is_passed_over(&mut self, lock: &DeviceLock<'_>, owner: u64, now: u64) -> bool {
        let policy = lock.policy();
        let hold_limit = lock.own_slot.segments().hold_limit(&policy);
        let limit = hold_limit.saturating_add(policy.grace_ns);
        let passed = now.saturating_sub(self.looked_ns).min(STALL_NS);
        self.looks += 1;
        let share = lock.own_slot.share();
        let others = self.others(lock, owner, &share, limit, passed, now);
        let before = |other: &Rival| self.precedes(other, &share, policy.order, hold_limit, now);
        let deserves = self.may_have_it(lock, &share, now) && !others.iter().any(before);
        self.deserved_ns = match deserves {
            true => self.deserved_ns + passed,
            false => 0,
        };
        self.looked_ns = now;
        let gangs = CREDIT * hold_limit.min(SLACK_NS / CREDIT);
        let patience = limit + (policy.grace_ns / 4).max(20_000_000) + gangs + SLACK_NS;
        self.deserved_ns > patience
    }

    /// Returns true if neither a pause nor our cap keeps us from the lock. A pause that a cap requires is bounded.
    fn may_have_it(&self, lock: &DeviceLock<'_>, share: &Share, now: u64) -> bool {
        let waited = now.saturating_sub(self.began_ns);
        !share.paused && (lock.eligible(now) || waited > lock.longest_pause())
    }

    /// Lists the others that want the device, and the one that has it.
    fn others(
        &mut self,
        lock: &DeviceLock<'_>,
        owner: u64,
        share: &Share,
        limit: u64,
        passed: u64,
        now: u64,
    ) -> Vec<Rival> {
        let segments = lock.own_slot.segments();
        let state = segments.state();
        // No process is further behind us than one turn of ours.
        let most = i128::from(stats::virtual_ns(limit, share.weight));
        let mine = i128::from(lock.words.vtime.load(Ordering::Relaxed));
        let ahead = |first: bool, vtime: u64| match first {
            true => (mine - i128::from(vtime)).clamp(0, most),
            false => 0,
        };
        let mut rivals = Vec::new();
        let bits = lock.device.turn().waiting();
        for (id, slot, entry) in waiters(state, lock.index, &bits) {
            if id.to_word() == lock.me || !segments.is_current(id) {
                continue;
            }
            let mut shares = lock.own_slot.shares();
            let Some(its) = choose::takes_part(segments, &mut shares, id, slot, entry, now) else {
                continue;
            };
            let claimed = entry.lock_since.load(Ordering::Relaxed);
            let vtime = entry.vtime.load(Ordering::Relaxed);
            let seen = self.seen_of(id, |first| ahead(first, vtime));
            rivals.push(Rival {
                share: its,
                since_ns: claimed.max(seen.since_ns),
                ahead_ns: seen.ahead_ns,
            });
        }
        let holder = SlotId::from_word(who(owner)).filter(|id| owner_is_real(lock, *id));
        if let Some((id, slot)) =
            holder.and_then(|id| Some((id, state.slots.get(usize::from(id.index))?)))
        {
            let vtime =
                entry_on(slot, lock.index).map_or(0, |entry| entry.vtime.load(Ordering::Relaxed));
            let its = lock.share_of(id, slot, now);
            let seen = self.seen_of(id, |first| ahead(first, vtime));
            seen.since_ns = now;
            seen.ahead_ns -= i128::from(stats::virtual_ns(passed, its.weight));
            rivals.push(Rival {
                since_ns: now,
                ahead_ns: seen.ahead_ns,
                share: its,
            });
        }
        rivals
    }

    /// Returns the observations of a process that wants the device now, or has it.
    fn seen_of(&mut self, id: SlotId, ahead_ns: impl FnOnce(bool) -> i128) -> &mut Seen {
        let (look, first) = (self.looks, self.looks == 1);
        let before = if first { 0 } else { self.looked_ns };
        let place = &mut self.seen[usize::from(id.index)];
        if let Some(seen) = place.as_mut().filter(|seen| seen.id == id)
            && seen.look + 1 < look
        {
            // It was away.
            seen.since_ns = before;
        }
        if place.is_none_or(|seen| seen.id != id) {
            *place = None;
        }
        let seen = place.get_or_insert_with(|| Seen {
            id,
            since_ns: before,
            ahead_ns: ahead_ns(first),
            look,
        });
        seen.look = look;
        seen
    }

    fn precedes(
        &self,
        other: &Rival,
        share: &Share,
        order: Order,
        hold_limit: u64,
        now: u64,
    ) -> bool {
        let waited = |since_ns: u64| i128::from(now.saturating_sub(since_ns));
        let (mine, its) = (waited(self.began_ns), waited(other.since_ns));
        let steps = |share: &Share| i128::from(share.priority) * i128::from(AGE_NS);
        match order {
            Order::Fifo => its > mine,
            Order::Priority => steps(&other.share) + its > steps(share) + mine,
            Order::Fair => other.ahead_ns > 0,
            // Its holds may be as short as can be, and ours as long.
            Order::Shortest => {
                (its - mine) / i128::from(order::AGE_DIVISOR) > -i128::from(hold_limit)
            }
        }
    }
}

/// A process that wants the device now, or has it.
struct Rival {
    share: Share,
    since_ns: u64,
    ahead_ns: i128,
}

fn owner_is_real(lock: &DeviceLock<'_>, id: SlotId) -> bool {
    id.to_word() != lock.me && lock.own_slot.segments().is_current(id)
}

impl DeviceLock<'_> {
    /// Returns true while this process goes without turns because the shared words are not trusted.
    #[inline]
    pub(super) fn in_untrusted_fallback(&self) -> bool {
        self.untrusted_fallback().is_active(clock::now)
    }

    pub(super) fn untrusted_fallback(&self) -> &UntrustedFallback {
        &self.own_slot.cached_limits(self.entry).untrusted_fallback
    }

    /// Starts a period without turns.
    pub(super) fn enter_untrusted_fallback(
        &self,
        slot: usize,
        began_ns: u64,
        now_ns: u64,
    ) -> Acquire {
        self.untrusted_fallback().begin(now_ns);
        self.device.turn().leave(slot);
        // By the words, this process is inside while another claims to be.
        self.device.violations.fetch_add(1, Ordering::Relaxed);
        let waited_ns = now_ns.saturating_sub(began_ns);
        self.words.count_wait(waited_ns);
        self.submit_in_fallback(waited_ns, now_ns)
    }

    /// Begins a turn that is not recorded in any shared word.
    pub(super) fn submit_in_fallback(&self, waited_ns: u64, now_ns: u64) -> Acquire {
        self.words.lock_since.store(now_ns, Ordering::Relaxed);
        self.words.lock_state.store(ACTIVE, Ordering::Relaxed);
        self.words.acquisitions.fetch_add(1, Ordering::Relaxed);
        self.publish(Event {
            arg0: waited_ns,
            ..Event::of(now_ns, self.own_slot.slot(), EventKind::Hold)
        });
        Acquire::Held { waited_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            POLL_NS,
            tests::pair::{MS, pair, queued},
        },
        *,
    };
    use crate::{LockPolicy, PolicyKind};

    /// After how long a waiter knows that it is passed over, if `write` is done before each of its looks; for ten seconds.
    fn patience(
        order: Order,
        write: impl Fn(&DeviceLock<'_>, &DeviceLock<'_>, u64),
    ) -> Option<u64> {
        let (_dir, holder, waiter, entry) = pair(LockPolicy {
            kind: PolicyKind::Timeslice(5 * MS),
            grace_ns: 200 * MS,
            order,
            ..LockPolicy::default()
        });
        let start = clock::now();
        let holder = holder.lock(entry);
        assert!(holder.try_acquire(start));
        let waiter = waiter.lock(entry);
        queued(&waiter, start);
        let mut starvation_check = StarvationCheck::begin(start);
        (1..200).find_map(|look| {
            let now = start + look * POLL_NS;
            waiter.words.pulse_ns.store(now, Ordering::Relaxed);
            holder.words.pulse_ns.store(now, Ordering::Relaxed);
            write(&holder, &waiter, now);
            let owner = waiter.device.turn().owner();
            let over = starvation_check.is_passed_over(&waiter, owner, now);
            over.then_some(now - start)
        })
    }

    #[test]
    fn a_holder_that_drains_as_long_as_it_may_passes_nobody_over() {
        for order in Order::ALL {
            let least = patience(order, |_, _, _| {}).expect("no holder may hold for ten seconds");
            // The longest a holder can delay a waiter: its slice, its grace, and the time of the process that forces the
            // release.
            assert!(least > 255 * MS, "{order:?}: {least}");
        }
    }

    #[test]
    fn whatever_is_written_a_waiter_knows_within_a_second_that_it_is_passed_over() {
        for order in Order::ALL {
            let knows = patience(order, |holder, waiter, now| {
                let device = waiter.device;
                let turn = device.owner.load(Ordering::Relaxed) >> 48;
                device
                    .owner
                    .store(turn.wrapping_add(1) << 48 | holder.me, Ordering::Relaxed);
                device.waiters[0].store(1, Ordering::Relaxed);
                device.owner_since.store(now, Ordering::Relaxed);
                holder.words.lock_since.store(0, Ordering::Relaxed);
                holder.words.vtime.store(0, Ordering::Relaxed);
                waiter.words.vtime.store(u64::MAX >> 1, Ordering::Relaxed);
                waiter
                    .words
                    .lock_since
                    .store(u64::MAX >> 1, Ordering::Relaxed);
            });
            assert!(
                knows.is_some_and(|knows| knows <= 1000 * MS),
                "{order:?}: {knows:?}"
            );
        }
    }

    #[test]
    fn who_is_passed_over_again_and_again_goes_without_turns_for_longer_each_time() {
        let untrusted_fallback = UntrustedFallback::default();
        let mut now = 1;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            untrusted_fallback.begin(now);
            now += seconds * 1000 * MS;
            assert!(
                untrusted_fallback.is_active(|| now - 1) && !untrusted_fallback.is_active(|| now)
            );
        }
        now += 1_000_000 * MS;
        untrusted_fallback.begin(now);
        assert!(
            !untrusted_fallback.is_active(|| now + 1000 * MS),
            "that was long ago"
        );
    }
}
