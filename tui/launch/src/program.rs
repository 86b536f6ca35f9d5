//! Start of a program under gpushare: its settings are checked and turned into its environment.
//!
//! Everything is checked before anything is started. A wrong value is reported with exit code 2; the program never runs
//! without the limit that it was meant to have.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use gpushare_sim::scenario::{BUILT_IN, BadScenario, Scenario};
use gpushare_sim::world;
use shm_layout::SegmentDir;
use shm_layout::environment::Environment;
use shm_layout::text::PathText as _;

use crate::leftovers::sweep_worlds;
use gpushare_base::host::artifacts;
use gpushare_base::host::broken_pipe;
use gpushare_base::host::elf::{self, Obstacle};
use gpushare_base::host::programs::find_program;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::nearest::explained;
use gpushare_base::text::plain::plain;
use gpushare_base::text::units;
use shm_layout::variables;

pub mod misspelt;
mod mps;
mod settings;

pub use settings::Settings;

/// A program that is to start under gpushare.
#[derive(Debug)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    /// Variables that the program does not inherit.
    removed: Vec<&'static str>,
    /// Warnings to print before the program runs.
    pub warnings: Vec<String>,
    /// Reason why nothing can be enforced in the program or its children, if there is one.
    pub futile: Option<String>,
}

impl Launch {
    /// Finds the program and the library and prepares the environment.
    pub fn prepare(
        command: &[OsString],
        settings: &Settings,
        dir: Option<&SegmentDir>,
    ) -> Result<Self, Failure> {
        let variables = settings.variables()?;
        let environment = settings.environment()?;
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::usage("there is no program to run; put it after --"))?;
        if program.as_encoded_bytes().starts_with(b"-") {
            return Err(taken_for_scenario(settings).unwrap_or_else(|| not_an_option(program)));
        }
        let program = find_program(program)
            .map_err(|failure| taken_for_scenario(settings).unwrap_or(failure))?;
        let library = artifacts::library()?;
        let obstacle = elf::obstacle(&program);
        let sentence = |obstacle: &Obstacle| obstacle.sentence(&program);
        let (library, unreachable) =
            match artifacts::preload(library, dir.map(|dir| dir.path.as_path())) {
                Ok(library) => (Some(library), None),
                Err(why) => (None, Some(why)),
            };
        let hindrance = unreachable.or_else(|| obstacle.as_ref().map(sentence));
        let limited = !settings.limits().is_empty();
        let (futile, warning) = match &obstacle {
            Some(Obstacle::Privileged) => (hindrance, None),
            _ if limited && hindrance.is_some() => (hindrance, None),
            _ => (disabled(&environment), hindrance),
        };
        let mut launch = Self {
            warnings: warning.into_iter().collect(),
            futile,
            program,
            arguments: arguments.to_vec(),
            environment: variables,
            removed: Vec::new(),
        };
        if let Some(library) = library {
            launch.set("LD_PRELOAD", artifacts::PRELOAD.prepend(&library));
        }
        // The program may change its directory before it opens the segments, so a relative path is made absolute.
        let given = std::env::var_os(variables::DIR).filter(|given| !given.is_empty());
        if let Some(dir) = dir
            && given.is_some_and(|given| Path::new(&given).is_relative())
        {
            launch.set(variables::DIR, &dir.path);
        }
        if let Some(scenario) = &settings.sim {
            let dir = dir.ok_or_else(|| {
                Failure::failed(format!(
                    "--sim needs a directory to put the simulator's links in; set {} to one of your own",
                    variables::DIR
                ))
            })?;
            let inherited = || launch.value(variables::SIM_SCENARIO)?.into_string().ok();
            if let Some(scenario) = scenario {
                launch
                    .play("--sim", scenario)
                    .map_err(|failure| taken_for_scenario(settings).unwrap_or(failure))?;
            } else if let Some(scenario) = inherited().filter(|name| !name.is_empty()) {
                launch.play(variables::SIM_SCENARIO, &scenario)?;
            }
            launch.simulate(dir)?;
        }
        Ok(launch)
    }

    /// Returns true if the program can find a driver: NVIDIA's with its devices, or a simulated one.
    pub fn has_driver(&self) -> bool {
        const OF_DRIVER: [&str; 3] = ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"];
        let path = self.value(artifacts::LIBRARY_PATH.variable);
        let mut folders = path.iter().flat_map(std::env::split_paths);
        OF_DRIVER.iter().any(|path| Path::new(path).exists())
            || folders.any(|folder| folder.join("libcuda.so.1").exists())
    }

    /// Leaves the library out of the preload, for a program in which it cannot work.
    pub fn without_library(&mut self) {
        self.environment.retain(|(name, _)| *name != "LD_PRELOAD");
    }

    /// Sets or replaces a variable of the program's environment.
    pub fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, value.into()));
    }

    /// Limits the devices that the program sees to these.
    pub fn show_only(&mut self, uuids: &str) {
        self.set("CUDA_VISIBLE_DEVICES", uuids);
    }

    /// Sets the scenario. Fails if it is unknown, or if the simulated machine cannot use it.
    fn play(&mut self, said_by: &str, scenario: &str) -> Result<(), Failure> {
        if scenario.starts_with('-') {
            return Err(not_an_option(OsStr::new(scenario)));
        }
        let wrong = |error: BadScenario| Failure::usage(format!("{said_by}: {error}"));
        let text = Scenario::text_of(scenario).map_err(wrong)?;
        Scenario::parse(&text).map_err(wrong)?;
        let get = |name: &str| self.value(name)?.into_string().ok();
        if let Some(present) = world::scenario_of_living(&world::name_in(&get))
            && present != text
        {
            let present = Scenario::name_of(&present).unwrap_or("another scenario");
            let other = match self.value(variables::SIM_WORLD) {
                Some(name) if !name.is_empty() => variables::SIM_WORLD,
                _ => variables::DIR,
            };
            return Err(Failure::failed(format!(
                "{said_by} {scenario}: the simulated machine here is {present} while programs use it; end them, or set {other} to \
                 another one"
            )));
        }
        // The program may change its directory before it opens the driver, so the path is made absolute.
        let file = Path::new(scenario);
        let scenario = if file.is_file() {
            std::fs::canonicalize(file)?
        } else {
            PathBuf::from(scenario)
        };
        self.set(variables::SIM_SCENARIO, scenario);
        Ok(())
    }

    /// Returns the value that the program will find in a variable.
    fn value(&self, name: &str) -> Option<OsString> {
        let here = self.environment.iter().find(|(known, _)| *known == name);
        here.map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(name))
    }

    fn simulate(&mut self, dir: &SegmentDir) -> Result<(), Failure> {
        // Programs whose directories are gone may have left simulated worlds behind; only this call removes those.
        sweep_worlds();
        let folder = std::path::absolute(artifacts::sim_folder(&dir.path)?)?;
        self.set(
            artifacts::LIBRARY_PATH.variable,
            artifacts::LIBRARY_PATH.prepend(&folder),
        );
        self.set(variables::SIM, "1");
        Ok(())
    }

    /// Returns the command, ready to be spawned.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        self.equip(&mut command);
        command
    }

    fn equip(&self, command: &mut Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        broken_pipe::pass_on(command);
    }

    /// Returns the variables that are set here, in order.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.environment
            .iter()
            .map(|(name, value)| (*name, value.as_os_str()))
    }

    /// Replaces this process by the program. Returns only if that fails.
    pub fn become_it(self) -> Failure {
        let mut error = self.command().exec();
        if needs_a_shell(&error) {
            error = self.shell().exec();
        }
        self.cannot(&error)
    }

    /// Starts the program as a child.
    pub fn spawn(&self) -> Result<Child, Failure> {
        let child = match self.command().spawn() {
            Err(error) if needs_a_shell(&error) => self.shell().spawn(),
            child => child,
        };
        child.map_err(|error| self.cannot(&error))
    }

    /// Returns a command that runs the file with `/bin/sh`. A script without an interpreter line is run so, as shells do.
    fn shell(&self) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.arg(&self.program).args(&self.arguments);
        self.equip(&mut shell);
        shell
    }

    fn cannot(&self, error: &std::io::Error) -> Failure {
        Failure {
            exit: Exit::CannotExecute,
            sentence: format!("{} cannot be executed: {error}", self.program.shown()),
        }
    }
}

