//! The CUDA driver's C types and the one table of hooked functions.
