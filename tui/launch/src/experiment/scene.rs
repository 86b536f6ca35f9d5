//! The programs of a plan under one condition, with what was made for them: a segment directory in memory and an MPS of
//! their own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shm_layout::variables::{self, Reader};
use shm_layout::{Segments, SlotId, clock, snapshot};

use super::plan::{Condition, Program};
use super::results::{Activity, Measured};
use crate::stage::Stage;
use gpushare_base::host::guard::{Guarded, Tail};
use gpushare_base::host::mps;
use gpushare_base::host::programs::OWN;
use gpushare_base::text::exit::Failure;

/// Interval between two readings of the lock's counters.
const COUNTERS: Duration = Duration::from_millis(200);
/// Time in which further programs that fail are named beside the first.
const AFTERMATH: Duration = Duration::from_secs(3);
/// Interval between two checks of the programs.
pub(super) const PACE: Duration = Duration::from_millis(10);

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

/// The programs of a run, and how many of each.
pub(super) type Cast<'p> = Vec<(&'p Program, u32)>;

/// The figures of each round, and the lock's activity.
pub(super) type Played = (Vec<Vec<Measured>>, Option<Activity>);

/// Programs behind their guards. On drop they end before their MPS, and that before their segments.
pub(super) struct Scene<'p> {
    cast: Cast<'p>,
    pub(super) troupe: Troupe<'p>,
    counters: Option<Counters>,
    _mps: Option<Mps>,
    pub(super) stage: Stage,
    has_ended: bool,
    /// The time for which the programs run, and the number of rounds in it.
    pub(super) seconds: f64,
    pub(super) rounds: usize,
}

impl<'p> Scene<'p> {
    /// Makes a scene without programs.
    pub(super) fn new(
        condition: &Condition,
        cast: Cast<'p>,
        simulated: bool,
        (seconds, rounds): (f64, usize),
    ) -> Result<Self, Trouble> {
        let stage = Stage::new(None, simulated)?;
        Ok(Self {
            cast,
            troupe: Troupe::default(),
            counters: condition.is_ours().then(|| Counters::new(&stage.dir.path)),
            _mps: condition.mps.then(|| Mps::start(&stage)).transpose()?,
            stage,
            has_ended: false,
            seconds,
            rounds,
        })
    }

    pub(super) fn is_ready(&mut self) -> bool {
        self.troupe.members.iter_mut().all(Member::is_ready)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Makes the file that the programs wait for.
    pub(super) fn begin(&self) -> std::io::Result<()> {
        std::fs::write(self.start_file(), "")
    }

    pub(super) fn start_file(&self) -> PathBuf {
        self.stage.dir.path.join("start")
    }

    /// Stops the programs, or lets them go on.
    pub(super) fn set_running(&mut self, runs: bool) {
        for member in &mut self.troupe.members {
            match runs {
                true => member.guarded.go_on(),
                false => member.guarded.stop(),
            }
        }
    }

    /// Looks which programs have ended, and what the lock has done.
    pub(super) fn look(&mut self) -> Result<(), Trouble> {
        self.counters.iter_mut().for_each(Counters::look);
        let ended = self.troupe.have_ended();
        self.has_ended = ended.map_err(|trouble| self.troupe.with_others(trouble))?;
        Ok(())
    }

    /// Returns the error for programs that have not ended within `limit`.
    pub(super) fn late(&self, limit: Duration) -> Trouble {
        let late = self.troupe.members.iter().find(|member| member.is_late());
        let late = late.map_or("a program", |member| &member.name);
        Trouble::Failed(format!(
            "{late} had not ended after {} s; timeout = sets a longer time",
            limit.as_secs()
        ))
    }

    /// Returns what the programs printed for each round, and what the lock did.
    pub(super) fn figures(self) -> Result<Played, Trouble> {
        let lock = self.counters.map(Counters::sum);
        Ok((self.troupe.figures(&self.cast, self.rounds)?, lock))
    }
}

/// The stage's own MPS, stopped when this is dropped.
struct Mps {
    dir: PathBuf,
}

impl Mps {
    fn start(stage: &Stage) -> Result<Self, Trouble> {
        let mps = Self {
            dir: stage.dir.path.clone(),
        };
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
            .env(variables::DIR, &self.dir)
            // Programs would count from 0 among the devices of the daemon, by the same variable.
            .env_remove("CUDA_VISIBLE_DEVICES")
            // In its own group, so that ^C does not interrupt it halfway.
            .process_group(0)
            .stdin(Stdio::null())
            .output()
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        let _ = self.gpushare(&["mps", "stop", "--force"]);
    }
}

/// A running program.
pub(super) struct Member<'m> {
    pub(super) name: String,
    pub(super) program: &'m Program,
    pub(super) guarded: Guarded,
    pub(super) ended: bool,
    pub(super) ready: bool,
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
pub(super) struct Troupe<'m> {
    pub(super) members: Vec<Member<'m>>,
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

    fn figures(&self, cast: &Cast<'_>, rounds: usize) -> Result<Vec<Vec<Measured>>, Trouble> {
        let mut measured = vec![Vec::new(); rounds];
        for (program, _) in cast {
            for figure in &program.figures {
                let of = |member: &&Member<'_>| member.program.name == program.name;
                let each = self.members.iter().filter(of).map(|member| {
                    member.guarded.said.settle(Duration::from_secs(1));
                    let values = figure.read(&member.guarded.said.text(), rounds);
                    values.map_err(|why| {
                        Trouble::Failed(format!("{}, figure {}: {why}", member.name, figure.name))
                    })
                });
                let each = each.collect::<Result<Vec<_>, _>>()?;
                for (round, measured) in measured.iter_mut().enumerate() {
                    // Without the figure of one copy there is none of all.
                    let each = each.iter().map(|values| values[round]);
                    let each = each.collect::<Option<Vec<f64>>>();
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
    looked: Instant,
}

impl Counters {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            segments: None,
            slots: HashMap::new(),
            handoffs: 0,
            looked: Instant::now(),
        }
    }

    fn look(&mut self) {
        if self.looked.elapsed() < COUNTERS {
            return;
        }
        self.looked = Instant::now();
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

/// Removes the user's variables for limits, MPS and preloaded libraries from the environment.
pub(super) fn forget_ours(command: &mut Command) -> &mut Command {
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
