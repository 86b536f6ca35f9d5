//! Looks, on a thread of its own, whether processes still have their slots' accounts mapped.
//!
//! A look costs as much time as its process has mappings, which its user chooses. So a process is looked at once for all of its slots,
//! the accounts have their turns one after the other, and the looks at one account's processes take no more than a tenth of the time. A
//! process whose look has not ended is not looked at again before it has.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use shm_layout::broker::{Account, Accounts, let_go};
use shm_layout::procfs::Late;
use shm_layout::{MAX_PROCESSES, SlotId};

/// How long an account's processes are left alone after a look, in times of what it took.
const REST: u32 = 9;

/// A process to look at.
pub struct Look {
    /// Who its slots count for.
    pub account: Account,
    pub pid: u32,
    /// Its slots, and the accounts that it must have mapped.
    pub slots: Vec<(SlotId, Accounts)>,
}

/// The thread, and what it has found.
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

    /// Has a process looked at. One that waits for that already is looked at once.
    pub fn order(&self, look: Look) {
        // The thread lives as long as we do.
        let _ = self.orders.send(look);
    }

    /// Readable when something was found.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The slots whose processes have let go of them, found since.
    pub fn found(&self) -> Vec<SlotId> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.found.try_iter().flatten().collect()
    }
}

/// The thread's work, until nothing more can be ordered or reported.
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

/// The processes that wait to be looked at, in the order in which they came.
#[derive(Default)]
struct Queue {
    looks: Vec<Look>,
    /// The accounts that were looked at, the last one last, and until when each is left alone.
    resting: Vec<(Account, Instant)>,
}

impl Queue {
    /// One that waits already is looked at for what was asked last.
    fn add(&mut self, look: Look) {
        match self.looks.iter_mut().find(|one| one.pid == look.pid) {
            Some(one) => *one = look,
            None => self.looks.push(look),
        }
    }

    /// How long until the next look, if one waits.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let until = self.looks.iter().map(|look| self.until(&look.account));
        let next = until.min()?;
        Some(next.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)))
    }

    /// Until when an account is left alone, if it was looked at.
    fn until(&self, account: &Account) -> Option<Instant> {
        let resting = self.resting.iter().find(|(of, _)| of == account);
        resting.map(|(_, until)| *until)
    }

    /// The next look: of the account that was looked at longest ago, if that is left alone no longer.
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

    /// An account was looked at.
    fn rests(&mut self, account: Account, until: Instant) {
        self.resting.retain(|(of, _)| *of != account);
        self.resting.push((account, until));
        if self.resting.len() > MAX_PROCESSES {
            // There are no more accounts with slots.
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
