//! Memory: the bytes of a device, the addresses that stand for them, and every way to allocate, share and free them.

pub mod array;
pub mod capacity;
pub mod external;
pub mod free;
pub mod graph_memory;
pub mod heap;
pub mod host;
pub mod ipc;
pub mod peer;
pub mod pointer;
pub mod pool;
pub mod texture;
pub mod vmm;
