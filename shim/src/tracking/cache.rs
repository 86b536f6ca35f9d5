//! The threads that were refused memory so that they empty their caches.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A refusal, with the number of allocations granted to the thread before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The address of the thread's record.
    pub thread: usize,
    /// Number of allocations granted to the thread; it changes with a later grant, so that the next refusal is a new
    /// one.
    pub granted: u64,
}

/// The last refusal that each thread received.
#[derive(Default)]
pub struct CacheRefusals(Mutex<Vec<Refused>>);

impl CacheRefusals {
    fn lock(&self) -> MutexGuard<'_, Vec<Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a refusal. Returns true if the thread was not refused since its last granted allocation.
    pub fn is_first(&self, this: Refused) -> bool {
        let mut all = self.lock();
        let known = all.contains(&this);
        all.retain(|other| other.thread != this.thread);
        all.push(this);
        !known
    }

    /// Removes a thread, so that its next refusal counts as the first.
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
