//! Real clients of the driver API, unmodified, on the simulator: alone, and with the library preloaded.
//!
//! A client that behaves the same both ways, with copies that are real and kernels that take time, is
//! what the simulator and the preload promise together.

mod both_ways;
mod cuda_bindings;
mod cudarc_program;
mod ffmpeg;
mod tinygrad;
