//! What we ask the driver on our own account. None of it is on a path that is called often.

pub mod card;
pub mod checkpoint;
pub mod context;
pub mod memory;
pub mod transfer;
pub mod vmm;
