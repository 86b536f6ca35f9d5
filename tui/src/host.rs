//! The machine this program runs on: its users, processes, ELF files and installed libraries.

pub mod artifacts;
pub mod elf;
pub mod people;
pub mod pids;
pub mod probe;
pub mod processes;
