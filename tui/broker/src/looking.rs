//! A thread that checks if processes still have their slots' accounts mapped.
//!
//! The time of a check grows with the number of the process's mappings, which its user chooses. So a process is checked
//! once for all of its slots, the accounts are served in turns, and the checks of one account's processes take at most a
//! tenth of the time. A process is not checked again before its check has ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use shm_layout::{MAX_PROCESSES, SlotId};

use crate::account::Account;
use crate::mappings::{Accounts, let_go};
use gpushare_base::host::procfs::Late;

/// Pause of an account after a check, as a multiple of the check's time.
const REST: u32 = 9;

/// A process to check.
pub struct Look {
    /// Account that its slots are charged to.
    pub account: Account,
    pub pid: u32,
    /// Slots of the process, with the accounts that it must have mapped.
    pub slots: Vec<(SlotId, Accounts)>,
}

/// The thread, and the channel with its results.
pub struct Looking {
    orders: Sender<Look>,
    found: Receiver<Vec<SlotId>>,
    bell: Arc<OwnedFd>,
}

impl Looking {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (outbox, found) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let theirs = Arc::clone(&bell);
        let report = move |slots: Vec<SlotId>| {
            let sent = outbox.send(slots).is_ok();
            let _ = rustix::io::write(&*theirs, &1_u64.to_ne_bytes());
            sent
        };
        std::thread::Builder::new()
            .name("looker".into())
            .stack_size(256 << 10)
            .spawn(move || look(&inbox, report))?;
        Ok(Self {
            orders,
            found,
            bell,
        })
    }

    /// Queues a process for a check. A process that is already queued is checked once.
    pub fn order(&self, look: Look) {
        // The thread lives as long as this value, so sending cannot fail.
        let _ = self.orders.send(look);
    }

    /// Returns a descriptor that is readable when there is a result.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Returns the slots whose processes no longer have the accounts mapped, as found since the last call.
    pub fn found(&self) -> Vec<SlotId> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.found.try_iter().flatten().collect()
    }
}

/// Runs the thread until one of its channels is closed.
fn look(inbox: &Receiver<Look>, report: impl Fn(Vec<SlotId>) -> bool) {
    let mut queue = Queue::default();
    let mut late: HashMap<u32, Late> = HashMap::new();
    loop {
        let ordered = match queue.wait(Instant::now()) {
            None => inbox.recv().map_err(RecvTimeoutError::from),
            Some(wait) => inbox.recv_timeout(wait),
        };
        match ordered {
            Ok(look) => {
                queue.add(look);
                inbox.try_iter().for_each(|look| queue.add(look));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let begun = Instant::now();
        late.retain(|_, late| !late.has_ended());
        let Some(Look {
            account,
            pid,
            slots,
        }) = queue.next(begun)
        else {
            continue;
        };
        if late.contains_key(&pid) {
            continue;
        }
        let found = let_go(pid, slots);
        let now = Instant::now();
        queue.rests(account, now + (now - begun) * REST);
        let goes_on = match found {
            Ok(slots) => slots.is_empty() || report(slots),
            Err(lasts) => {
                late.insert(pid, lasts);
                true
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// The processes that wait for a check, in the order of their arrival.
#[derive(Default)]
struct Queue {
    looks: Vec<Look>,
    /// Accounts with their last check, the latest at the end, and the end of each pause.
    resting: Vec<(Account, Instant)>,
}

impl Queue {
    /// Adds a process. If it is already queued, the new request replaces the old one.
    fn add(&mut self, look: Look) {
        match self.looks.iter_mut().find(|one| one.pid == look.pid) {
            Some(one) => *one = look,
            None => self.looks.push(look),
        }
    }

    /// Returns the time until the next check, if one is queued.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let until = self.looks.iter().map(|look| self.until(&look.account));
        let next = until.min()?;
        Some(next.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)))
    }

    /// Returns the end of an account's pause, if there is one.
    fn until(&self, account: &Account) -> Option<Instant> {
        let resting = self.resting.iter().find(|(of, _)| of == account);
        resting.map(|(_, until)| *until)
    }

    /// Returns the next check: of the account whose last check is the oldest, if its pause is over.
    fn next(&mut self, now: Instant) -> Option<Look> {
        let turn = |look: &Look| {
            let last = self.resting.iter().position(|(of, _)| *of == look.account);
            last.map_or(0, |last| last + 1)
        };
        let ready = self.looks.iter().enumerate().filter(|(_, look)| {
            let until = self.until(&look.account);
            until.is_none_or(|until| until <= now)
        });
        let (index, _) = ready.min_by_key(|(_, look)| turn(look))?;
        Some(self.looks.remove(index))
    }

    /// Records the end of an account's check.
    fn rests(&mut self, account: Account, until: Instant) {
        self.resting.retain(|(of, _)| *of != account);
        self.resting.push((account, until));
        if self.resting.len() > MAX_PROCESSES {
            // There are never more accounts with slots than this.
            self.resting.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(uid: u32, pid: u32) -> Look {
        Look {
            account: Account::User(uid),
            pid,
            slots: Vec::new(),
        }
    }

    #[test]
    fn accounts_have_their_turns_and_one_that_takes_long_is_left_alone_for_longer() {
        let mut queue = Queue::default();
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(9));
        assert_eq!(queue.wait(now), None);
        for pid in 1..=3 {
            queue.add(look(7, pid));
            queue.add(look(7, pid));
        }
        queue.add(look(8, 4));
        assert_eq!(queue.looks.len(), 4, "each process waits once");
        assert_eq!(queue.wait(now), Some(Duration::ZERO));
        let next = |queue: &mut Queue, now| queue.next(now).map(|look| look.pid);
        assert_eq!(next(&mut queue, now), Some(1));
        queue.rests(Account::User(7), later);
        assert_eq!(next(&mut queue, now), Some(4), "the other account's turn");
        queue.rests(Account::User(8), later);
        assert_eq!(next(&mut queue, now), None, "both are left alone");
        assert_eq!(queue.wait(now), Some(later - now));
        queue.add(look(9, 5));
        assert_eq!(next(&mut queue, now), Some(5), "who was never looked at");
        assert_eq!(next(&mut queue, later), Some(2));
        queue.add(look(8, 6));
        queue.rests(Account::User(7), later);
        assert_eq!(next(&mut queue, later), Some(6));
        assert_eq!(next(&mut queue, later), Some(3));
    }
}
