//! A run of an experiment: the programs of a plan once, under one condition.
//!
//! Everything is made for the run and removed after it, in this order: a segment directory in memory, an MPS of its own,
//! the policy, the programs behind their guards. So nothing needs to be restored. The programs do not inherit the user's
//! variables for gpushare and MPS, because only the plan defines a condition.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shm_layout::variables::{self, Reader};
use shm_layout::{Change, Segments, SlotId, clock, snapshot};

use super::plan::{Condition, Plan, Program};
use super::results::{Activity, Measured, Run};
use crate::program::Settings;
use crate::stage::Stage;
use gpushare_base::host::guard::{Guarded, Tail};
use gpushare_base::host::mps;
use gpushare_base::host::programs::OWN;
use gpushare_base::text::exit::Failure;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, Editor, device_memory};

/// Environment variable with the path of the file whose appearance starts the programs that wait for it.
const START_FILE: &str = "START_FILE";
/// Environment variable with the path of a folder that the programs of all runs share, for what only the first run measures.
const EXPERIMENT_DIR: &str = "EXPERIMENT_DIR";
/// Interval between two checks of the programs, and between two readings of the lock's counters.
const PACE: Duration = Duration::from_millis(10);
const COUNTERS: Duration = Duration::from_millis(200);
/// Time in which further programs that fail are named beside the first.
const AFTERMATH: Duration = Duration::from_secs(3);

/// The reason why a run has no figures.
#[derive(Debug)]
pub enum Trouble {
    /// The condition is not available on this machine.
    Skip(String),
    /// A program failed or exceeded its time.
    Failed(String),
    /// A signal asked this program to end.
    Stopped,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.sentence)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Runs the conditions of a plan.
pub struct Player<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// True if the programs run on the simulated GPU.
    pub simulated: bool,
    /// Folder that the programs of all runs share.
    pub folder: &'p Path,
    /// Returns true once a signal has asked this program to end.
    pub stopped: &'p dyn Fn() -> bool,
}

