//! A run of an experiment: the programs of a plan once, under one condition.
//!
//! Everything is made for the run and removed after it, in this order: a segment directory in memory, an MPS of its own,
//! the policy, the programs behind their guards. So nothing needs to be restored. The programs do not inherit the user's
//! variables for gpushare and MPS, because only the plan defines a condition.
//!
//! Where a plan switches, the programs of all conditions run at once, and all but those of one condition are stopped. Each
//! condition then has had the machine of the same minutes.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use shm_layout::{Change, variables};

use super::order;
use super::plan::{Condition, Plan, Program};
use super::results::Run;
pub use super::scene::Trouble;
use super::scene::{Cast, Member, PACE, Played, Scene, forget_ours};
use crate::program::Settings;
use crate::stage::Stage;
use gpushare_base::host::guard::Guarded;
use gpushare_base::host::mps;
use gpushare_base::host::programs::OWN;
use gpushare_base::text::exit::Failure;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, Editor, device_memory};

/// Environment variable with the path of the file whose appearance starts the programs that wait for it.
const START_FILE: &str = "START_FILE";
/// Environment variable with the path of a folder that the programs of all runs share, for what only the first run measures.
const EXPERIMENT_DIR: &str = "EXPERIMENT_DIR";
/// Environment variable with the number of rounds, of equal length, in the time that a program runs.
const ROUNDS: &str = "ROUNDS";
/// Environment variable of programs that are stopped while those of another condition run: the length of a turn in seconds.
const TAKES_TURNS: &str = "TAKES_TURNS";
/// Time after the start in which the programs of all conditions run: each notices the start in it.
const TOGETHER: Duration = Duration::from_millis(200);

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
    /// Runs all programs under each of these conditions for these rounds, one condition after another, or switched if the plan
    /// says so. A failed program is no error; it is recorded in the [`Run`].
    pub fn run(
        &self,
        conditions: &[&Condition],
        rounds: Range<u32>,
    ) -> Vec<Result<Vec<Run>, Trouble>> {
        let parts: Vec<(usize, Cast<'_>)> = conditions
            .iter()
            .enumerate()
            .flat_map(|(at, condition)| {
                self.casts(condition)
                    .into_iter()
                    .map(move |cast| (at, cast))
            })
            .collect();
        let start = Instant::now();
        let new = |condition: &&Condition| {
            let new = |round| Run {
                condition: condition.name.clone(),
                round,
                warm_up: round < self.plan.warm_up,
                ..Run::default()
            };
            Ok(rounds.clone().map(new).collect())
        };
        let mut all: Vec<Result<Vec<Run>, Trouble>> = conditions.iter().map(new).collect();
        let together = self.plan.switch.map_or(1, |_| parts.len());
        for group in parts.chunks(together) {
            let scenes = group
                .iter()
                .map(|(at, cast)| (conditions[*at], cast.clone()));
            let played = self.play(scenes.collect(), rounds.len());
            for ((at, _), played) in group.iter().zip(played) {
                let Ok(runs) = &mut all[*at] else {
                    continue;
                };
                match played {
                    Ok((figures, lock)) => {
                        for (run, figures) in runs.iter_mut().zip(figures) {
                            run.figures.extend(figures);
                            // The counters are of all rounds together.
                            run.lock = lock.filter(|_| rounds.len() == 1);
                        }
                    }
                    Err(Trouble::Failed(why)) => {
                        runs.iter_mut()
                            .for_each(|run| run.failure = Some(why.clone()));
                    }
                    Err(trouble) => all[*at] = Err(trouble),
                }
            }
        }
        // Each run's part of what all took together.
        let count = (conditions.len() * rounds.len()) as f64;
        let seconds = (start.elapsed().as_secs_f64() / count * 1e3).round() / 1e3;
        for run in all.iter_mut().flatten().flatten() {
            run.seconds = seconds;
        }
        all
    }

    /// Returns the programs that run together under a condition: all, or each that is measured by itself.
    fn casts(&self, condition: &Condition) -> Vec<Cast<'_>> {
        match condition.alone {
            true => self
                .plan
                .measured()
                .map(|program| vec![(program, 1)])
                .collect(),
            false => vec![self.plan.programs.iter().map(|p| (p, p.count)).collect()],
        }
    }

    /// Runs programs to their end. If there are those of several conditions, they take turns.
    fn play(
        &self,
        parts: Vec<(&Condition, Cast<'_>)>,
        rounds: usize,
    ) -> Vec<Result<Played, Trouble>> {
        let count = parts.len();
        let seconds = self.plan.seconds * (count * rounds) as f64;
        let set = |(condition, cast)| self.set(condition, cast, (seconds, rounds));
        let mut scenes: Vec<Result<Scene<'_>, Trouble>> = parts.into_iter().map(set).collect();
        let start = Instant::now();
        let (mut begun, mut whose) = (None, None);
        loop {
            if (self.stopped)() {
                return scenes.iter().map(|_| Err(Trouble::Stopped)).collect();
            }
            let runs = if begun.is_some() {
                count * rounds
            } else {
                count
            };
            let limit = self.plan.timeout() * runs as u32;
            for scene in &mut scenes {
                let Ok(there) = scene else { continue };
                if there.has_ended() {
                    continue;
                }
                if let Err(trouble) = there.look() {
                    *scene = Err(trouble);
                } else if !there.has_ended() && start.elapsed() > limit {
                    *scene = Err(there.late(limit));
                }
            }
            if scenes.iter().flatten().all(Scene::has_ended) {
                return scenes.into_iter().map(|scene| scene?.figures()).collect();
            }
            if begun.is_none() && scenes.iter_mut().flatten().all(Scene::is_ready) {
                begun = Some(Instant::now());
                for scene in &mut scenes {
                    let begins = scene.as_ref().ok().map(Scene::begin);
                    if let Some(Err(error)) = begins {
                        *scene = Err(error.into());
                    }
                }
            }
            let turn = self.plan.switch.zip(begun).and_then(|(every, begun)| {
                let late = begun.elapsed().checked_sub(TOGETHER)?.as_secs_f64();
                (late < seconds).then_some((late / every) as usize)
            });
            let next = turn.map(|turn| order((turn / count) as u32, count)[turn % count]);
            if next != whose {
                whose = next;
                switch(&mut scenes, next);
            }
            std::thread::sleep(PACE);
        }
    }

    /// Starts the programs of a condition.
    fn set<'m>(
        &self,
        condition: &Condition,
        cast: Cast<'m>,
        span: (f64, usize),
    ) -> Result<Scene<'m>, Trouble> {
        if (self.stopped)() {
            return Err(Trouble::Stopped);
        }
        let library = condition
            .library(&self.plan.folder())
            .map_err(Trouble::Skip)?;
        let mut scene = Scene::new(condition, cast.clone(), self.simulated, span)?;
        if let Some(policy) = &condition.policy {
            set_policy(&scene.stage, policy.get_ref())?;
        }
        for (program, count) in cast {
            for name in program.names(count) {
                let running = self.start(&scene, condition, program, name, library.as_deref())?;
                scene.troupe.members.push(running);
            }
        }
        Ok(scene)
    }

    fn start<'m>(
        &self,
        scene: &Scene<'_>,
        condition: &Condition,
        program: &'m Program,
        name: String,
        library: Option<&Path>,
    ) -> Result<Member<'m>, Trouble> {
        let words = program.words(&self.plan.folder(), scene.seconds)?;
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
        let environment = self.environment(&scene.stage, condition, program)?;
        let guarded = Guarded::start(&words, |command| {
            forget_ours(command)
                .current_dir(self.plan.folder())
                .envs(environment)
                .env(START_FILE, scene.start_file())
                .env(EXPERIMENT_DIR, self.folder)
                .env(ROUNDS, scene.rounds.to_string())
                .envs(
                    self.plan
                        .switch
                        .map(|every| (TAKES_TURNS, every.to_string())),
                )
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

/// Lets the programs of one scene run, or of all.
fn switch(scenes: &mut [Result<Scene<'_>, Trouble>], to: Option<usize>) {
    for runs in [false, true] {
        for (at, scene) in scenes.iter_mut().enumerate() {
            if let Ok(scene) = scene
                && to.is_none_or(|to| to == at) == runs
            {
                scene.set_running(runs);
            }
        }
    }
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
