//! Queries of the driver by the shim itself. None of them is on a path that is called often.

pub mod card;
pub mod checkpoint;
pub mod chunk_hash;
pub mod context;
pub mod memory;
pub mod transfer;
pub mod vmm;
