//! A place to run workloads in and to leave without a trace: for the demonstration and experiments.
//!
//! Usually a segment directory and a simulated world of its own. Whoever drops the stage ends the
//! programs first, then removes the rest.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shm_layout::{Mode, SegmentDir, Segments, clock, snapshot};

use crate::host::artifacts;
use crate::host::processes::Children;
use crate::text::exit::Failure;
use crate::workload::launch::{Launch, Settings};
use shm_layout::variables;

use super::leftovers::{mark, private_dir, remove_world, sweep};

/// How long programs may take to reach the device.
const START: Duration = Duration::from_secs(60);
/// How much longer than asked they run if nobody ends them.
const MARGIN: Duration = Duration::from_secs(60);

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
        let mut variables = vec![(variables::DIR, self.dir.path.clone().into_os_string())];
        if self.simulated {
            let folder = artifacts::sim_folder(&self.dir.path)?;
            variables.push((
                "LD_LIBRARY_PATH",
                artifacts::prepend(&folder, "LD_LIBRARY_PATH"),
            ));
            variables.push((variables::SIM, "1".into()));
            if self.private {
                variables.push((variables::SIM_WORLD, self.world.clone().into()));
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
