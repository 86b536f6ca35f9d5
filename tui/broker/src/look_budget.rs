//! The time budget for inspecting the memory of processes. An inspection takes longer the more mappings the process has, which
//! its user chooses. Other clients wait while the broker inspects processes that have their slots from an earlier broker.

use std::time::{Duration, Instant};

use crate::account::Account;

/// Most time that inspections of one account's processes may take at once: more than all processes of an account need as a
/// rule.
const MOST: Duration = Duration::from_millis(300);
/// Used time is returned to the budget after this many times its length.
const REST: u32 = 9;

/// The time that each account has used of its budget.
#[derive(Default)]
pub struct LookBudget(Vec<(Account, Duration, Instant)>);

impl LookBudget {
    /// Makes a look at a process of an account, unless too much time went into that account's already.
    pub fn look<T>(&mut self, of: &Account, look: impl FnOnce() -> T) -> Option<T> {
        self.look_by(Instant::now, of, look)
    }

    /// Makes a look by this clock.
    fn look_by<T>(
        &mut self,
        clock: impl Fn() -> Instant,
        of: &Account,
        look: impl FnOnce() -> T,
    ) -> Option<T> {
        let begun = clock();
        let used = self.used(of, begun);
        if used >= MOST {
            return None;
        }
        let found = look();
        let now = clock();
        self.0
            .retain(|(known, used, at)| known != of && (now - *at) / REST < *used);
        self.0.push((of.clone(), used + (now - begun), now));
        Some(found)
    }

    fn used(&self, of: &Account, now: Instant) -> Duration {
        let known = self.0.iter().find(|(known, ..)| known == of);
        known.map_or(Duration::ZERO, |(_, used, at)| {
            used.saturating_sub(now.saturating_duration_since(*at) / REST)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn looks_that_take_long_are_made_for_a_while_and_keep_no_other_account_from_its_own() {
        let mut looks = LookBudget::default();
        let [slow, other] = [7, 8].map(Account::User);
        let part = Duration::from_millis(100);
        let now = Cell::new(Instant::now());
        let clock = || now.get();
        let made = (0..20).filter_map(|_| {
            let look = || now.set(now.get() + part);
            looks.look_by(clock, &slow, look)
        });
        assert_eq!(made.count(), 3);
        assert_eq!(looks.look_by(clock, &other, || 7), Some(7));
        now.set(now.get() + part * REST);
        assert_eq!(
            looks.look_by(clock, &slow, || 7),
            Some(7),
            "one part is over"
        );
        assert_eq!(looks.used(&slow, now.get() + MOST * REST), Duration::ZERO);
    }
}
