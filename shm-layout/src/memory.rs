//! The memory of a device: the ledger of the bytes that each process holds, and the queue for requests that find no room.

pub(crate) mod eviction;
pub mod ledger;
pub mod queue;
