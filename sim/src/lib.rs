//! The simulated GPU: the model behind the simulated `libcuda.so.1` and `libnvidia-ml.so.1`.
//!
//! A *world* is a set of simulated devices, shared by every process with the same world name. It lives in shared memory and
//! consists of atomics only. Any process may be killed at any instruction: its memory and its work then leave the devices, as
//! with a real driver.
//!
//! # Layers
//!
//! Imports point down.
//!
//! ```text
//! checkpoint   checkpoint                  a process is locked, its memory leaves the devices and comes back
//! members      capacity, client, link, timeline, usage   device memory; kernels and their log; copies; what NVML wants to know
//! process      process                     who takes part
//! mps          mps                         which processes are clients of an MPS server
//! visible      visible                     the devices that `CUDA_VISIBLE_DEVICES` leaves a program
//! world        world                       opening and creating a world; its name; its devices
//! sweep        sweep, remains              what the dead held in a world; worlds that no process has open
//! slots        slots, engine, concurrency  which processes are there, and which are gone; one kernel at a time, or several
//! locks        locks, scenario             the locks of a world; its devices and its mishaps, as TOML
//! layout       layout, clock, note         the shape of a world in shared memory; the kernel's clock; standard error
//! ```
//!
//! # Simulated
//!
//! Device memory is host memory, and a kernel is a duration. Processes of one user on one host share a world, also across pid
//! namespaces. Time namespaces are not supported.

pub mod capacity;
pub mod checkpoint;
mod client;
pub mod clock;
mod concurrency;
mod engine;
mod layout;
pub mod link;
pub mod locks;
pub mod mps;
pub mod note;
pub mod process;
pub mod remains;
pub mod scenario;
mod slots;
mod sweep;
pub mod timeline;
pub mod usage;
pub mod visible;
pub mod world;

pub use client::Kernel;
pub use layout::{MAX_DEVICES, MAX_PROCESSES};
pub use process::Member;
pub use scenario::Scenario;
pub use world::{Device, World};
