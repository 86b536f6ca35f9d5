//! The simulated GPU: the model that `libcuda.so.1` and `libnvidia-ml.so.1` of this room share.
//!
//! A *world* is a set of simulated devices that every process with the same world name shares. It lives
//! in shared memory, is made of atomics only, and any process may be killed at any instruction: the
//! survivors see its memory and its work leave the devices, as a real driver would make them leave.
//!
//! * [`scenario`]: which devices a world has, and its mishaps, as TOML.
//! * [`world`]: opening and creating a world; its name; its devices.
//! * [`process`]: who takes part, and how a process's death is noticed.
//! * [`capacity`]: device memory, shared by all processes of the world.
//! * [`checkpoint`]: a process is locked, its memory leaves the devices and comes back.
//! * [`timeline`]: the engine: one kernel at a time over all processes.
//! * [`usage`]: what NVML wants to know: who is on a device, with how much memory and work.
//! * [`visible`]: the devices that `CUDA_VISIBLE_DEVICES` leaves a program.
//!
//! # Simulated
//!
//! Device memory is host memory, a kernel is a duration. Processes of one user on one host share a world;
//! pid namespaces are fine, time namespaces are not.

pub mod capacity;
pub mod checkpoint;
pub mod clock;
mod layout;
pub mod locks;
pub mod process;
mod remains;
pub mod scenario;
pub mod timeline;
pub mod usage;
pub mod visible;
pub mod world;

pub use process::Member;
pub use scenario::Scenario;
pub use world::{Device, World};

/// Compute units (GPUs without MIG, or MIG instances) a world may have.
pub const MAX_DEVICES: usize = 16;

/// Processes a world may have at once.
pub const MAX_PROCESSES: usize = 512;
