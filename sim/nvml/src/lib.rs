//! The simulator's libnvidia-ml.so.1.
