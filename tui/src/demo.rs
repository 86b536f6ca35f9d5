//! The demonstration: four workloads that want the same device, and what became of it.
//!
//! They differ in everything an operator can set: one trains without a pause, one serves in short
//! bursts, one keeps asking for more memory than its quota, one computes in long kernels under a
//! cap. The cast is a table; [`Stage`] is the place they run in, and is gone afterwards.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use shm_layout::{Mode, SegmentDir};

use crate::exit::Failure;
use crate::launch::{Launch, Settings};
use crate::processes::Children;
use crate::{artifacts, environment};

pub mod report;

/// The lock policy of the demonstration.
pub const POLICY: &str = "timeslice=5ms order=fair";

/// One of the cast.
#[derive(Clone, Copy)]
struct Role {
    name: &'static str,
    memory: Option<&'static str>,
    weight: &'static str,
    priority: &'static str,
    cap: Option<&'static str>,
    arguments: &'static [&'static str],
}

const CAST: [Role; 4] = [
    Role {
        name: "train",
        memory: Some("6GiB"),
        weight: "100",
        priority: "0",
        cap: None,
        arguments: &["--kernel-us=4000", "--burst=4", "--memory=4GiB"],
    },
    Role {
        name: "serve",
        memory: Some("3GiB"),
        weight: "300",
        priority: "5",
        cap: None,
        arguments: &[
            "--kernel-us=500",
            "--burst=4",
            "--gap-us=6000",
            "--memory=2GiB",
        ],
    },
    Role {
        name: "notebook",
        memory: Some("1GiB"),
        weight: "50",
        priority: "0",
        cap: None,
        arguments: &[
            "--kernel-us=2000",
            "--burst=2",
            "--gap-us=40000",
            "--until-oom",
            "--piece=192M",
        ],
    },
    Role {
        name: "batch",
        memory: None,
        weight: "100",
        priority: "-5",
        cap: Some("30%"),
        arguments: &[
            "--kernel-us=8000",
            "--burst=2",
            "--gap-us=4000",
            "--memory=1GiB",
            "--churn",
            "--piece=128M",
        ],
    },
];

/// Where the demonstration runs.
#[derive(Debug)]
pub struct Stage {
    /// The segments.
    pub dir: SegmentDir,
    /// Whether the device is simulated.
    pub simulated: bool,
    private: bool,
    world: String,
    /// Ended before the directory goes.
    children: Children,
}

impl Stage {
    /// A directory of its own, or the caller's.
    pub fn new(here: Option<SegmentDir>, simulated: bool) -> Result<Self, Failure> {
        let private = here.is_none();
        let dir = match here {
            Some(dir) => dir,
            None => private_dir()?,
        };
        let world = format!("gpushare-demo-{}", std::process::id());
        Ok(Self {
            dir,
            simulated,
            private,
            world,
            children: Children::default(),
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

    /// Starts the cast. With `limit` they end by themselves soon after it, should this program be killed.
    pub fn start(&mut self, limit: Duration) -> Result<(), Failure> {
        let workload = artifacts::find("gpushare-workload")?.into_os_string();
        let environment = self.environment()?;
        for role in &CAST {
            let settings = Settings {
                memory: role.memory.map(Into::into),
                weight: Some(role.weight.into()),
                priority: Some(role.priority.into()),
                cap: role.cap.map(Into::into),
                name: Some(role.name.into()),
                ..Settings::default()
            };
            let mut command = vec![workload.clone()];
            command.extend(role.arguments.iter().map(OsString::from));
            command.push(format!("--seconds={}", limit.as_secs() + 60).into());
            let launch = Launch::prepare(&command, &settings, &self.dir)?;
            let mut program = launch.command();
            program.envs(environment.iter().map(|(name, value)| (name, value)));
            self.spawn(role.name, &mut program)?;
        }
        Ok(())
    }

    fn spawn(&mut self, name: &str, program: &mut Command) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::failed(format!("the demo's {name} cannot be started: {error}"))
        };
        let errors = File::create(self.errors(name)).map_err(cannot)?;
        let child = program
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(cannot)?;
        self.children.adopt(child);
        Ok(())
    }

    fn errors(&self, name: &str) -> PathBuf {
        self.dir.path.join(format!("demo-{name}.log"))
    }

    /// The first of the cast that ended before its time, with its last words.
    pub fn casualty(&mut self) -> Option<String> {
        let (at, code) = *self.children.ended().first()?;
        let name = CAST.get(at).map_or("program", |role| role.name);
        let words = fs::read_to_string(self.errors(name)).unwrap_or_default();
        let last = words
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("it said nothing");
        let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        Some(format!("the demo's {name} ended early with {code}: {last}"))
    }

    /// Ends the cast.
    pub fn end(&mut self) {
        self.children.end();
        for role in &CAST {
            let _ = fs::remove_file(self.errors(role.name));
        }
    }

    /// The labels of the cast.
    pub fn names(&self) -> [&'static str; 4] {
        CAST.map(|role| role.name)
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

fn private_dir() -> Result<SegmentDir, Failure> {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    let path = parent.join(format!("gpushare-demo-{}", std::process::id()));
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(|error| {
            Failure::failed(format!(
                "cannot make {} for the demo: {error}; try --here",
                path.display()
            ))
        })?;
    Ok(SegmentDir {
        path,
        mode: Mode::User,
    })
}

/// Removes what a simulated world leaves in shared memory once its programs have ended.
pub fn remove_world(world: &str) {
    let Ok(files) = fs::read_dir("/dev/shm") else {
        return;
    };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().ends_with(world) {
            let _ = fs::remove_file(file.path());
        }
    }
}
