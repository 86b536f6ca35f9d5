//! A small client of the CUDA driver API, for a real driver and for the simulated one.
//!
//! [`Cuda`] opens `libcuda.so.1` at run time, so a program that uses it starts on any machine and gets an [`Error`] that names
//! what is missing. A [`Context`] on a device creates guards: memory, streams, events, and the only kernel, which spins on the
//! device for a given time. [`probe()`] only lists the devices.

mod context;
mod driver;
mod error;
mod probe;

pub use context::{Buffer, Context, Event, SPIN_KERNEL, SpinKernel, Stream};
pub use driver::{Cuda, Device};
pub use error::Error;
pub use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror};
pub use probe::{Probe, probe};
