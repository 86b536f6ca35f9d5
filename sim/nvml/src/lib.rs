//! The simulator's `libnvidia-ml.so.1`: what monitors see of a simulated world.
//!
//! It looks at the world that the simulated driver's processes share: which GPUs there are, who holds how
//! much memory, who had how much of the engine. It takes part in nothing. Asked alone, it makes the
//! world of the scenario and shows it idle.
//!
//! Memory and utilisation are true, per process too. Temperature, power, clocks and the fan are made up
//! from the load. What a simulated GPU does not have is `NOT_SUPPORTED`, and in MIG mode what a real one
//! does not tell in MIG mode.
//!
//! # Floors
//!
//! Imports point down.
//!
//! ```text
//! exports     exports, not_supported             the C face, one row a function, and the names that have no answer
//! subjects    memory, mig, processes, sensors    a file for each subject
//! board       board, system                      who a device is; what the machine is
//! session     session                            between nvmlInit and nvmlShutdown
//! view        view                               the world as NVML shows it
//! edge        c, pids                            what crosses the C face; pids as this process sees them
//! answer      answer                             NVML's return values
//! ```

mod answer;
mod board;
mod c;
mod exports;
mod memory;
mod mig;
mod not_supported;
mod pids;
mod processes;
mod sensors;
mod session;
mod system;
mod view;
