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
//! `exports` is the C face, one row a function; `c` holds what crosses it; the rest is plain Rust,
//! a file for each subject: `board` (who a device is), `mig`, `memory`, `processes`, `sensors`,
//! `system`, over the `session`'s `view` of the world.

mod answer;
mod board;
mod c;
mod exports;
mod memory;
mod mig;
mod pids;
mod processes;
mod sensors;
mod session;
mod system;
mod view;
