//! The memory queue: freed bytes always wake a waiter, and promised bytes are never taken.

use super::*;

/// The bytes of one limit, with a futex on the bell.
struct Card {
    used: [AtomicU64; 2],
    trying: [AtomicU64; 2],
    promises: [AtomicU64; 4],
    bell: AtomicU32,
    asleep: (Mutex<()>, Condvar),
}

const WHOLE: u64 = 3;

impl Card {
    fn new(first: u64) -> Arc<Card> {
        let card = Card {
            used: words(),
            trying: words(),
            promises: words(),
            bell: AtomicU32::new(0),
            asleep: (Mutex::new(()), Condvar::new()),
        };
        card.used[0].store(first, Relaxed);
        Arc::new(card)
    }

    fn own(&self, who: usize) -> Own<'_> {
        Own {
            shown: self.account(who),
            kept: None,
        }
    }

    fn account(&self, who: usize) -> Account<'_> {
        Account {
            used: &self.used[who],
            trying: &self.trying[who],
            reserve: 0,
            covered: 0,
        }
    }

    /// Reserves under the limit of the whole card.
    fn reserve(&self, who: usize, bytes: u64) -> bool {
        let walk =
            |visit: &mut dyn FnMut(Account<'_>)| (0..2).for_each(|who| visit(self.account(who)));
        let limit = SharedLimit {
            bytes: WHOLE,
            walk: &walk,
            groups: &[],
        };
        account::reserve_shared(self.own(who), bytes, u64::MAX, &[limit]).is_ok()
    }

    fn give_back(&self, who: usize, bytes: u64) {
        account::release(&self.used[who], bytes);
        if memory_queue::came_back(&self.bell) {
            drop(self.asleep.0.lock());
            self.asleep.1.notify_all();
        }
    }

    /// Waits for memory as a queue ticket does, but without periodic polls.
    fn wait_for(&self, who: usize, bytes: u64) {
        loop {
            let seen = memory_queue::listen(&self.bell);
            if self.reserve(who, bytes) {
                return;
            }
            let guard = self.asleep.0.lock().expect("no panic");
            if self.bell.load(Relaxed) == seen {
                drop(self.asleep.1.wait(guard).expect("no panic"));
            }
        }
    }

    /// Allocates as without a shared limit: takes the bytes, then checks whether any are promised.
    fn allocate(&self, who: usize, bytes: u64) -> bool {
        if account::reserve_own(self.own(who), bytes, u64::MAX).is_err() {
            return false;
        }
        if memory_queue::is_busy(&self.promises) {
            account::release(&self.used[who], bytes);
            return self.reserve(who, bytes);
        }
        true
    }

    /// Promises bytes as a process does before its restore.
    fn promise(&self, who: usize, bytes: u64) -> bool {
        memory_queue::join(&self.promises, who);
        let promised = self.reserve(who, bytes);
        if !promised {
            memory_queue::leave(&self.promises, who);
        }
        promised
    }
}

#[test]
fn who_waits_for_bytes_sleeps_through_none_that_come_back() {
    explore(Some(3), || {
        let card = Card::new(3);
        let giver = {
            let card = Arc::clone(&card);
            thread::spawn(move || card.give_back(0, 2))
        };
        card.wait_for(1, 2);
        giver.join().expect("no panic");
        assert_eq!(card.used[1].load(Relaxed), 2);
    });
}

#[test]
fn who_waits_for_several_frees_hears_the_last() {
    explore(Some(2), || {
        let card = Card::new(3);
        let giver = {
            let card = Arc::clone(&card);
            thread::spawn(move || {
                card.give_back(0, 1);
                card.give_back(0, 1);
            })
        };
        card.wait_for(1, 2);
        giver.join().expect("no panic");
    });
}

#[test]
fn bytes_that_are_promised_are_taken_by_no_allocation() {
    explore(Some(3), || {
        let card = Card::new(0);
        let rival = {
            let card = Arc::clone(&card);
            thread::spawn(move || card.allocate(0, 2))
        };
        let mine = card.promise(1, 2);
        let theirs = rival.join().expect("no panic");
        assert!(!(mine && theirs), "both got two of three bytes");
    });
}
