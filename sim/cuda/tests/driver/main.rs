//! What a program can see of the driver, through its C interface.
//!
//! The whole file is one process with one driver, loaded as a client loads it; each test makes what it
//! needs for itself. Tests that need a process of their own start this program again
//! ([`client::in_a_process`]).

mod client;
mod contexts;
mod copies;
mod crowd;
mod exports;
mod kernels;
mod memory;
mod nulls;
mod processes;
mod streams;
