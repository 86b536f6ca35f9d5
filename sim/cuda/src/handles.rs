//! Handles: opaque numbers that the application holds for the simulator's objects.
//!
//! A handle looks like a pointer, is never dereferenced and never reused, so an old or invented one is an error and
//! not a crash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Returns a new, unique handle.
pub fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x5c00_0000_1000);
    NEXT.fetch_add(0x40, Relaxed)
}

/// The name of a graph's node.
pub type NodeId = u64;

/// Locks a mutex, also after a panic of another thread that held it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handles are already well spread.
#[derive(Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (value >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The live objects of one kind.
pub struct Table<T>(RwLock<HashMap<u64, Arc<T>, BuildHasherDefault<Spread>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Table<T> {
    /// Returns an empty table.
    pub const fn new() -> Self {
        Self(RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())))
    }

    /// Keeps an object under a handle.
    pub fn insert(&self, handle: u64, object: Arc<T>) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, object);
    }

    /// Returns the object of a handle.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle)
            .cloned()
    }

    /// Forgets a handle.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle)
    }

    /// Returns an object that satisfies `which`, with its handle.
    pub fn find(&self, which: impl Fn(&T) -> bool) -> Option<(u64, Arc<T>)> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = table.iter().find(|(_, object)| which(object));
        found.map(|(handle, object)| (*handle, Arc::clone(object)))
    }

    /// Returns all present objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Forgets all objects of which this holds, and returns them.
    pub fn remove_where(&self, mut which: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let handles: Vec<_> = table
            .iter()
            .filter(|(_, o)| which(o))
            .map(|(h, _)| *h)
            .collect();
        handles
            .iter()
            .filter_map(|handle| table.remove(handle))
            .collect()
    }
}
