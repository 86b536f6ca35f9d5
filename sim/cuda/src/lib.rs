//! The simulator's libcuda.so.1.
