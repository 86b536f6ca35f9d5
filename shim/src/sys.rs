//! The kernel and libc, as far as we use them past std.

pub mod barrier;
pub mod futex;
pub mod no_cancel;
pub mod own_thread;
