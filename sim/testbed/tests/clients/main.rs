//! Unmodified clients of the driver API on the simulator: alone, with the library preloaded, and sharing the device with
//! another process.
//!
//! The simulator and the preload library together promise that a client behaves the same in each way, with real copies and
//! kernels that take time.

mod cuda_bindings;
mod cuda_core;
mod cudarc_program;
mod each_way;
mod ffmpeg;
mod newest;
mod tinygrad;
