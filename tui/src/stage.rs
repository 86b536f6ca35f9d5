//! A place to run workloads in and to leave without a trace: for the demonstration and experiments.
//!
//! Usually a segment directory and a simulated world of its own. Whoever drops the stage ends the
//! programs first, then removes the rest.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use shm_layout::{Mode, SegmentDir, Segments, clock, snapshot};

use crate::exit::Failure;
use crate::launch::{Launch, Settings};
use crate::processes::Children;
use crate::{artifacts, environment};

/// How long programs may take to reach the device.
const START: Duration = Duration::from_secs(60);
/// How much longer than asked they run if nobody ends them.
const MARGIN: Duration = Duration::from_secs(60);

/// Age from which a stage without its program is one that was left behind.
const LEFTOVER: Duration = Duration::from_secs(2 * 3600);
/// The file in a private stage's directory that its program keeps locked.
const ALIVE: &str = "alive";

/// Where workloads run.
#[derive(Debug)]
pub struct Stage {
    /// The segments.
    pub dir: SegmentDir,
    /// Whether the device is simulated.
    pub simulated: bool,
    private: bool,
    world: String,
    names: Vec<String>,
    children: Children,
    /// Locked for as long as we live.
    _alive: Option<File>,
}

impl Stage {
    /// In a directory of its own, or in the caller's.
    pub fn new(here: Option<SegmentDir>, simulated: bool) -> Result<Self, Failure> {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        sweep();
        let world = format!("gpushare-stage-{}-{number}", std::process::id());
        let private = here.is_none();
        let mut alive = None;
        let dir = match here {
            Some(dir) => dir,
            None => {
                let path = private_dir(&world)?;
                // Without the mark the directory only stays longer if we are killed.
                alive = mark(&path).ok();
                SegmentDir {
                    path,
                    mode: Mode::User,
                }
            }
        };
        Ok(Self {
            dir,
            simulated,
            private,
            world,
            names: Vec::new(),
            children: Children::default(),
            _alive: alive,
        })
    }

    /// What every program on this stage has in its environment.
    pub fn environment(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let mut variables = vec![(environment::DIR, self.dir.path.clone().into_os_string())];
        if self.simulated {
            let folder = artifacts::sim_folder(&self.dir.path)?;
            variables.push((
                "LD_LIBRARY_PATH",
                artifacts::prepend(&folder, "LD_LIBRARY_PATH"),
            ));
            variables.push((environment::SIM, "1".into()));
            if self.private {
                variables.push((environment::SIM_WORLD, self.world.clone().into()));
            }
        }
        Ok(variables)
    }

    /// Prepares the workload program with these settings; `extra` goes on top of everything.
    pub fn prepare(
        &self,
        settings: &Settings,
        arguments: &[&str],
        extra: &[(String, String)],
    ) -> Result<Command, Failure> {
        let mut command = vec![artifacts::find("gpushare-workload")?.into_os_string()];
        command.extend(arguments.iter().map(OsString::from));
        let mut program = Launch::prepare(&command, settings, Some(&self.dir))?.command();
        program
            .envs(self.environment()?)
            .envs(extra.iter().map(|(name, value)| (name, value)));
        Ok(program)
    }

    /// Starts a workload that goes on until the stage or this program ends, or a while after `limit`.
    pub fn start(
        &mut self,
        settings: &Settings,
        arguments: &[&str],
        limit: Duration,
        extra: &[(String, String)],
    ) -> Result<(), Failure> {
        let name = settings.name.clone().unwrap_or_default();
        let seconds = format!("--seconds={}", (limit + MARGIN).as_secs());
        let arguments: Vec<&str> = arguments
            .iter()
            .copied()
            // Our end of the pipe closes with us, however we end.
            .chain(["--until-eof", seconds.as_str()])
            .collect();
        let mut program = self.prepare(settings, &arguments, extra)?;
        let cannot =
            |error: std::io::Error| Failure::failed(format!("{name} cannot be started: {error}"));
        let errors = File::create(self.errors(&name)).map_err(cannot)?;
        let child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(cannot)?;
        self.children.adopt(child);
        self.names.push(name);
        Ok(())
    }