fn needs_a_shell(error: &std::io::Error) -> bool {
    const ENOEXEC: i32 = 8;
    error.raw_os_error() == Some(ENOEXEC)
}

fn disabled(environment: &Environment) -> Option<String> {
    environment.disabled.then(|| {
        format!(
            "{} is set, so the library steps aside: nothing will be counted, limited or locked; unset it",
            variables::DISABLE
        )
    })
}

fn not_an_option(word: &OsStr) -> Failure {
    Failure::usage(format!(
        "{word:?} is not an option of gpushare run; gpushare run --help lists them (write ./NAME to start a program of \
         that name)"
    ))
}

/// Returns the names of the scenarios that `--sim` takes.
pub fn scenarios() -> Vec<String> {
    BUILT_IN
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// Returns an error if the program's name was read as the scenario of `--sim`, as in `--sim python train.py`.
fn taken_for_scenario(settings: &Settings) -> Option<Failure> {
    let scenario = settings.sim.as_ref()?.as_ref()?;
    find_program(OsStr::new(scenario)).ok()?;
    Some(Failure::usage(format!(
        "--sim took {scenario:?} as its scenario; put -- before the program: gpushare run --sim -- {} ...",
        plain(scenario)
    )))
}

/// Returns the message for a value that cannot be parsed.
pub fn wrong_value(name: &str, error: &units::TextError) -> Failure {
    Failure::usage(format!("{name}: {}", explained(error)))
}
