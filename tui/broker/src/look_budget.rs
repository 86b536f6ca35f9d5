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
        let begun = Instant::now();
        let used = self.used(of, begun);
        if used >= MOST {
            return None;
        }
        let found = look();
        let now = Instant::now();
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
    use super::*;

    #[test]
    fn looks_that_take_long_are_made_for_a_while_and_keep_no_other_account_from_its_own() {
        let mut looks = LookBudget::default();
        let [slow, other] = [7, 8].map(Account::User);
        let part = Duration::from_millis(100);
        let made = (0..20).filter_map(|_| looks.look(&slow, || std::thread::sleep(part)));
        // One more where the machine was busy and some of the time was returned.
        assert!((1..=4).contains(&made.count()));
        assert_eq!(looks.look(&slow, || 7), None);
        assert_eq!(looks.look(&other, || 7), Some(7));
        let later = Instant::now() + MOST * (REST + 1);
        assert_eq!(looks.used(&slow, later), Duration::ZERO);
    }
}
