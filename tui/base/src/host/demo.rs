//! The running demonstration of this user. Programs that watch or edit reach it without any variable while nothing else
//! runs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpushare_sim::remains::STAGE;
use rustix::fs::{FlockOperation, flock};
use shm_layout::dir::Dir;
use shm_layout::text::PathText as _;
use shm_layout::{Liveness, Segments, clock, locate_existing, snapshot, variables};

use crate::host::artifacts::{self, LIBRARY_PATH};
use crate::host::programs::OWN;
use crate::text::exit::Failure;
use crate::text::shell;

/// Directory of all stages.
pub const SHM: &str = "/dev/shm";
/// The file in a stage's directory that its program keeps locked.
pub const ALIVE: &str = "alive";
/// The file in the directory of a demonstration. It holds the kind of its GPU.
const MARK: &str = "demo";
/// Content of the mark where the GPU is simulated.
const SIMULATED: &str = "simulated";

/// Returns true if the program of this stage lives, in any pid namespace, and `None` if it left no mark.
pub fn lives(stage: &Dir) -> Option<bool> {
    let file = stage.read(ALIVE).ok()?;
    Some(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Lets other programs of this user find the demonstration in this stage.
pub fn announce(stage: &Path, is_simulated: bool) -> Result<(), Failure> {
    let mut mark = Dir::open(stage)?.write(MARK, 0o600)?;
    Ok(mark.write_all(if is_simulated { SIMULATED } else { "real" }.as_bytes())?)
}

/// Returns the variables with which a program finds the simulated GPU of a stage, in the world of the stage if it has one.
pub fn simulated_environment(
    dir: &Path,
    world: Option<&str>,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let folder = artifacts::sim_folder(dir)?;
    let found = [
        (LIBRARY_PATH.variable, LIBRARY_PATH.prepend(&folder)),
        (variables::SIM, "1".into()),
    ];
    let world = world.map(|world| (variables::SIM_WORLD, world.into()));
    Ok(found.into_iter().chain(world).collect())
}

/// Starts this program again inside the running demonstration if no other program of this user runs. Returns the sentence
/// that names the demonstration if others run, and `None` if there is none.
pub fn enter() -> Result<Option<String>, Failure> {
    let wanted = std::env::var_os(variables::DIR).filter(|dir| !dir.is_empty());
    if std::env::var_os(variables::SIM_WORLD).is_some() {
        return Ok(None);
    }
    let Some(demo) = running_in(Path::new(SHM), wanted.as_deref()) else {
        return Ok(None);
    };
    if wanted.is_none() && is_busy() {
        return Ok(Some(demo.line()));
    }
    if wanted.is_some() && !demo.is_simulated {
        return Ok(None);
    }
    let error = demo.again()?.exec();
    Err(Failure::failed(format!(
        "cannot start inside the demo: {error}"
    )))
}

/// A running demonstration.
struct Demo {
    dir: PathBuf,
    is_simulated: bool,
}

/// Returns the demonstration of this user that runs in `parent`, or the one in the directory `wanted`.
fn running_in(parent: &Path, wanted: Option<&OsStr>) -> Option<Demo> {
    let found: Vec<PathBuf> = match wanted {
        Some(wanted) => vec![PathBuf::from(wanted)],
        None => {
            let entries = fs::read_dir(parent).ok()?.flatten();
            entries.map(|entry| entry.path()).collect()
        }
    };
    let is_stage = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        path.parent() == Some(parent) && name.starts_with(STAGE.as_bytes())
    };
    found.into_iter().filter(is_stage).find_map(|path| {
        let dir = Dir::open(&path).ok().filter(Dir::is_ours)?;
        let mut kind = String::new();
        dir.read(MARK).ok()?.read_to_string(&mut kind).ok()?;
        (lives(&dir)?).then(|| Demo {
            is_simulated: kind == SIMULATED,
            dir: path,
        })
    })
}

/// Returns true if a program runs under the directory that this process finds without the demonstration, or if a broker serves
/// it: an administrator's edit is meant for the machine, also while nothing runs.
fn is_busy() -> bool {
    let dir = locate_existing();
    if dir.as_ref().is_ok_and(|dir| dir.is_brokered) {
        return true;
    }
    let segments = dir.and_then(|dir| Segments::open_viewer(&dir.path));
    segments.is_ok_and(|segments| {
        let processes = snapshot(&segments, clock::now()).processes;
        processes
            .iter()
            .any(|process| process.alive != Liveness::Dead)
    })
}

impl Demo {
    /// Returns the command that runs this program again on the demonstration's segments and GPU.
    fn again(&self) -> Result<Command, Failure> {
        let mut words = std::env::args_os();
        let mut command = Command::new(OWN);
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words).env(variables::DIR, &self.dir);
        if self.is_simulated {
            let world = self.dir.file_name().and_then(OsStr::to_str);
            command.envs(simulated_environment(&self.dir, world)?);
        }
        Ok(command)
    }

    fn line(&self) -> String {
        let (dir, words) = (self.dir.shown(), shell::line(std::env::args_os()));
        format!("a demo runs; to reach it: {}={dir} {words}", variables::DIR)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;

    #[test]
    fn only_a_living_demo_is_found() {
        let shm = tempfile::tempdir().expect("there is room");
        let stage = |name: &str| {
            let path = shm.path().join(name);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .expect("ours");
            let alive = Dir::open(&path)
                .expect("ours")
                .write(ALIVE, 0o600)
                .expect("ours");
            flock(&alive, FlockOperation::NonBlockingLockExclusive).expect("it is new");
            (path, alive)
        };
        let (_experiment, _runs) = stage("gpushare-stage-1-0");
        let (path, runs) = stage("gpushare-stage-2-0");
        assert!(running_in(shm.path(), None).is_none(), "no stage is a demo");
        announce(&path, true).expect("ours");
        let demo = running_in(shm.path(), None).expect("a demo");
        assert_eq!((&demo.dir, demo.is_simulated), (&path, true));
        assert!(running_in(shm.path(), Some("/elsewhere".as_ref())).is_none());
        drop(runs);
        assert!(
            running_in(shm.path(), None).is_none(),
            "its program has ended"
        );
    }
}
