//! How an application reaches us: it calls an export, or looks a function up and is given the export.

pub mod dlsym;
pub mod exports;
pub mod fast;
pub mod passthrough;
pub mod proc_address;
mod trampoline;
