//! The machine this program runs on: its processes, ELF files and installed libraries.

pub mod artifacts;
pub mod broken_pipe;
pub mod cdi;
pub mod demo;
pub mod elf;
pub mod guard;
pub mod launched;
pub mod mps;
pub mod output;
pub mod pace;
pub mod pids;
pub mod probe;
pub mod processes;
pub mod procfs;
pub mod programs;
pub mod signal;
pub mod wait;