impl Player<'_> {
    /// Runs all programs once under a condition.
    ///
    /// # Errors
    ///
    /// If the machine does not have the condition, or if a signal asks this program to end. A failed program is no error;
    /// it is recorded in the [`Run`].
    pub fn run(&self, condition: &Condition, round: u32) -> Result<Run, Trouble> {
        let start = Instant::now();
        let mut run = Run {
            condition: condition.name.clone(),
            round,
            warm_up: round < self.plan.warm_up,
            ..Run::default()
        };
        let all: Vec<(&Program, u32)> = self.plan.programs.iter().map(|p| (p, p.count)).collect();
        let casts = if condition.alone {
            self.plan
                .measured()
                .map(|program| vec![(program, 1)])
                .collect()
        } else {
            vec![all]
        };
        for cast in casts {
            match self.play(condition, &cast) {
                Ok((figures, lock)) => {
                    run.figures.extend(figures);
                    run.lock = lock;
                }
                Err(Trouble::Failed(why)) => run.failure = Some(why),
                Err(trouble) => return Err(trouble),
            }
        }
        run.seconds = (start.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        Ok(run)
    }

    fn play(
        &self,
        condition: &Condition,
        cast: &[(&Program, u32)],
    ) -> Result<(Vec<Measured>, Option<Activity>), Trouble> {
        let library = condition
            .library(&self.plan.folder())
            .map_err(Trouble::Skip)?;
        let start = Instant::now();
        let stage = Stage::new(None, self.simulated)?;
        let _mps = condition.mps.then(|| Mps::start(&stage)).transpose()?;
        if let Some(policy) = &condition.policy {
            set_policy(&stage, policy.get_ref())?;
        }
        let mut troupe = Troupe::default();
        for (program, count) in cast {
            for name in program.names(*count) {
                let running = self.start(&stage, condition, program, name, library.as_deref())?;
                troupe.members.push(running);
            }
        }
        let mut counters = condition.is_ours().then(|| Counters::new(&stage.dir.path));
        let mut looked = Instant::now();
        let ready = |members: &mut Vec<Member<'_>>| members.iter_mut().all(Member::is_ready);
        let mut begun = false;
        loop {
            if (self.stopped)() {
                return Err(Trouble::Stopped);
            }
            if !begun && ready(&mut troupe.members) {
                std::fs::write(start_file(&stage), "")?;
                begun = true;
            }
            let ended = troupe.have_ended();
            if ended.map_err(|trouble| troupe.with_others(trouble))? {
                break;
            }
            if start.elapsed() > self.plan.timeout() {
                let late = troupe.members.iter_mut().find(|member| member.is_late());
                let late = late.map_or("a program", |member| &member.name);
                return Err(Trouble::Failed(format!(
                    "{late} had not ended after {} s; timeout = sets a longer time",
                    self.plan.timeout().as_secs()
                )));
            }
            if looked.elapsed() > COUNTERS {
                looked = Instant::now();
                counters.iter_mut().for_each(Counters::look);
            }
            std::thread::sleep(PACE);
        }
        let lock = counters.map(|counters| counters.sum());
        Ok((troupe.figures(cast)?, lock))
    }

    fn start<'m>(
        &self,
        stage: &Stage,
        condition: &Condition,
        program: &'m Program,
        name: String,
        library: Option<&Path>,
    ) -> Result<Member<'m>, Trouble> {
        let folder = self.plan.folder();
        let words = program.words(&folder, self.plan.seconds)?;
        let words = match library {
            _ if condition.is_ours() => under_us(condition, program, &name, words),
            // The variable is set for the program only, so the guard does not load the library.
            Some(library) => {
                let mut preload = OsString::from("LD_PRELOAD=");
                preload.push(library);
                [OsString::from("env"), preload]
                    .into_iter()
                    .chain(words)
                    .collect()
            }
            None => words,
        };
        let environment = self.environment(stage, condition, program)?;
        let guarded = Guarded::start(&words, |command| {
            forget_ours(command)
                .current_dir(&folder)
                .envs(environment)
                .env(START_FILE, start_file(stage))
                .env(EXPERIMENT_DIR, self.folder)
                .envs(condition.variables(program));
        })?;
        Ok(Member {
            name,
            program,
            guarded,
            ended: false,
            ready: program.ready.is_none(),
        })
    }

    fn environment(
        &self,
        stage: &Stage,
        condition: &Condition,
        program: &Program,
    ) -> Result<Vec<(&'static str, OsString)>, Trouble> {
        let mut environment = stage.environment()?;
        if let Some(scenario) = self.plan.scenario.as_ref().filter(|_| self.simulated) {
            // The scenario is a name, or a file beside the plan.
            let file = self.plan.folder().join(scenario);
            let scenario = if file.is_file() {
                file.into_os_string()
            } else {
                scenario.into()
            };
            environment.push((variables::SIM_SCENARIO, scenario));
        }
        // Under gpushare, `gpushare run` sets the MPS to join.
        if condition.is_under_mps(&program.name) && !condition.is_ours() {
            let place = mps::Place::of(&stage.dir.path)?;
            environment.push((mps::PIPE_DIRECTORY, place.pipe.into()));
            environment.push((mps::LOG_DIRECTORY, place.log.into()));
        }
        Ok(environment)
    }
}

/// Returns the command line under `gpushare run`.
fn under_us(
    condition: &Condition,
    program: &Program,
    name: &str,
    words: Vec<OsString>,
) -> Vec<OsString> {
    let mps = condition.is_under_mps(&program.name);
    let settings = Settings {
        mps,
        no_mps: !mps,
        ..program.settings(condition.change_of(&program.name))
    };
    let settings = settings.with(variables::NAME, Some(name));
    let mut line = vec![OWN.into(), "run".into()];
    line.extend(settings.options().into_iter().map(OsString::from));
    line.push("--".into());
    line.extend(words);
    line
}