    /// Whether each of these has entered a device. A program that ended before its time is a failure.
    pub fn everybody_is_there(
        &mut self,
        since: Instant,
        names: &[&str],
    ) -> Result<Option<Segments>, Failure> {
        if let Ok(segments) = Segments::open_viewer(&self.dir.path) {
            let processes = snapshot(&segments, clock::now()).processes;
            let there = |name: &&str| {
                processes
                    .iter()
                    .any(|process| process.identity.label == **name && !process.devices.is_empty())
            };
            if names.iter().all(there) {
                return Ok(Some(segments));
            }
        }
        self.nobody_fell()?;
        if since.elapsed() > START {
            return Err(Failure::failed(format!(
                "the programs did not reach a device in {} s; gpushare doctor looks for the reason",
                START.as_secs()
            )));
        }
        Ok(None)
    }

    /// A failure with the last words of the first program that ended before its time.
    pub fn nobody_fell(&mut self) -> Result<(), Failure> {
        let Some((at, code)) = self.children.ended().first().copied() else {
            return Ok(());
        };
        let name = self.names.get(at).map_or("a program", String::as_str);
        let words = fs::read_to_string(self.errors(name)).unwrap_or_default();
        let last = words
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it said nothing");
        let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        Err(Failure::failed(format!(
            "{name} ended early with {code}: {last}"
        )))
    }

    /// Ends the programs.
    pub fn end(&mut self) {
        self.children.end();
        for name in std::mem::take(&mut self.names) {
            let _ = fs::remove_file(self.errors(&name));
        }
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.dir.path.join(format!("stage-{name}.log"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
        if self.private {
            let _ = fs::remove_dir_all(&self.dir.path);
            remove_world(&self.world);
        }
    }
}

/// A directory in memory that only we may enter.
pub fn private_dir(name: &str) -> Result<PathBuf, Failure> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    let path = parent.join(name);
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| Failure::failed(format!("{} cannot be made: {error}", path.display())))?;
    Ok(path)
}

/// Says that somebody lives on this stage, in a way that ends with us however we end.
fn mark(dir: &Path) -> std::io::Result<File> {
    let new = dir.join("alive.new");
    let file = File::create(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Nobody ever finds it unlocked while we live.
    fs::rename(new, dir.join(ALIVE))?;
    Ok(file)
}

/// Whether who lived on this stage is gone, in whatever pid namespace that was.
fn is_deserted(dir: &Path) -> bool {
    File::open(dir.join(ALIVE))
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Removes what stages left behind whose program was killed.
fn sweep() {
    let Ok(files) = fs::read_dir("/dev/shm") else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let Some(pid) = name.to_str().and_then(owner) else {
            continue;
        };
        if is_deserted(&file.path()) {
            let _ = fs::remove_dir_all(file.path());
            remove_world(&name.to_string_lossy());
            continue;
        }
        let gone = !Path::new("/proc").join(pid.to_string()).exists();
        let old = file
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > LEFTOVER));
        // Old, because a program of another pid namespace may share this directory with us.
        if !(gone && old) {
            continue;
        }
        // What belongs to somebody else stays: only its owner may remove it.
        let _ = fs::remove_dir_all(file.path());
        let _ = fs::remove_file(file.path());
    }
}

/// The pid in the name of a stage's directory or of its world.
fn owner(name: &str) -> Option<u32> {
    let (_, rest) = name.split_once("gpushare-stage-")?;
    rest.split('-').next()?.parse().ok()
}

/// Removes what a simulated world leaves in shared memory once its programs have ended.
pub fn remove_world(world: &str) {
    let Ok(files) = fs::read_dir("/dev/shm") else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let rest = name
            .to_str()
            .and_then(|name| Some(name.split_once(world)?.1));
        // World 1 is not world 10.
        if rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit())) {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_stage_is_swept_by_the_next_one_and_a_living_one_is_not() {
        let stage = Stage::new(None, true).expect("there is room");
        let dir = stage.dir.path.clone();
        assert!(!is_deserted(&dir));
        sweep();
        assert!(dir.is_dir(), "it lives");
        // What SIGKILL leaves: the directory stays, the lock goes.
        let left = private_dir(&format!("gpushare-stage-{}-killed", std::process::id()))
            .expect("there is room");
        drop(mark(&left).expect("ours"));
        sweep();
        assert!(!left.exists());
        drop(stage);
        assert!(!dir.exists());
    }

    #[test]
    fn a_leftover_names_the_program_that_left_it() {
        assert_eq!(owner("gpushare-stage-4711-0"), Some(4711));
        assert_eq!(
            owner("gpushare-sim-0-gpushare-stage-4711-0.lock"),
            Some(4711)
        );
        assert_eq!(owner("gpushare-1000"), None);
        assert_eq!(owner("gpushare-stage-x"), None);
    }
}
