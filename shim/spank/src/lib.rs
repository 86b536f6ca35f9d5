//! The plugin for Slurm: `--gpu-mem`, and the environment of each step.
//!
//! It decides nothing. At the start of a step it runs `gpushare slurm task-prolog` as root, once on each node, and puts what
//! that prints into the environment of the step's tasks; at the end of a job, `gpushare slurm epilog`. So the plugin and a
//! TaskProlog do the same by the same code. Whatever goes wrong, Slurm hears that all went well, for it drains a node whose
//! plugin fails; what went wrong is in the job's output and in slurmd's log.
//!
//! Its line in plugstack.conf: `optional …/libgpushare_spank.so program=/usr/bin/gpushare shard=1/8`.
//!
//! # Floors
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
