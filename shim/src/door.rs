//! The door that every call of the driver but a launch looks at: closed while the process's memory is not on its devices.
//!
//! Launches look at their gates, which are closed then too. A forked child has a door of its own; the driver does not work there.

use std::sync::atomic::AtomicU32;

use crate::protocol::residence;

pub use residence::{CLOSED, GONE};

/// Whether calls of functions that we do not hook are seen as well: their stubs are written for one processor.
pub const SEES_ALL: bool = cfg!(target_arch = "x86_64");

/// The word; the assembly of `face::through` reads it.
pub static DOOR: AtomicU32 = AtomicU32::new(residence::OPEN);

/// Whether a thread that has stepped inside may go on to the driver.
#[inline(always)]
pub fn is_open() -> bool {
    residence::is_open(&DOOR)
}
