//! Slurm jobs: the hooks' output, and the real slurmctld and slurmd with the plugin, on the simulated GPU.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod cluster;
mod files;
mod hooks;
mod jobs;
