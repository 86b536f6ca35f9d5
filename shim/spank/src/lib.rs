//! The plugin for Slurm: the options `--gpu-mem` and `--gpu-reserve`, and the environment of each step.
//!
//! The plugin makes no decisions. At the start of a step it runs `gpushare slurm task-prolog` as root, once on each node, and
//! puts the printed variables into the environment of the step's tasks. At the end of a job it runs `gpushare slurm epilog`.
//! The plugin and a TaskProlog therefore share one implementation. Every hook returns success, because Slurm drains a node
//! whose plugin fails; an error is written to the job's output and to slurmd's log.
//!
//! Its line in plugstack.conf: `optional …/libgpushare_spank.so program=/usr/bin/gpushare shard=1/8`.
//!
//! # Layers
//!
//! ```text
//! hooks       hooks           what Slurm calls
//! step        step            what is done at the start of a step and at the end of a job
//! edge        helper, slurm   the program that is run; Slurm's functions, typed
//! ```

mod helper;
mod hooks;
mod slurm;
mod step;
