//! `gpushare-workload`: keeps a GPU busy in a chosen rhythm, and reports how it went.
//!
//! An allocation that is refused is reported on stderr and the program goes on: being over a quota
//! is what it is for. With `--script` it does only what it is told, line by line, for tests.

// Shared with the simulator, which a client of a real driver has no use for otherwise.
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

/// How its lines on stderr begin.
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

/// The process at the other end of stdin ends us by closing it, even when it is killed.
fn end_with_stdin() {
    // An error is an end, too.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    std::process::exit(0);
}
