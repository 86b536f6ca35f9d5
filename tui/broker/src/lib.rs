//! The broker of a machine with many users, `gpushare serve`: it hands out the shared segments, identifies processes by the
//! kernel's credentials, and makes the edits that are permitted.
//!
//! ```text
//!   client ──connect──▶ socket          SO_PEERCRED, pidfd, groups: identity of the client
//!          ──open─────▶ segments        reopened descriptors
//!          ──register─▶ a slot          in the registry: uid, pid, cgroup, container, job
//!   tool   ──edit─────▶ rights, log     edits by compare-and-swap; refused ones are logged too
//! ```
//!
//! One thread serves and never waits for a client. A packet is a whole message. A client that asks again before it has read
//! its reply is disconnected, and so is one that sends nothing for a moment. The accounts are served in turns. A second
//! thread gives slots back, because it works on words that tenants can write at the same time. A third thread looks at the
//! memory of processes that may have become other programs.

#![forbid(unsafe_code)]

mod account;
mod cgroup;
mod client_privileges;
mod clients;
mod container_of;
mod edits;
mod look_budget;
mod looking;
mod mappings;
mod namespaces;
pub mod pods;
mod reaping;
mod rights;
mod server;
mod slots;
mod socket;
mod turns;

pub use server::{Options, handed, serve};
pub use socket::{BrokerStatus, status};
