//! Sources of samples: the machine as it is now ([`live`]), or a recording ([`replay`]).
//!
//! A source is called once a tick and returns at once with what it has: nothing here waits for a driver.

mod edits;
mod events;
pub mod fleet;
mod host;
mod join;
pub mod live;
pub mod nvml;
pub mod replay;
pub mod ring;
mod unmanaged;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use gpushare_sample::Sample;

/// Locks a mutex, also after a thread panicked while it held the lock: the other threads go on with the present value.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A source of samples.
pub trait Source {
    /// Returns the next sample; `None` at the end. An error is final, and its sentence is for the user.
    fn next(&mut self) -> Result<Option<Sample>>;

    /// Takes the memory of the previous sample for the next one. The previous sample must not be shown afterwards.
    fn reuse(&mut self, _before: &mut Sample) {}

    /// Goes to a moment of a recording: the next sample is the first one that is not before it. The present has no other
    /// moments and stays.
    fn go_to(&mut self, _from_ns: u64) -> Result<()> {
        Ok(())
    }

    /// Returns the first and the last moment of a recording, once both are known. It never waits.
    fn span_ns(&mut self) -> Option<[u64; 2]> {
        None
    }

    /// Returns the source's own waiting time until the next call; `None` leaves it to the caller.
    fn pace(&self) -> Option<Duration> {
        None
    }
}
