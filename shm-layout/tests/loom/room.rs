//! The bytes of one limit that processes share, with a futex on the bell.

use super::*;

pub struct Room<const N: usize> {
    whole: u64,
    pub used: [AtomicU64; N],
    pub trying: [AtomicU64; N],
    pub promises: [AtomicU64; 4],
    pub bell: AtomicU32,
    asleep: (Mutex<()>, Condvar),
}

impl<const N: usize> Room<N> {
    /// Makes a limit of `whole` bytes, of which the first process has some.
    pub fn new(whole: u64, first: u64) -> Self {
        let room = Self {
            whole,
            used: words(),
            trying: words(),
            promises: words(),
            bell: AtomicU32::new(0),
            asleep: (Mutex::new(()), Condvar::new()),
        };
        room.used[0].store(first, Relaxed);
        room
    }

    fn account(&self, who: usize) -> Account<'_> {
        Account {
            used: &self.used[who],
            trying: &self.trying[who],
            reserve: 0,
            covered: 0,
        }
    }

    pub fn own(&self, who: usize) -> Own<'_> {
        Own {
            shown: self.account(who),
            kept: None,
        }
    }

    /// Reserves under the limit.
    pub fn reserve(&self, who: usize, bytes: u64) -> bool {
        let walk =
            |visit: &mut dyn FnMut(Account<'_>)| (0..N).for_each(|who| visit(self.account(who)));
        let limit = SharedLimit {
            bytes: self.whole,
            walk: &walk,
            groups: &[],
        };
        account::reserve_shared(self.own(who), bytes, u64::MAX, &[limit]).is_ok()
    }

    pub fn release(&self, who: usize, bytes: u64) {
        account::release(&self.used[who], bytes);
        if memory_queue::came_back(&self.bell) {
            self.wake();
        }
    }

    pub fn wake(&self) {
        drop(self.asleep.0.lock());
        self.asleep.1.notify_all();
    }

    /// Sleeps while the bell has this value.
    pub fn sleep(&self, seen: u32) {
        let guard = self.asleep.0.lock().expect("no panic");
        if self.bell.load(Relaxed) == seen {
            drop(self.asleep.1.wait(guard).expect("no panic"));
        }
    }
}
