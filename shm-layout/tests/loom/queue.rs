//! The memory queue: freed bytes always wake a waiter, and promised bytes are never taken.

use super::*;
use room::Room;

/// A card of three bytes, of which the first process has some.
fn card(first: u64) -> Arc<Room<2>> {
    Arc::new(Room::new(3, first))
}

impl Room<2> {
    /// Waits for memory as a queue ticket does, but without periodic polls.
    fn wait_for(&self, who: usize, bytes: u64) {
        loop {
            let seen = memory_queue::listen(&self.bell);
            if self.reserve(who, bytes) {
                return;
            }
            self.sleep(seen);
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
        let card = card(3);
        let giver = {
            let card = Arc::clone(&card);
            thread::spawn(move || card.release(0, 2))
        };
        card.wait_for(1, 2);
        giver.join().expect("no panic");
        assert_eq!(card.used[1].load(Relaxed), 2);
    });
}

#[test]
fn who_waits_for_several_frees_hears_the_last() {
    explore(Some(2), || {
        let card = card(3);
        let giver = {
            let card = Arc::clone(&card);
            thread::spawn(move || {
                card.release(0, 1);
                card.release(0, 1);
            })
        };
        card.wait_for(1, 2);
        giver.join().expect("no panic");
    });
}

#[test]
fn bytes_that_are_promised_are_taken_by_no_allocation() {
    explore(Some(3), || {
        let card = card(0);
        let rival = {
            let card = Arc::clone(&card);
            thread::spawn(move || card.allocate(0, 2))
        };
        let mine = card.promise(1, 2);
        let theirs = rival.join().expect("no panic");
        assert!(!(mine && theirs), "both got two of three bytes");
    });
}
