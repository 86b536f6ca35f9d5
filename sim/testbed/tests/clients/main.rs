//! Real clients of the driver API, unmodified, on the simulator: alone, with the library preloaded, and
//! taking turns with a neighbour.
//!
//! A client that does the same each way, with copies that are real and kernels that take time, is
//! what the simulator and the preload promise together.

mod cuda_bindings;
mod cuda_core;
mod cudarc_program;
mod each_way;
mod ffmpeg;
mod newest;
mod tinygrad;
