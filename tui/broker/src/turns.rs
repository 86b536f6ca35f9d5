//! The order in which clients' messages are answered.
//!
//! A client that has sent something waits in its account's queue. The accounts are served in turns, one message each, so
//! that an account with many messages delays the others by one answer. An account has an [allowance](MESSAGES) of
//! connections and messages, because an answer takes time of the broker that all accounts share.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use super::clients::{Allowance, Budget};
use crate::account::Account;

/// Allowance of connections and messages for one account. A job with as many processes as a user may have asks for a slot
/// for each, and for the accounts of all others, sixteen in a message.
const MESSAGES: Allowance = Allowance {
    most: 8192.0,
    a_second: 2000.0,
};
/// Cost in messages of a connection that closes the account's oldest one.
const DISPLACED: f64 = 32.0;
/// Number of accounts above which those with a full allowance and no waiting client are forgotten.
const REMEMBERED: usize = 1000;

/// The queues of clients that have sent something, by account.
#[derive(Default)]
pub struct Turns {
    accounts: BTreeMap<Account, Turn>,
    /// Account that was served last.
    last: Option<Account>,
}

struct Turn {
    /// Waiting clients, by number.
    clients: VecDeque<u64>,
    budget: Budget,
}

impl Turn {
    fn left(&self, now: Instant) -> f64 {
        self.budget.left(&MESSAGES, now)
    }
}

impl Turns {
    /// Returns true if the account's allowance is used up.
    pub fn is_spent(&self, of: &Account, now: Instant) -> bool {
        let turn = self.accounts.get(of);
        turn.is_some_and(|turn| turn.left(now) < 1.0)
    }

    /// Takes a connection from the account's allowance. Returns false if it is used up.
    pub fn connects(&mut self, of: &Account, now: Instant) -> bool {
        self.turn(of, now).budget.take(&MESSAGES, now)
    }

    /// Takes what a connection costs that closed another one of the account. Such a flood spends its allowance at once; then
    /// it is refused without a look in `/proc`, and others wait only for that.
    pub fn displaces(&mut self, of: &Account, now: Instant) {
        self.turn(of, now).budget.pay(DISPLACED, &MESSAGES, now);
    }

    /// Queues a client.
    pub fn wait(&mut self, of: &Account, number: u64, now: Instant) {
        self.turn(of, now).clients.push_back(number);
    }

    fn turn(&mut self, of: &Account, now: Instant) -> &mut Turn {
        if self.accounts.len() > REMEMBERED && !self.accounts.contains_key(of) {
            self.accounts
                .retain(|_, turn| !turn.clients.is_empty() || turn.left(now) < MESSAGES.most);
        }
        self.accounts.entry(of.clone()).or_insert_with(|| Turn {
            clients: VecDeque::new(),
            budget: Budget::new(&MESSAGES, now),
        })
    }

    /// Returns the next client: the first of the next account that has allowance left.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        let begin = self.last.as_ref().map_or(Unbounded, Excluded);
        let behind = self.accounts.range((begin, Unbounded));
        let mut all = behind.chain(&self.accounts);
        let waits = |turn: &Turn| !turn.clients.is_empty() && turn.left(now) >= 1.0;
        let (of, _) = all.find(|(_, turn)| waits(turn))?;
        let of = of.clone();
        let turn = self.accounts.get_mut(&of)?;
        turn.budget.take(&MESSAGES, now);
        let number = turn.clients.pop_front();
        self.last = Some(of);
        number
    }

    /// Returns the time until the next turn, or `None` if no client waits.
    pub fn until_next(&self, now: Instant) -> Option<Duration> {
        let waiting = self.accounts.values();
        let waiting = waiting.filter(|turn| !turn.clients.is_empty());
        let missing = waiting.map(|turn| (1.0 - turn.left(now)).max(0.0));
        let least = missing.min_by(f64::total_cmp)?;
        Some(Duration::from_secs_f64(least / MESSAGES.a_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_without_end_keeps_another_account_waiting_for_one_answer() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let [busy, quiet] = [7, 3].map(Account::User);
        assert_eq!(turns.until_next(now), None);
        (0..5).for_each(|number| turns.wait(&busy, number, now));
        assert_eq!(turns.next(now), Some(0));
        turns.wait(&quiet, 100, now);
        turns.wait(&quiet, 101, now);
        assert_eq!(turns.until_next(now), Some(Duration::ZERO));
        let order: Vec<u64> = std::iter::from_fn(|| turns.next(now)).collect();
        assert_eq!(order, [100, 1, 101, 2, 3, 4]);
    }

    #[test]
    fn an_account_that_has_spent_its_allowance_waits_alone() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let [busy, quiet] = [Account::User(7), Account::Container(String::new())];
        let connected = (0..100_000).filter(|_| turns.connects(&busy, now)).count();
        assert_eq!(connected, MESSAGES.most as usize);
        assert!(turns.is_spent(&busy, now) && !turns.is_spent(&quiet, now));
        turns.wait(&busy, 1, now);
        turns.wait(&quiet, 2, now);
        assert_eq!(turns.next(now), Some(2));
        assert_eq!(turns.next(now), None);
        let soon = turns.until_next(now).expect("one waits");
        assert!(soon > Duration::ZERO && soon < Duration::from_millis(5));
        assert_eq!(turns.next(now + 2 * soon), Some(1));
    }

    #[test]
    fn a_flood_of_connections_that_close_each_other_is_soon_refused() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let [flood, quiet] = [7, 3].map(Account::User);
        let displaced = (0..100_000).take_while(|_| {
            let connects = turns.connects(&flood, now);
            turns.displaces(&flood, now);
            connects
        });
        assert!(displaced.count() <= 300);
        assert!(turns.is_spent(&flood, now) && !turns.is_spent(&quiet, now));
    }

    #[test]
    fn who_has_not_asked_for_a_while_is_forgotten() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        for uid in 0..3000 {
            let later = now + Duration::from_secs(u64::from(uid));
            assert!(turns.connects(&Account::User(uid), later));
        }
        assert!(turns.accounts.len() <= REMEMBERED + 1);
    }
}
