//! `gpushare experiment`: the same workloads under one lock configuration after another.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Done, note};
use shm_layout::text::PathText as _;

use crate::host::probe;
use crate::text::exit::{Exit, Failure};
use crate::text::plain::plain;
use crate::workload::experiment::report::{self, Measured};
use crate::workload::experiment::{Plan, play};

/// Measure lock configurations side by side, from a TOML file
///
/// Prints for each configuration the round times of the urgent task, the throughput of the others
/// and the activity of the lock. assets/experiments/priority.toml is an example.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The plan, a TOML file
    file: PathBuf,
    /// Measure each configuration for this long instead of the time in the plan
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Measure only the configurations whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Also write the rows to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Use the simulated GPU, even if there is a real one
    #[arg(long)]
    sim: bool,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let mut plan = Plan::read(&args.file)?;
    if let Some(seconds) = args.seconds {
        if !(0.1..=3600.0).contains(&seconds) {
            return Err(Failure::usage(format!(
                "--seconds: {seconds} is out of range; must be between 0.1 and 3600"
            )));
        }
        plan.seconds = seconds;
    }
    let wanted = |name: &str| {
        args.only
            .as_ref()
            .is_none_or(|part| name.contains(part.as_str()))
    };
    plan.configs.retain(|config| wanted(&config.name));
    if plan.configs.is_empty() {
        return Err(Failure::usage(
            "--only: no configuration of the plan has this text in its name",
        ));
    }
    // Opened first: a file that cannot be written should not cost a whole measurement.
    let csv = args.csv.as_deref().map(create).transpose()?;
    let simulated = args.sim || !probe::real_gpu();
    let mut rows: Vec<Measured> = Vec::new();
    for config in &plan.configs {
        note(&format!("{} ({} s) …", plain(&config.name), plan.seconds));
        rows.push(play::play(&plan, config, simulated)?.finish());
    }
    if args.json {
        report::json(&rows, simulated, out)?;
    } else {
        report::table(&rows, out)?;
    }
    if let Some(mut file) = csv {
        report::csv(&rows, &mut file)?;
    }
    Ok(Exit::Done)
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path)
        .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.shown())))
}