/// Removes the user's variables for limits, MPS and preloaded libraries from the environment.
fn forget_ours(command: &mut Command) -> &mut Command {
    let library = variables::TABLE
        .iter()
        .filter(|v| v.reader == Reader::Library);
    for variable in library {
        command.env_remove(variable.name);
    }
    let mps = [
        mps::PIPE_DIRECTORY,
        mps::LOG_DIRECTORY,
        mps::CLIENT_PRIORITY,
        mps::ACTIVE_THREAD_PERCENTAGE,
    ];
    mps.into_iter().chain(["LD_PRELOAD"]).for_each(|name| {
        command.env_remove(name);
    });
    command
}

fn start_file(stage: &Stage) -> PathBuf {
    stage.dir.path.join("start")
}

fn set_policy(stage: &Stage, text: &str) -> Result<(), Trouble> {
    let (settings, policy) = device_memory::with_policy(text)?;
    let editor = Editor::open(&stage.dir);
    let memory = (!settings.is_none()).then_some(Change::DeviceMemory {
        device: None,
        settings,
    });
    let policy = policy.map(|policy| Change::Policy {
        device: None,
        policy: Some(policy),
        until: None,
    });
    for change in memory.into_iter().chain(policy) {
        let request = EditRequest::new(change, "all GPUs", Place::Ctl)
            .because(Some("gpushare experiment".into()));
        editor.apply(request).map_err(Failure::from)?;
    }
    Ok(())
}

/// The stage's own MPS, stopped when this is dropped.
struct Mps<'s> {
    stage: &'s Stage,
}

impl<'s> Mps<'s> {
    fn start(stage: &'s Stage) -> Result<Self, Trouble> {
        let mps = Self { stage };
        let simulated = stage.simulated.then_some("--sim");
        let words: Vec<&str> = ["mps", "start"].into_iter().chain(simulated).collect();
        let output = mps.gpushare(&words)?;
        if output.status.success() {
            return Ok(mps);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("gpushare: ");
        Err(Trouble::Skip(said.to_owned()))
    }

    /// Runs a verb of `gpushare`, because the verb waits, checks and reports errors.
    fn gpushare(&self, words: &[&str]) -> std::io::Result<std::process::Output> {
        use std::os::unix::process::CommandExt as _;
        forget_ours(Command::new(OWN).args(words))
            .env(variables::DIR, &self.stage.dir.path)
            // Programs would count from 0 among the devices of the daemon, by the same variable.
            .env_remove("CUDA_VISIBLE_DEVICES")
            // In its own group, so that ^C does not interrupt it halfway.
            .process_group(0)
            .stdin(Stdio::null())
            .output()
    }
}

impl Drop for Mps<'_> {
    fn drop(&mut self) {
        let _ = self.gpushare(&["mps", "stop", "--force"]);
    }
}

/// A running program.
struct Member<'m> {
    name: String,
    program: &'m Program,
    guarded: Guarded,
    ended: bool,
    ready: bool,
}

impl Member<'_> {
    fn is_ready(&mut self) -> bool {
        if let Some(ready) = self.program.ready.as_ref().filter(|_| !self.ready) {
            let said = self.guarded.said.text();
            let pattern = regex_lite::Regex::new(ready.get_ref());
            self.ready =
                pattern.is_ok_and(|pattern| said.lines().any(|line| pattern.is_match(line)));
        }
        self.ready
    }

    fn is_measured(&self) -> bool {
        !self.program.figures.is_empty()
    }

    fn is_late(&self) -> bool {
        !self.ended && self.is_measured()
    }

    /// Returns true if the program has ended with code 0. Any other end is an error.
    fn has_ended(&mut self) -> Result<bool, Trouble> {
        if self.ended {
            return Ok(true);
        }
        let Some(code) = self.guarded.ended()? else {
            return Ok(false);
        };
        self.ended = true;
        // A program that has ended does not delay the others' start.
        self.ready = true;
        if code == 0 {
            return Ok(true);
        }
        // The last output may still be in the pipe.
        let settled = |tail: &Tail| {
            tail.settle(Duration::from_secs(1));
            let text = tail.text();
            let mut lines = text.lines().rev().map(str::trim);
            lines.find(|line| !line.is_empty()).map(str::to_owned)
        };
        let last = settled(&self.guarded.errors).or_else(|| settled(&self.guarded.said));
        let last = last.unwrap_or_else(|| "no output".into());
        let last = last.trim_start_matches("gpushare: ");
        let how = match code {
            128.. => format!("signal {}", code - 128),
            code => format!("exit code {code}"),
        };
        Err(Trouble::Failed(format!(
            "{} ended with {how}: {last}",
            self.name
        )))
    }
}

