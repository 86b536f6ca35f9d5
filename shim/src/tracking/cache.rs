//! Who was refused memory so that it may empty its cache.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A refusal, and what the thread had been granted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The thread's record.
    pub thread: usize,
    /// Allocations that it had been granted: a later one ends the matter.
    pub granted: u64,
}

/// The last refusal that was passed on to each thread.
#[derive(Default)]
pub struct CacheRefusals(Mutex<Vec<Refused>>);

impl CacheRefusals {
    fn lock(&self) -> MutexGuard<'_, Vec<Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread was not refused since it was last granted something. From now on it was.
    pub fn is_first(&self, this: Refused) -> bool {
        let mut all = self.lock();
        let known = all.contains(&this);
        all.retain(|other| other.thread != this.thread);
        all.push(this);
        !known
    }

    /// The thread's next refusal is its first.
    pub fn forget(&self, thread: usize) {
        self.lock().retain(|other| other.thread != thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_first_until_something_was_granted() {
        let table = CacheRefusals::default();
        let at = |thread, granted| Refused { thread, granted };
        assert!(table.is_first(at(1, 5)));
        assert!(!table.is_first(at(1, 5)));
        assert!(table.is_first(at(2, 5)));
        assert!(table.is_first(at(1, 6)));
        table.forget(1);
        assert!(table.is_first(at(1, 6)));
    }
}
