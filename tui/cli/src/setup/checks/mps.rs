//! Check of the directory's MPS.

use std::time::Duration;

use shm_layout::{Liveness, Snapshot};

use super::{Finding, Patient};
use gpushare_base::host::mps::{Control, PIPE_DIRECTORY, PROGRAM, Place, State};
use gpushare_base::text::plain::plain;

/// Maximum time for the daemon to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks MPS; `snapshot` is of the segments, if they can be read.
pub(super) fn check(patient: &Patient, snapshot: Option<&Snapshot>) -> Option<Finding> {
    let clients = clients(snapshot);
    let dir = &patient.dir.as_ref().ok()?.path;
    let place = match Place::existing(dir) {
        Ok(place) => place,
        Err(failure) => {
            let fix = "remove it, or set GPUSHARE_DIR to a directory of your own; programs do not join MPS meanwhile";
            return Some(Finding::fail("mps", failure.sentence, fix));
        }
    };
    let state = place.as_ref().map(|place| place.state(PATIENCE));
    Some(match state {
        Some(State::On { pid, .. }) => running(pid, place.as_ref(), &clients),
        Some(State::Silent { pid, why }) => Finding::warn(
            "mps",
            format!("control daemon {pid} does not answer: {why}"),
            "run gpushare mps stop --force, then gpushare mps start; programs do not join it meanwhile",
        ),
        None | Some(State::Off) if !clients.is_empty() => Finding::ok(
            "mps",
            format!(
                "does not run for this directory; under the MPS of another are {}",
                clients.join(", ")
            ),
        ),
        None | Some(State::Off) => Finding::ok(
            "mps",
            match Control::find() {
                Ok(_) => "does not run for this directory; gpushare mps start starts it".into(),
                Err(_) => format!("does not run for this directory; {PROGRAM} is not in PATH"),
            },
        ),
    })
}

/// Describes the MPS that runs for this directory, and whether programs started here join it.
fn running(pid: u32, place: Option<&Place>, clients: &[String]) -> Finding {
    let named = std::env::var_os(PIPE_DIRECTORY);
    match named.filter(|named| place.is_some_and(|place| place.pipe != *named)) {
        Some(named) => Finding::warn(
            "mps",
            format!(
                "runs for this directory (control daemon {pid}), and {PIPE_DIRECTORY} is {named:?}"
            ),
            format!(
                "unset {PIPE_DIRECTORY}; programs started here do not join the one of this directory"
            ),
        ),
        None => Finding::ok(
            "mps",
            format!(
                "runs for this directory (control daemon {pid}), {}: programs of gpushare run join it, and quota, \
                 overlap and pause work on top of it",
                match clients {
                    [] => "no program counted here is under it".to_owned(),
                    some => format!("under it are {}", some.join(", ")),
                }
            ),
        ),
    }
}

/// Returns the programs whose kernels an MPS server runs, by the driver's report.
fn clients(snapshot: Option<&Snapshot>) -> Vec<String> {
    let living = snapshot
        .into_iter()
        .flat_map(|snapshot| &snapshot.processes);
    living
        .filter(|process| process.alive != Liveness::Dead)
        .filter(|process| process.devices.iter().any(|on| on.mps == Some(true)))
        .map(|process| {
            let name = match process.identity.label.as_str() {
                "" => &process.identity.exe,
                label => label,
            };
            format!("{} {}", process.identity.pid, plain(name))
        })
        .collect()
}
