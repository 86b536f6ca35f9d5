//! Verbs that start programs or prepare their environment.

pub mod compat;
pub mod demo;
pub mod experiment;
pub mod mps;
pub mod pick;
pub mod run;
pub mod slurm;
pub mod wrap;
