//! Programs under gpushare: how one is started, on which device, and how several are staged.

#![forbid(unsafe_code)]

pub mod demo;
pub mod exclusive;
pub mod experiment;
pub mod launch;
pub mod leftovers;
pub mod nvml_cache;
pub mod picking;
pub mod slurm;
pub mod stage;
pub mod traces;
pub mod wrapping;
