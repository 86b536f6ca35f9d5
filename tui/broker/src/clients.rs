//! The open connections. Their number for each user and their idle time are limited, so that a user who connects and sends
//! nothing takes nothing from others.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shm_layout::SlotId;
use shm_layout::peer::Peer;

use crate::account::Account;

/// Maximum time that a client may send nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of connections of one user. A job's start may open as many at once as there are slots.
const PER_USER: usize = 300;
/// Allowance of edits for one account: one for each of all slots at once.
const EDITS: Allowance = Allowance {
    most: 256.0,
    a_second: 0.5,
};
/// Allowance of refusals that are logged for one account, so that an account that repeats them all day does not push the
/// others' lines out of the log.
const REFUSALS: Allowance = Allowance {
    most: 100.0,
    a_second: 0.03,
};

/// Maximum number of accounts whose budgets are kept.
const MOST_ACCOUNTS: usize = 1000;

/// A client's open connection.
pub struct Client {
    pub socket: OwnedFd,
    pub peer: Arc<Peer>,
    /// User of the client; see `client_privileges::user`.
    pub user: u32,
    /// Account that the connection is charged to, so that a container's root takes no connections from the machine's. The
    /// container is known once the client has a slot.
    pub of: Account,
    /// Slot that was given on this connection.
    pub given: Option<SlotId>,
    /// True while the kernel reports further data on the socket.
    pub is_watched: bool,
    until: Instant,
}

/// The open connections, by number.
#[derive(Default)]
pub struct Clients {
    /// Slots of clients whose connections have closed since.
    begun: Vec<SlotId>,
    open: BTreeMap<u64, Client>,
    next: u64,
    budgets: Vec<(Account, Budgets)>,
}

/// A token bucket: its burst size and its refill rate per second.
pub(super) struct Allowance {
    pub(super) most: f64,
    pub(super) a_second: f64,
}

/// The tokens that are left of an allowance.
pub(super) struct Budget {
    left: f64,
    at: Instant,
}

impl Budget {
    pub(super) fn new(of: &Allowance, at: Instant) -> Self {
        Self { left: of.most, at }
    }

    pub(super) fn left(&self, of: &Allowance, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + passed * of.a_second).min(of.most)
    }

    pub(super) fn take(&mut self, of: &Allowance, now: Instant) -> bool {
        let may = self.left(of, now) >= 1.0;
        if may {
            self.pay(1.0, of, now);
        }
        may
    }

    /// Takes this many tokens, or what is left.
    pub(super) fn pay(&mut self, tokens: f64, of: &Allowance, now: Instant) {
        self.left = (self.left(of, now) - tokens).max(0.0);
        self.at = now;
    }
}

/// The budgets of one account.
struct Budgets {
    edits: Budget,
    refusals: Budget,
    /// Number of refusals that were not logged.
    untold: u64,
}

