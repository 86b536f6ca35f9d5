//! The connections that are open, bounded for each user and in time: a user who connects and says nothing takes nothing
//! from others.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use shm_layout::peer::Peer;

/// How long a client may say nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many connections one user may have; as many as there are slots come at once when a job starts.
const PER_USER: usize = 300;
/// How many edits one user may ask for at once, and how fast that fills up again.
const EDITS: f64 = 30.0;
const EDITS_A_SECOND: f64 = 5.0;

/// A connection.
pub struct Client {
    pub socket: OwnedFd,
    pub peer: Peer,
    /// It has been handed the segments.
    pub opened: bool,
    until: Instant,
}

/// All of them.
#[derive(Default)]
pub struct Clients {
    open: BTreeMap<u64, Client>,
    next: u64,
    budgets: BTreeMap<u32, Budget>,
}

/// How many edits a user may ask for.
struct Budget {
    left: f64,
    at: Instant,
}

impl Clients {
    /// Takes one in: its number. A user who has too many loses the oldest.
    pub fn take_in(&mut self, socket: OwnedFd, peer: Peer, now: Instant) -> u64 {
        let theirs = self.open.iter().filter(|(_, one)| one.peer.uid == peer.uid);
        let (oldest, has) = theirs.fold((None, 0), |(oldest, has), (number, _)| {
            (oldest.or(Some(*number)), has + 1)
        });
        if let (Some(oldest), true) = (oldest, has >= PER_USER) {
            self.open.remove(&oldest);
        }
        let number = self.next;
        self.next += 1;
        let client = Client {
            socket,
            peer,
            opened: false,
            until: now + PATIENCE,
        };
        self.open.insert(number, client);
        number
    }

    /// One of them.
    pub fn get(&mut self, number: u64) -> Option<&mut Client> {
        self.open.get_mut(&number)
    }

    /// Lets one go.
    pub fn let_go(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// Lets go of those whose time is over; when the next one's is.
    pub fn sweep(&mut self, now: Instant) -> Option<Instant> {
        self.open.retain(|_, client| client.until > now);
        self.open.values().map(|client| client.until).min()
    }

    /// Whether a user may ask for one more edit now.
    pub fn may_ask(&mut self, uid: u32, now: Instant) -> bool {
        if self.budgets.len() > 10_000 {
            self.budgets.clear();
        }
        let budget = self.budgets.entry(uid).or_insert(Budget {
            left: EDITS,
            at: now,
        });
        let passed = now.saturating_duration_since(budget.at).as_secs_f64();
        budget.at = now;
        budget.left = (budget.left + passed * EDITS_A_SECOND).min(EDITS);
        let may = budget.left >= 1.0;
        if may {
            budget.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_too_often_is_heard_again_after_a_while() {
        let mut clients = Clients::default();
        let start = Instant::now();
        let heard = (0..1000).filter(|_| clients.may_ask(7, start)).count();
        assert_eq!(heard, EDITS as usize);
        assert!(clients.may_ask(8, start), "another user is heard");
        assert!(clients.may_ask(7, start + Duration::from_secs(1)));
    }
}
