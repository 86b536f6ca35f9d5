//! Programs under gpushare: their start, the choice of a device, and stages that run several of them.

#![forbid(unsafe_code)]

pub mod demo;
pub mod exclusive;
pub mod experiment;
pub mod leftovers;
pub mod nvml_cache;
pub mod picking;
pub mod program;
pub mod slurm;
pub mod stage;
pub mod traces;
pub mod wrapping;
