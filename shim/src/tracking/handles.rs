//! The program's streams and events, by handle. After a checkpoint a query of one is answered without the driver.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The handles of streams and events that exist. The handles of a context that was destroyed stay until they are
/// reused.
#[derive(Default)]
pub struct Handles(Mutex<HashSet<usize>>);

impl Handles {
    /// Adds a handle.
    pub fn add(&self, handle: usize) {
        self.all().insert(handle);
    }

    /// Removes a handle.
    pub fn remove(&self, handle: usize) {
        self.all().remove(&handle);
    }

    /// Returns true if the handle is known.
    pub fn has(&self, handle: usize) -> bool {
        self.all().contains(&handle)
    }

    fn all(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
