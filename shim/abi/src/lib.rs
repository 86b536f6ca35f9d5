//! The CUDA driver's C types and the one table of hooked functions.

pub mod errors;
pub mod types;
