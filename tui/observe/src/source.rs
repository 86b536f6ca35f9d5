//! Where samples come from: the machine as it is now ([`live`]), or a recording of it ([`replay`]).
//!
//! A source is asked once a tick and answers at once with what it knows: nothing here waits for a driver.

mod edits;
mod events;
pub mod fleet;
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

/// What a mutex guards, also when a thread has panicked with it: the others go on with what is there.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that yields samples.
pub trait Source {
    /// The next sample; `None` when there are no more. An error is final and its sentence is for the user.
    fn next(&mut self) -> Result<Option<Sample>>;

    /// Takes the memory of the sample before, for the next one: what is left of it shows nothing.
    fn reuse(&mut self, _before: &mut Sample) {}

    /// Goes so many nanoseconds on, or back, and yields the samples on the way there; `None` where time cannot be wound.
    fn wind(&mut self, _by_ns: i64) -> Result<Option<Vec<Sample>>> {
        Ok(None)
    }

    /// The source's own idea of how long to wait before the next question; `None` leaves it to the caller.
    fn pace(&self) -> Option<Duration> {
        None
    }
}
