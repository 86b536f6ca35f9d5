//! `gpushare-workload`: keeps a GPU busy in a chosen rhythm, and reports the result.
//!
//! A refused allocation is reported on stderr and the program continues, because it exists to test quotas. With `--script` it
//! executes commands from stdin, line by line, for tests.

// Shared with the simulator; a client of a real driver needs nothing else of it.
#[path = "../../src/note.rs"]
mod note;
mod options;
mod report;
mod rhythm;
mod script;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use gpushare_workload::Cuda;

use note::note;
use options::Options;

/// Prefix of its messages on stderr.
const NAME: &str = "gpushare-workload";

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            note(NAME, &error);
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(NAME, &format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    if options.until_eof {
        std::thread::spawn(end_with_stdin);
    }
    let cuda = Cuda::load()?;
    let context = cuda.context(options.device).with_context(|| {
        format!(
            "device {} of {}",
            options.device,
            cuda.device_count().unwrap_or(0)
        )
    })?;
    let mut out = std::io::stdout().lock();
    if options.script {
        return script::run(&context, std::io::stdin().lock(), &mut out);
    }
    let report = rhythm::run(&context, options)?;
    if options.report_json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(())
}

/// Exits when stdin is closed, which also happens if the process at the other end is killed.
fn end_with_stdin() {
    // A read error ends the program too.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(0);
}
