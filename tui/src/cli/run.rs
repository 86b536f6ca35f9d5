//! `gpushare run`: becomes a program that runs under gpushare.
//!
//! It replaces itself by the program, so pid, signals, terminal and exit code are the program's own.

use std::convert::Infallible;
use std::ffi::OsString;
use std::process::Command;

use shm_layout::{Liveness, MAX_PROCESSES, OpenError, SegmentDir, Segments, clock, snapshot};

use super::{Done, note, world};
use crate::doctor::may_write;
use crate::exit::{Exit, Failure};
use crate::launch::{Launch, Settings};

/// Start a program under gpushare: counted, limited, and queued for the GPU when others want it
///
/// Everything is checked before the program starts. Its pid, signals and exit code are its own.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: gpushare run --memory 8GiB --name train -- python train.py\n\
                        Exit codes: the program's own; 126 when it cannot be executed, 127 when it is not found."
)]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> Done {
    // A wrong value is found before even the segments are made.
    args.settings.variables()?;
    args.settings.inherited()?;
    let dir = world::dir_or_new()?;
    look_at_segments(&dir, &args.settings)?;
    let mut launch = Launch::prepare(&args.command, &args.settings, &dir)?;
    if let Some(gpu) = &args.settings.gpu {
        let uuid = pick(gpu, &args.settings, &launch)?;
        launch.show_only(&uuid);
    }
    for warning in &launch.warnings {
        note(warning);
    }
    become_it(launch).map(|never| match never {})
}

/// Under segments that cannot be used the program would run without its limits; better not at all.
fn look_at_segments(dir: &SegmentDir, settings: &Settings) -> Result<(), Failure> {
    let segments = match Segments::open_viewer(&dir.path) {
        Ok(segments) => segments,
        Err(OpenError::Missing { .. }) if !may_write(&dir.path) => {
            return Err(Failure {
                exit: Exit::NotPermitted,
                sentence: format!(
                    "it would run without limits: nobody made segments in {} and you may not write there; set \
                     GPUSHARE_DIR to a directory of your own",
                    dir.path.display()
                ),
            });
        }
        Err(
            OpenError::Missing { .. } | OpenError::NotReady { .. } | OpenError::StaleBoot { .. },
        ) => return Ok(()),
        Err(error) => {
            let failure = world::cannot_open(&error);
            return Err(Failure {
                sentence: format!("it would run without limits: {failure}"),
                ..failure
            });
        }
    };
    let snapshot = snapshot(&segments, clock::now());
    let living = snapshot
        .processes
        .iter()
        .filter(|process| process.alive != Liveness::Dead)
        .count();
    if living >= MAX_PROCESSES {
        note(&format!(
            "all {MAX_PROCESSES} slots in {} are taken: unless one becomes free it runs uncounted; end some programs, \
             or set GPUSHARE_DIR to a directory of its own",
            dir.path.display()
        ));
    }
    if let Some(group) = &settings.group
        && !snapshot
            .groups
            .iter()
            .any(|known| known.name == *group && known.defined)
    {
        note(&format!(
            "group {group} has no limits yet; gpushare group create {group} memory=SIZE sets them"
        ));
    }
    Ok(())
}

fn become_it(launch: Launch) -> Result<Infallible, Failure> {
    Err(launch.become_it())
}

/// Asks `gpushare pick`, in a process of its own: NVML stays out of the program, and the choice is
/// made in the environment that the program will have.
fn pick(gpu: &str, settings: &Settings, launch: &Launch) -> Result<String, Failure> {
    let own = std::env::current_exe().map_err(|error| {
        Failure::failed(format!(
            "cannot find this program to pick a GPU with: {error}"
        ))
    })?;
    let mut command = Command::new(own);
    command.arg("pick").envs(
        launch
            .environment()
            .filter(|(name, _)| *name != "LD_PRELOAD"),
    );
    if gpu != "auto" {
        command.arg(gpu);
    } else if let Some(memory) = settings
        .memory
        .as_deref()
        .filter(|memory| crate::units::parse_size(memory).is_ok())
    {
        command.args(["--memory", memory]);
    }
    let output = command
        .output()
        .map_err(|error| Failure::failed(format!("cannot pick a GPU: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !said.is_empty() {
        return Ok(said);
    }
    let why = String::from_utf8_lossy(&output.stderr)
        .trim()
        .trim_start_matches("gpushare: ")
        .to_owned();
    let exit = match output.status.code() {
        Some(2) => Exit::Usage,
        Some(5) => Exit::NoSuchTarget,
        _ => Exit::Failed,
    };
    Err(Failure {
        exit,
        sentence: format!("--gpu {gpu}: {why}"),
    })
}
