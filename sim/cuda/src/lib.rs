//! The simulator's `libcuda.so.1`: the CUDA driver API over [`gpushare_sim`]'s world.
//!
//! Real clients run on it unmodified: what a program can see of a driver through this interface behaves as
//! the driver's documentation says, down to error codes. What a GPU would compute is not computed:
//! a kernel takes its time on the shared engine and writes nothing.
//!
//! * The C edge: [`faces`] makes the exports, [`c`] checks what comes over them, [`exports`] knows them all.
//! * Who and where: [`driver`], `device`, [`context`].
//! * Memory: [`heap`] (addresses), `memory`, `managed`, `host`, `array`, `texture`, [`vmm`] (multicast objects too), [`pool`], `ipc`.
//! * Work: [`task`] (what is done), [`stream`] (in which order), `event`, `copy`, `launch`, [`module`].
//! * Graphs: [`graph`], [`capture`].
//!
//! # Simulated
//!
//! Where it differs from a driver: kernels compute nothing; copies take the time they take on the host;
//! a graph's nodes run one after the other; peer devices never reach each other's memory directly;
//! memory shared between processes is charged to the one that made it, and events are not shared; a sparse
//! array is never mapped; a multicast mapping shows bytes of its own; graphs have no conditional nodes;
//! functions that are exported but not simulated answer `CUDA_ERROR_NOT_SUPPORTED`; NVIDIA's private
//! export tables are not answered, so programs on the CUDA runtime library do not start.

#![recursion_limit = "512"]

mod array;
pub mod c;
pub mod capacity;
pub mod capture;
pub mod context;
mod copy;
mod device;
pub mod driver;
pub mod event;
pub mod exports;
mod external;
pub mod faces;
pub mod graph;
pub mod handles;
pub mod heap;
mod host;
pub mod image;
mod init;
mod ipc;
pub mod launch;
mod link;
mod managed;
mod memory;
pub mod module;
mod pointer;
pub mod pool;
mod queue;
pub mod stream;
mod stubs;
pub mod task;
mod texture;
pub mod vmm;
