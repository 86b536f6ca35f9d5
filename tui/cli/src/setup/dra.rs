//! `gpushare dra`: starts the driver for Kubernetes, which is a separate program.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use gpushare_base::host::artifacts;
use gpushare_base::text::exit::Failure;

/// Enforce Kubernetes claims on this node: their memory becomes a quota, their time slices a weight
///
/// The driver for Dynamic Resource Allocation is a program of its own, gpushare-dra; this starts it with the words that follow.
/// It works beside NVIDIA's DRA driver, or gives out the GPUs itself. assets/k8s has what a cluster needs, and gpushare-dra --help
/// says the rest.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Arguments of gpushare-dra
    #[arg(
        value_name = "WORD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<Infallible, Failure> {
    let program = artifacts::find(artifacts::DRA)?;
    let error = Command::new(&program).args(&args.words).exec();
    Err(Failure::failed(format!(
        "{} cannot be started: {error}",
        program.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_driver_is_not_installed_a_sentence_says_how_to_have_it() {
        // In a test, another test of this workspace may have built the driver.
        if let Err(failure) = artifacts::find(artifacts::DRA) {
            let sentence = failure.sentence;
            assert!(
                sentence.contains("gpushare-dra is not installed"),
                "{sentence}"
            );
            assert!(
                sentence.contains("cargo build -p gpushare-dra"),
                "{sentence}"
            );
        }
    }
}
