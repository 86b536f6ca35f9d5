//! A debug build checks that the driver is called only from where it answers.
//!
//! The driver of a process whose memory is evicted keeps a call waiting until the memory is back, or crashes on it
//! (`cuEventQuery`, 580.159.04). So a call of ours is made inside a call of the application's, by the evictor, or by a thread that
//! holds [`asking`](crate::eviction::state::EvictionState::asking). One that is made elsewhere is nearly always answered, and no test
//! would notice it: here it ends the process. The rule needs what stands floors above, which hands it down.

use std::{panic::Location, sync::OnceLock};

use super::Symbol;

static IS_ANSWERED: OnceLock<fn(Symbol) -> bool> = OnceLock::new();

/// From here on `is_answered` says whether the driver answers the calling thread.
pub fn check_by(is_answered: fn(Symbol) -> bool) {
    let _ = IS_ANSWERED.set(is_answered);
}

/// The calling thread is about to ask the driver.
#[track_caller]
pub fn check(symbol: Symbol) {
    if IS_ANSWERED
        .get()
        .is_some_and(|is_answered| !is_answered(symbol))
    {
        fail(symbol, Location::caller());
    }
}

/// A panic would be a counted fault, which no test notices either.
#[cold]
fn fail(symbol: Symbol, place: &Location<'_>) -> ! {
    eprintln!(
        "gpushare: {} is called at {place} from where the driver may not answer; see driver/checked.rs",
        symbol.info().name
    );
    std::process::abort();
}
