//! The memory of a device: the ledger of what each process holds, and the queue for what it has no room for.

pub(crate) mod eviction;
pub mod ledger;
pub mod queue;
