//! A check in debug builds that the driver is called only where it returns.
//!
//! While a process is evicted, the driver blocks a call until the restore, or crashes on it (`cuEventQuery`,
//! 580.159.04). So the shim calls the driver inside a call of the application, in the evictor, or in a thread that
//! holds [`asking`](crate::eviction::state::EvictionState::asking). A call made elsewhere nearly always returns, and
//! no test would notice it; here it ends the process. The rule needs items of higher layers, which pass it down as a
//! function.

use std::{panic::Location, sync::OnceLock};

use super::Symbol;

static IS_ANSWERED: OnceLock<fn(Symbol) -> bool> = OnceLock::new();

/// Sets the function that decides whether the driver returns to the calling thread.
pub fn check_by(is_answered: fn(Symbol) -> bool) {
    let _ = IS_ANSWERED.set(is_answered);
}

/// Checks a call of the driver that the calling thread is about to make.
#[track_caller]
pub fn check(symbol: Symbol) {
    if IS_ANSWERED
        .get()
        .is_some_and(|is_answered| !is_answered(symbol))
    {
        fail(symbol, Location::caller());
    }
}

/// Ends the process. A panic would only be a counted fault, which no test notices.
#[cold]
fn fail(symbol: Symbol, place: &Location<'_>) -> ! {
    eprintln!(
        "gpushare: {} is called at {place} from where the driver may not answer; see driver/checked.rs",
        symbol.info().name
    );
    std::process::abort();
}
