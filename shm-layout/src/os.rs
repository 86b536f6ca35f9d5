//! The kernel's services that the protocols stand on: its clock, sleeping on words, locks that end with their holder, and
//! `/proc`.

pub mod clock;
pub mod footprint;
pub(crate) mod futex;
pub(crate) mod liveness;
pub mod procfs;
