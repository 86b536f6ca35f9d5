//! The broker of a machine with many users, `gpushare serve`: hands out the shared segments, says who is who by the
//! kernel's word, and makes the edits that it finds permitted.
//!
//! ```text
//!   client ──connect──▶ socket          SO_PEERCRED, pidfd, groups: who it is
//!          ──open─────▶ segments        descriptions of its own
//!          ──register─▶ a slot          in the roll: uid, pid, cgroup, container, job
//!   tool   ──edit─────▶ rights, log     made by compare-and-swap, refused ones logged too
//! ```
//!
//! One thread serves, and waits for nobody: a packet is a whole message, a client that asks again before it has read its answer ends by
//! that, one that says nothing is let go after a moment, and the accounts have their turns one after the other. Slots are given back on a second
//! thread, which works on words that tenants may write meanwhile, and a third one looks at the memory of processes that may have
//! become other programs.

#![forbid(unsafe_code)]

mod cgroup;
mod client_privileges;
mod clients;
mod container_of;
mod edits;
mod looking;
mod place;
pub mod pods;
mod reaping;
mod rights;
mod server;
mod socket;
mod turns;

pub use server::{Options, handed, serve};
pub use socket::{Standing, standing};
