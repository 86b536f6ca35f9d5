//! A small client of the CUDA driver API, for a real driver as much as for the simulated one.
//!
//! [`Cuda`] opens `libcuda.so.1` at run time, so a program that uses it starts on any machine and
//! learns from an [`Error`] what is missing. A [`Context`] on a device gives out guards: memory,
//! streams, events and the one kernel there is, which spins on the device for as long as it is told.
//! [`probe()`] only asks what devices there are.

mod context;
mod driver;
mod error;
mod probe;

pub use context::{Buffer, Context, Event, SPIN_KERNEL, SpinKernel, Stream};
pub use driver::Cuda;
pub use error::Error;
pub use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror};
pub use probe::{Device, Probe, probe};
