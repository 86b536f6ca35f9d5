//! The exported interface of the shim: an application calls an export, or looks a function up and gets the export.

pub mod dlsym;
pub mod exports;
pub mod fast;
pub mod ioctl;
pub mod passthrough;
pub mod proc_address;
mod sanitizer;
mod trampoline;
