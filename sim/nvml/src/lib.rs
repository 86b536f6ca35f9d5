//! The simulator's `libnvidia-ml.so.1`: a simulated world as monitoring programs see it.
//!
//! It reads the world that processes of the simulated driver share: the GPUs, and each process's memory and engine time. It is
//! not a member of the world. If no world exists it makes the one of the scenario and shows idle devices.
//!
//! Memory and utilisation are true, per process too. Temperature, power, clocks and fan speed are derived from the load. A
//! query that a simulated GPU cannot answer returns `NOT_SUPPORTED`, and so does one that a real GPU refuses in MIG mode.
//!
//! # Layers
//!
//! Imports point down.
//!
//! ```text
//! exports     exports, not_supported             the C face, one row a function, and the names that have no answer
//! subjects    events, memory, mig, processes, sensors   a file for each subject
//! board       board, system                      who a device is; what the machine is
//! session     session                            between nvmlInit and nvmlShutdown
//! view        view                               the world as NVML shows it
//! edge        c, pids                            what crosses the C face; pids as this process sees them
//! answer      answer                             NVML's return values
//! ```

mod answer;
mod board;
mod c;
mod events;
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