/// The programs of a run. On drop, all are asked to end before the first is waited for.
#[derive(Default)]
struct Troupe<'m> {
    members: Vec<Member<'m>>,
}

impl Troupe<'_> {
    /// Returns true if all programs with figures have ended.
    fn have_ended(&mut self) -> Result<bool, Trouble> {
        let mut all = true;
        for member in &mut self.members {
            let ended = member.has_ended()?;
            all &= ended || !member.is_measured();
        }
        Ok(all)
    }

    /// Adds the failures that follow one shortly. The client of a server that has died is often seen to fail first.
    fn with_others(&mut self, trouble: Trouble) -> Trouble {
        let Trouble::Failed(first) = trouble else {
            return trouble;
        };
        let until = Instant::now() + AFTERMATH;
        let mut failures = vec![first];
        let runs = |member: &Member<'_>| !member.ended;
        while failures.len() == 1 && self.members.iter().any(runs) && Instant::now() < until {
            std::thread::sleep(PACE);
            for member in &mut self.members {
                if let Err(Trouble::Failed(why)) = member.has_ended() {
                    failures.push(why);
                }
            }
        }
        Trouble::Failed(failures.join("; "))
    }

    fn figures(&self, cast: &[(&Program, u32)]) -> Result<Vec<Measured>, Trouble> {
        let mut measured = Vec::new();
        for (program, _) in cast {
            for figure in &program.figures {
                let of = |member: &&Member<'_>| member.program.name == program.name;
                let each = self.members.iter().filter(of).map(|member| {
                    member.guarded.said.settle(Duration::from_secs(1));
                    let value = figure.read(&member.guarded.said.text());
                    value.map_err(|why| {
                        Trouble::Failed(format!("{}, figure {}: {why}", member.name, figure.name))
                    })
                });
                let each = each.collect::<Result<Vec<_>, _>>()?;
                // Without the figure of one copy there is none of all.
                let each = each.into_iter().collect::<Option<Vec<f64>>>();
                measured.extend(each.and_then(|each| {
                    Some(Measured {
                        program: program.name.clone(),
                        figure: figure.name.clone(),
                        value: figure.combine(&each)?,
                        each,
                    })
                }));
            }
        }
        Ok(measured)
    }
}

impl Drop for Troupe<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.guarded.dismiss();
        }
    }
}

/// The lock's counters so far. They are read while the programs run, because a slot is freed when its process ends.
struct Counters {
    dir: PathBuf,
    segments: Option<Segments>,
    slots: HashMap<SlotId, Activity>,
    handoffs: u64,
}

impl Counters {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            segments: None,
            slots: HashMap::new(),
            handoffs: 0,
        }
    }

    fn look(&mut self) {
        if self.segments.is_none() {
            self.segments = Segments::open_viewer(&self.dir).ok();
        }
        let Some(segments) = &self.segments else {
            return;
        };
        let now = snapshot(segments, clock::now());
        self.handoffs = now.devices.iter().map(|device| device.handoffs).sum();
        for process in now.processes {
            let mut activity = Activity::default();
            for device in &process.devices {
                activity.drains += device.counters.drains;
                activity.forced += device.lock.forced;
                activity.acquisitions += device.lock.acquisitions;
            }
            self.slots.insert(process.slot, activity);
        }
    }

    fn sum(self) -> Activity {
        let mut sum = Activity {
            handoffs: self.handoffs,
            ..Activity::default()
        };
        for activity in self.slots.values() {
            sum.drains += activity.drains;
            sum.forced += activity.forced;
            sum.acquisitions += activity.acquisitions;
        }
        sum
    }
}
