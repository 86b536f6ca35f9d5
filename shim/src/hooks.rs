//! What we do at the driver's functions: a file for a subject, a function for a hook.
//!
//! How to write one is told in the crate's documentation.

pub mod checkpoint;
pub mod context;
pub mod copy;
pub mod launch;
pub mod memory;
pub mod memset;
pub mod multi_device;
pub mod stream;
pub mod sync;
pub mod transfer;
