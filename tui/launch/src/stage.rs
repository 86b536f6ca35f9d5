//! A stage is a place to run workloads in that is removed afterwards, for the demonstration and experiments.
//!
//! Usually it is a segment directory and a simulated world of its own. Dropping the stage ends the programs first and then
//! removes the rest.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use shm_layout::text::PathText as _;
use shm_layout::{OpenError, SegmentDir, Segments, clock, snapshot};

use crate::program::{Launch, Settings};
use gpushare_base::host::artifacts;
use gpushare_base::host::demo;
use gpushare_base::host::processes::Children;
use gpushare_base::text::exit::Failure;
use shm_layout::variables;

use super::leftovers::{Private, sweep};

/// Maximum time for programs to reach the device.
const START: Duration = Duration::from_secs(60);
/// End of the library's message that it does not manage its process.
const UNMANAGED: &str = "this process runs unmanaged";
/// Time after `limit` at which the programs end by themselves.
const MARGIN: Duration = Duration::from_secs(60);

/// A place to run workloads in.
#[derive(Debug)]
pub struct Stage {
    /// The segment directory.
    pub dir: SegmentDir,
    /// True if the device is simulated.
    pub simulated: bool,
    /// Name of each program, and an unnamed file in memory with its standard error.
    programs: Vec<(String, File)>,
    children: Children,
    /// Private directory, dropped after the programs have ended.
    private: Option<Private>,
}

impl Stage {
    /// Makes a stage in a directory of its own, or in the caller's.
    pub fn new(here: Option<SegmentDir>, simulated: bool) -> Result<Self, Failure> {
        let (dir, private) = match here {
            Some(dir) => {
                sweep();
                (dir, None)
            }
            None => {
                let private = Private::new()?;
                (SegmentDir::at(&private.path), Some(private))
            }
        };
        Ok(Self {
            dir,
            simulated,
            programs: Vec::new(),
            children: Children::default(),
            private,
        })
    }

    /// Returns true if the segments are those of the stage alone and end with it.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Returns the environment variables of every program on this stage.
    pub fn environment(&self) -> Result<Vec<(&'static str, OsString)>, Failure> {
        let mut variables = vec![(variables::DIR, self.dir.path.clone().into_os_string())];
        if self.simulated {
            let world = self.private.as_ref().map(|private| private.world.as_str());
            variables.extend(demo::simulated_environment(&self.dir.path, world)?);
        }
        Ok(variables)
    }

    /// Prepares the workload program with these settings; `extra` overrides all other variables.
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

    /// Starts a workload that runs until the stage or this program ends, or until a while after `limit`.
    pub fn start(
        &mut self,
        settings: &Settings,
        arguments: &[&str],
        limit: Duration,
        extra: &[(String, String)],
    ) -> Result<(), Failure> {
        let name = settings
            .said(variables::NAME)
            .unwrap_or_default()
            .to_owned();
        let seconds = format!("--seconds={}", (limit + MARGIN).as_secs());
        let arguments: Vec<&str> = arguments
            .iter()
            .copied()
            // Our end of the pipe closes when this process ends for any reason.
            .chain(["--until-eof", seconds.as_str()])
            .collect();
        let mut program = self.prepare(settings, &arguments, extra)?;
        let cannot =
            |error: std::io::Error| Failure::failed(format!("{name} cannot be started: {error}"));
        let errors = memfd_create("stage-errors", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|errno| cannot(errno.into()))?;
        let theirs = errors.try_clone().map_err(cannot)?;
        let child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(theirs)
            .spawn()
            .map_err(cannot)?;
        self.children.adopt(child);
        self.programs.push((name, errors));
        Ok(())
    }

    /// Lets other programs of this user find the demonstration on this stage, if it has a directory of its own.
    pub fn announce(&self) -> Result<(), Failure> {
        match &self.private {
            Some(private) => demo::announce(&private.path, self.simulated),
            None => Ok(()),
        }
    }

    /// Returns true if each of these programs has entered a device. A program that ended early is an error.
    pub fn all_started(
        &mut self,
        since: Instant,
        names: &[&str],
    ) -> Result<Option<Segments>, Failure> {
        match Segments::open_viewer(&self.dir.path) {
            Ok(segments) => {
                let processes = snapshot(&segments, clock::now()).processes;
                let there = |name: &&str| {
                    processes.iter().any(|process| {
                        process.identity.label == **name && !process.devices.is_empty()
                    })
                };
                if names.iter().all(there) {
                    return Ok(Some(segments));
                }
            }
            Err(error) if error.is_not_yet() => {}
            Err(error) => return Err(unusable(&error)),
        }
        self.check_alive()?;
        self.check_managed()?;
        if since.elapsed() > START {
            return Err(Failure::failed(format!(
                "the programs did not reach a device in {} s; gpushare doctor shows why",
                START.as_secs()
            )));
        }
        Ok(None)
    }

    /// Fails with the last line of the program's output if a program has ended early.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        let Some((at, code)) = self.children.ended().first().copied() else {
            return Ok(());
        };
        let (name, words) = self.programs.get(at).map_or_else(
            || ("a program", String::new()),
            |(name, errors)| (name.as_str(), written(errors)),
        );
        let last = words
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("no output");
        let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        Err(Failure::failed(format!(
            "{name} ended early with {code}: {last}"
        )))
    }

    /// Fails if a program has reported that its library cannot manage it.
    fn check_managed(&self) -> Result<(), Failure> {
        let complaint = |(name, errors): &(String, File)| {
            let words = written(errors);
            let line = words.lines().find(|line| line.ends_with(UNMANAGED))?;
            Some(Failure::failed(format!("{name} wrote: {line}")))
        };
        self.programs.iter().find_map(complaint).map_or(Ok(()), Err)
    }

    /// Ends the programs.
    pub fn end(&mut self) {
        self.children.end();
        self.programs.clear();
    }
}

/// Returns the error for segments that the programs made and that cannot be used.
fn unusable(error: &OpenError) -> Failure {
    let OpenError::WrongVersion { ours, theirs, .. } = error else {
        return Failure::failed(error.to_string());
    };
    let library = artifacts::library();
    let library = library.map_or_else(|_| "the library".into(), |path| path.shown().to_string());
    Failure::failed(format!(
        "{library} is of another build: its segments have layout version {theirs}, and this program uses version {ours}; \
         build or install both together, or name the right library in {}",
        variables::LIB
    ))
}

/// Reads the end of a program's standard error.
fn written(errors: &File) -> String {
    const MOST: u64 = 64 << 10;
    let size = errors.metadata().map_or(0, |meta| meta.len());
    let mut bytes = vec![0; size.min(MOST) as usize];
    let read = errors.read_at(&mut bytes, size.saturating_sub(MOST));
    bytes.truncate(read.unwrap_or(0));
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_version_is_told_of_at_once() {
        let mut stage = Stage::new(None, true).unwrap();
        let state = stage.dir.path.join("state");
        drop(Segments::open_workload(&stage.dir.path).unwrap());
        let file = File::options().write(true).open(state).unwrap();
        // The header: magic, then the version.
        file.write_all_at(&99_u32.to_ne_bytes(), 8).unwrap();
        let failure = stage.all_started(Instant::now(), &["job"]);
        let failure = failure.err().expect("it is of no use");
        let told = &failure.sentence;
        assert!(told.contains("version 99"), "{told}");
        assert!(
            told.contains(&shm_layout::ABI_VERSION.to_string()),
            "{told}"
        );
    }
}
