//! `gpushare mps`: NVIDIA's MPS for the programs of this segment directory.

use std::io::Write;

use crate::Done;

mod start;
mod status;
mod stop;

pub use status::Document;

/// Start, stop and show NVIDIA's MPS for this directory: programs run at once on one GPU
///
/// MPS runs kernels of several processes at the same time. It runs here without root, with its pipes and logs in the
/// segment directory, through nvidia-cuda-mps-control, and the compute mode stays as it is. Programs of gpushare run
/// join it at their start; quotas, pauses and the policy overlap work on top of it and can be changed live.
///
/// MPS fixes two things when a program starts. It knows two priorities: a program with --priority above 0 has the
/// normal one, all others of gpushare run the one below, so that one program with --priority 5 goes before those
/// without. --cap N is also the most of the SMs. A program that joins without gpushare run has the normal priority.
/// What CUDA_MPS_CLIENT_PRIORITY, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and CUDA_MPS_PIPE_DIRECTORY say takes precedence.
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Start(start::Args),
    Stop(stop::Args),
    Status(status::Args),
}

pub fn run(verb: &Verb, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Start(args) => start::run(args, out),
        Verb::Stop(args) => stop::run(args, out),
        Verb::Status(args) => status::run(args, out),
    }
}
