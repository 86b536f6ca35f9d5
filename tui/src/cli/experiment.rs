//! `gpushare experiment`: the same workloads under one lock configuration after another.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Done, note};
use crate::host::probe;
use crate::text::exit::{Exit, Failure};
use crate::text::plain::plain;
use crate::workload::experiment::report::{self, Measured};
use crate::workload::experiment::{Plan, play};

/// Measure lock configurations side by side, from a TOML file
///
/// Prints for each: the urgent task's round times, the work done by the others, what the lock
/// did. assets/experiments/priority.toml is an example.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The plan
    file: PathBuf,
    /// Measure each configuration for this long instead
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Only the configurations whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Also write the rows to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// On the simulated GPU, even if there is a real one
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
            "--only: no configuration of the plan has a name with that in it",
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
        .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}
