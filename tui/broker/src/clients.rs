//! The connections that are open, bounded for each user and in time: a user who connects and says nothing takes nothing
//! from others.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shm_layout::SlotId;
use shm_layout::broker::Account;
use shm_layout::peer::Peer;

/// How long a client may say nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many connections one user may have; as many as there are slots come at once when a job starts.
const PER_USER: usize = 300;
/// How many edits one account may ask for at once, one for each of all slots, and how fast that fills up again.
const EDITS: Allowance = Allowance {
    most: 256.0,
    a_second: 0.5,
};
/// How many refusals of one account are written down: one who tries all day must not drive the others' lines out of the log.
const REFUSALS: Allowance = Allowance {
    most: 100.0,
    a_second: 0.03,
};

/// Of so many accounts is remembered what is left of their allowances.
const MOST_ACCOUNTS: usize = 1000;

/// A connection.
pub struct Client {
    pub socket: OwnedFd,
    pub peer: Arc<Peer>,
    /// The user that it is, whatever number it has.
    pub user: u32,
    /// Whose connections it is one of: a container's root takes none from the machine's. Its container is known once it has a slot.
    pub of: Account,
    /// The slot that it was given on this connection.
    pub given: Option<SlotId>,
    /// The kernel tells when it says something.
    pub is_watched: bool,
    until: Instant,
}

/// All of them.
#[derive(Default)]
pub struct Clients {
    /// Slots given to clients that have gone since.
    begun: Vec<SlotId>,
    open: BTreeMap<u64, Client>,
    next: u64,
    budgets: Vec<(Account, Budgets)>,
}

/// So much at once, and so much more with time.
pub(super) struct Allowance {
    pub(super) most: f64,
    pub(super) a_second: f64,
}

/// What is left of an allowance.
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
        self.left = self.left(of, now);
        self.at = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

/// An account's.
struct Budgets {
    edits: Budget,
    refusals: Budget,
    /// Refusals that were not written down.
    untold: u64,
}

impl Clients {
    /// Takes one in: its number. A user who has too many loses the oldest.
    pub fn take_in(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        (user, of): (u32, Account),
        now: Instant,
    ) -> u64 {
        let theirs = self.open.iter().filter(|(_, one)| one.of == of);
        let (oldest, has) = theirs.fold((None, 0), |(oldest, has), (number, _)| {
            (oldest.or(Some(*number)), has + 1)
        });
        if let (Some(oldest), true) = (oldest, has >= PER_USER) {
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
        number
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Lets go of the oldest of the user who has most, unless nobody has more than one; whether it did.
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

    /// One of them.
    pub fn get(&mut self, number: u64) -> Option<&mut Client> {
        self.open.get_mut(&number)
    }

    /// Lets one go.
    pub fn let_go(&mut self, number: u64) {
        let gone = self.open.remove(&number);
        self.begun.extend(gone.and_then(|client| client.given));
    }

    /// The slots of those that were let go since the last look: their processes have what came with the slot.
    pub fn begun(&mut self) -> impl Iterator<Item = SlotId> {
        self.begun.drain(..)
    }

    /// Lets go of those whose time is over; when the next one's is.
    pub fn sweep(&mut self, now: Instant) -> Option<Instant> {
        let begun = &mut self.begun;
        self.open.retain(|_, client| {
            let stays = client.until > now;
            begun.extend(client.given.filter(|_| !stays));
            stays
        });
        self.open.values().map(|client| client.until).min()
    }

    /// Whether one more edit may be asked for now.
    pub fn may_ask(&mut self, account: &Account, now: Instant) -> bool {
        self.budgets(account, now).edits.take(&EDITS, now)
    }

    /// Whether one more refusal is written down now, and how many before it were not.
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
                // Who has most of its allowance loses least.
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
        // However many others come, it is not forgotten while it goes on asking.
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