impl Clients {
    /// Adds a connection. Returns its number, and true if the account had too many, so that its oldest one was closed.
    pub fn take_in(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        (user, of): (u32, Account),
        now: Instant,
    ) -> (u64, bool) {
        let theirs = self.open.iter().filter(|(_, one)| one.of == of);
        let (oldest, has) = theirs.fold((None, 0), |(oldest, has), (number, _)| {
            (oldest.or(Some(*number)), has + 1)
        });
        let displaced = oldest.filter(|_| has >= PER_USER);
        if let Some(oldest) = displaced {
            self.let_go(oldest);
        }
        let number = self.next;
        self.next += 1;
        let client = Client {
            socket,
            peer: Arc::new(peer),
            user,
            of,
            given: None,
            is_watched: false,
            until: now + PATIENCE,
        };
        self.open.insert(number, client);
        (number, displaced.is_some())
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Closes the oldest connection of the account with the most. Returns false if no account has more than one.
    pub fn make_room(&mut self) -> bool {
        let mut of_user: Vec<(&Account, usize, u64)> = Vec::new();
        for (number, client) in &self.open {
            match of_user.iter_mut().find(|(of, ..)| **of == client.of) {
                Some((_, has, _)) => *has += 1,
                None => of_user.push((&client.of, 1, *number)),
            }
        }
        let all = of_user.into_iter().map(|(_, has, oldest)| (has, oldest));
        let most = all.max_by_key(|(has, _)| *has);
        match most.filter(|(has, _)| *has > 1) {
            Some((_, oldest)) => {
                self.let_go(oldest);
                true
            }
            None => false,
        }
    }

    /// Returns the connection with this number.
    pub fn get(&mut self, number: u64) -> Option<&mut Client> {
        self.open.get_mut(&number)
    }

    /// Closes a connection.
    pub fn let_go(&mut self, number: u64) {
        let gone = self.open.remove(&number);
        self.begun.extend(gone.and_then(|client| client.given));
    }

    /// Returns the slots of connections that were closed since the last call. Their processes have received what came with
    /// the slot.
    pub fn begun(&mut self) -> impl Iterator<Item = SlotId> {
        self.begun.drain(..)
    }

    /// Closes the connections whose time is over. Returns the time at which the next one ends.
    pub fn sweep(&mut self, now: Instant) -> Option<Instant> {
        let begun = &mut self.begun;
        self.open.retain(|_, client| {
            let stays = client.until > now;
            begun.extend(client.given.filter(|_| !stays));
            stays
        });
        self.open.values().map(|client| client.until).min()
    }

    /// Takes one edit from the account's allowance. Returns false if it is used up.
    pub fn may_ask(&mut self, account: &Account, now: Instant) -> bool {
        self.budgets(account, now).edits.take(&EDITS, now)
    }

    /// Takes one refusal from the account's allowance. Returns the number of earlier refusals that were not logged, or
    /// `None` if this one is not logged either.
    pub fn may_be_told(&mut self, account: &Account, now: Instant) -> Option<u64> {
        let budgets = self.budgets(account, now);
        if budgets.refusals.take(&REFUSALS, now) {
            return Some(std::mem::take(&mut budgets.untold));
        }
        budgets.untold += 1;
        None
    }

    fn budgets(&mut self, account: &Account, now: Instant) -> &mut Budgets {
        let known = self.budgets.iter().position(|(of, _)| of == account);
        let at = known.unwrap_or_else(|| {
            if self.budgets.len() == MOST_ACCOUNTS {
                // The account with the fullest budgets loses least if it is dropped.
                let left = |(_, one): &(Account, Budgets)| {
                    let refusals = one.refusals.left(&REFUSALS, now) / REFUSALS.most;
                    one.edits.left(&EDITS, now) / EDITS.most + refusals
                };
                let known = self.budgets.iter().enumerate();
                let fullest = known.max_by(|(_, a), (_, b)| left(a).total_cmp(&left(b)));
                self.budgets.swap_remove(fullest.map_or(0, |(at, _)| at));
            }
            let budgets = Budgets {
                edits: Budget::new(&EDITS, now),
                refusals: Budget::new(&REFUSALS, now),
                untold: 0,
            };
            self.budgets.push((account.clone(), budgets));
            self.budgets.len() - 1
        });
        &mut self.budgets[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_too_often_is_heard_again_after_a_while() {
        let mut clients = Clients::default();
        let start = Instant::now();
        let one = Account::Container("web".to_owned());
        let heard = (0..1000).filter(|_| clients.may_ask(&one, start)).count();
        assert_eq!(heard, EDITS.most as usize);
        assert!(
            clients.may_ask(&Account::User(8), start),
            "another is heard"
        );
        assert!(clients.may_ask(&one, start + Duration::from_secs(3)));
        // An account that keeps asking is kept, although many others come.
        let (later, mut heard) = (start + Duration::from_secs(3), 0);
        for uid in 0..3 * MOST_ACCOUNTS as u32 {
            clients.may_ask(&Account::User(uid), later);
            heard += usize::from(clients.may_ask(&one, later));
        }
        assert_eq!(heard, 0);
    }

    #[test]
    fn of_a_thousand_refusals_some_are_told_and_the_rest_is_counted() {
        let mut clients = Clients::default();
        let (start, one) = (Instant::now(), Account::User(7));
        let told = (0..1000)
            .filter_map(|_| clients.may_be_told(&one, start))
            .count();
        assert_eq!(told, REFUSALS.most as usize);
        let later = start + Duration::from_secs(60);
        assert_eq!(clients.may_be_told(&one, later), Some(1000 - told as u64));
        assert_eq!(clients.may_be_told(&one, later), None);
    }
}
