//! `gpushare doctor`: checks of the installation, with advice for each problem.

use std::ffi::OsString;
use std::io::{self, Write};

use crate::setup::checks::{Finding, Level, Patient, examine};
use crate::{Done, json, segments};
use gpushare_base::host::artifacts;
use gpushare_base::text::exit::Exit;
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

/// Check library, driver, NVML, kernel and segments, and say how to fix what is wrong
///
/// With a program, also check whether the library can be preloaded into it. Exits with 1 if a check fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// A program and its arguments, as for gpushare run; it is inspected, not started
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

object! {
    /// The document that `--json` writes.
    pub(crate) Document<'a>(found: &'a [Finding]) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        version: &'static str = env!("CARGO_PKG_VERSION"), "The version of gpushare.";
        findings: &'a [Finding] = found, "What was checked, in order.";
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let patient = Patient {
        dir: segments::dir().map_err(|failure| failure.sentence),
        library: artifacts::library().map_err(|failure| failure.sentence),
        program: args.command.first().cloned(),
    };
    let findings = examine(&patient);
    if args.json {
        json(out, &Document::of(&findings))?;
    } else {
        list(&findings, out)?;
    }
    let failed = findings.iter().any(|finding| finding.level == Level::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

/// Writes a line for each finding, and below it a line with the advice.
pub(crate) fn list(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        writeln!(
            out,
            "{:<5}{:<14}{}",
            finding.level.to_string(),
            finding.check,
            finding.found
        )?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "{:19}-> {fix}", "")?;
        }
    }
    Ok(())
}
