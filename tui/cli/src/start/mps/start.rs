//! `gpushare mps start`.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::{Done, segments};
use gpushare_base::host::artifacts;
use gpushare_base::host::mps::{Control, PATIENCE, Place, State};
use gpushare_base::text::exit::{Exit, Failure};

/// Start the MPS control daemon for this directory
///
/// Programs that gpushare run starts from now on join it; those that run already stay outside. It sees the devices of
/// CUDA_VISIBLE_DEVICES, if that is set here. Programs then count from 0 among these: name devices by UUID, or unset the variable
/// for the programs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Start the simulated GPU's MPS, for programs of gpushare run --sim
    #[arg(long)]
    sim: bool,
}

/// Maximum time from the daemon's start to its first answer.
const START: Duration = Duration::from_secs(15);

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir_or_new()?;
    let place = Place::make(&dir.path)?;
    let simulated = args.sim || artifacts::is_simulation_asked();
    let control = match simulated {
        true => Control::simulated()?,
        false => Control::find()?,
    };
    match place.state(PATIENCE) {
        State::Off => {}
        State::On { pid, .. } => {
            writeln!(
                out,
                "MPS already runs for {}: control daemon {pid}",
                dir.path.display()
            )?;
            return Ok(Exit::Done);
        }
        State::Silent { pid, why } => {
            return Err(Failure::failed(format!(
                "control daemon {pid} runs for {} and does not answer: {why}; end it with kill {pid}, then start again",
                dir.path.display()
            )));
        }
    }
    let begun = Instant::now();
    let daemon = control.daemon(&place, START).map_err(Failure::failed)?;
    loop {
        let state = place.state(PATIENCE);
        if let State::On { pid, .. } = state {
            writeln!(
                out,
                "MPS runs for {}: control daemon {pid}; programs of gpushare run join it",
                dir.path.display()
            )?;
            if let Some(list) = numbers() {
                writeln!(
                    out,
                    "it sees only GPU {list}, as CUDA_VISIBLE_DEVICES says, and its programs count from 0 among these: unset the \
                     variable for them, or give UUIDs to both (nvidia-smi -L)"
                )?;
            }
            return Ok(Exit::Done);
        }
        // Another start at the same moment may have won, so a failure counts only if no daemon answers.
        let failed = !daemon.status.success();
        if begun.elapsed() >= START || failed && matches!(state, State::Off) {
            let why = match state {
                State::Silent { why, .. } => why,
                _ => format!("{}, it said: {}", daemon.status, daemon.words()),
            };
            return Err(Failure::failed(format!(
                "MPS did not start ({why}); {} may say more",
                place.log.join("control.log").display()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the value of CUDA_VISIBLE_DEVICES if it has numbers other than the first ones in order, so that a program with the same
/// value would see other devices than the daemon, or none.
fn numbers() -> Option<String> {
    let list = std::env::var("CUDA_VISIBLE_DEVICES").ok()?;
    let numbers = list.split(',').map(|entry| entry.trim().parse::<usize>());
    let mut misread = numbers.enumerate();
    misread
        .any(|(at, number)| number.is_ok_and(|number| number != at))
        .then_some(list)
}
