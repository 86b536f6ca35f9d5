//! The search for the settings that serve the running jobs of a device best, by trying them.
//!
//! A [`Tune`] decides and measures; the caller makes the edits. It tries each setting of its [`Plan`] for a while, in several
//! rounds, every second one backwards, so that a drift of the machine meets all settings alike. It ends early when a job
//! starts or ends, and when somebody else edits. The clock is that of the samples.

mod aim;
mod choice;
pub mod figures;
mod job;
pub mod plan;

use gpushare_sample::{LockPolicy, Sample, Who};

use crate::rhythm::{Mark, Rhythm};
pub use aim::Aim;
pub use choice::choose;
use figures::Figures;
pub use job::Job;
pub use plan::{Plan, Setting};

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Put this setting of the plan in force, then call [`Tune::began`].
    Try(usize),
    /// Look again soon.
    Wait,
    /// The search is over.
    End(End),
}

/// Why a search is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All settings were measured.
    Measured,
    /// This job started, or began to use the device.
    JobStarted(String),
    /// This job ended.
    JobEnded(String),
    /// The settings are not those that the search made.
    Edited,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Tune {
    plan: Plan,
    /// Settings tried so far, with repetitions.
    done: usize,
    trial: Option<Trial>,
    /// The processes on the device that did nothing at the start.
    idle: Vec<(Who, Mark)>,
    /// The rhythm of each job, for each setting and round.
    measured: Vec<Vec<Vec<Rhythm>>>,
}

/// A setting in force.
#[derive(Clone, Debug)]
struct Trial {
    generation: u64,
    began_ns: u64,
    /// The jobs at the end of the time in which they get used to the setting.
    marks: Vec<Mark>,
}

impl Tune {
    /// Begins a search.
    pub fn new(plan: Plan, sample: &Sample) -> Self {
        let others = sample.holdings(plan.gpu).filter_map(|(process, holding)| {
            let who = Who::of(process);
            (!plan.has(who)).then(|| (who, Mark::of(process, holding)))
        });
        Self {
            idle: others.collect(),
            measured: vec![Vec::new(); plan.settings.len()],
            done: 0,
            trial: None,
            plan,
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns how many of the trials have ended, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        (self.done, self.plan.trials())
    }

    /// Returns what the jobs did: for each setting and each round that is complete, a rhythm for each job.
    pub fn measured(&self) -> &[Vec<Vec<Rhythm>>] {
        &self.measured
    }

    /// Returns the figures of a job under a setting, over all rounds.
    pub fn figures(&self, setting: usize, job: usize) -> Figures {
        let of = |at: usize| -> Vec<&Rhythm> {
            self.measured[at].iter().map(|done| &done[job]).collect()
        };
        figures::figures(&of(setting), &of(0))
    }

    /// Records that a setting is in force, by the edit with this generation.
    pub fn began(&mut self, generation: u64, now_ns: u64) {
        self.trial = Some(Trial {
            generation,
            began_ns: now_ns,
            marks: Vec::new(),
        });
    }

    /// Takes the next sample and returns what to do.
    pub fn next(&mut self, sample: &Sample) -> Next {
        if let Some(end) = self.disturbed(sample) {
            return Next::End(end);
        }
        if let Some(trial) = &mut self.trial {
            let took = sample.time_ns.saturating_sub(trial.began_ns);
            if took < self.plan.settle_ns {
                return Next::Wait;
            }
            let marks = marks(&self.plan, sample);
            if trial.marks.is_empty() {
                trial.marks = marks;
                return Next::Wait;
            }
            if took < self.plan.settle_ns + self.plan.trial_ns {
                return Next::Wait;
            }
            let done = trial.marks.iter().zip(&marks);
            let done = done.map(|(then, now)| then.until(now)).collect();
            self.measured[self.plan.setting_of(self.done)].push(done);
            self.done += 1;
            self.trial = None;
        }
        match self.done < self.plan.trials() {
            true => Next::Try(self.plan.setting_of(self.done)),
            false => Next::End(End::Measured),
        }
    }

    /// Returns why the search cannot go on, if so.
    fn disturbed(&self, sample: &Sample) -> Option<End> {
        let there: Vec<_> = sample.holdings(self.plan.gpu).collect();
        let is_there = |job: &&Job| there.iter().any(|(process, _)| Who::of(process) == job.who);
        if let Some(job) = self.plan.jobs.iter().find(|job| !is_there(job)) {
            return Some(End::JobEnded(job.name.clone()));
        }
        for (process, holding) in there {
            let who = Who::of(process);
            let known = self.idle.iter().find(|(idle, _)| *idle == who);
            let started = match known {
                Some((_, mark)) => Mark::of(process, holding).has_worked_since(mark),
                None => process.is_managed() && !self.plan.has(who),
            };
            if started {
                return Some(End::JobStarted(process.name().to_owned()));
            }
        }
        let trial = self.trial.as_ref()?;
        let tried = &self.plan.settings[self.plan.setting_of(self.done)];
        let ours = sample.generation == trial.generation
            && tried.is_in_force(policy(sample, self.plan.gpu));
        (!ours).then_some(End::Edited)
    }
}

/// Returns the policy of a device.
fn policy(sample: &Sample, gpu: usize) -> Option<&LockPolicy> {
    sample.devices.get(gpu).map(|device| &device.policy.0)
}

fn marks(plan: &Plan, sample: &Sample) -> Vec<Mark> {
    let jobs = plan.jobs.iter().map(|job| {
        let mut there = sample.holdings(plan.gpu);
        let found = there.find(|(process, _)| Who::of(process) == job.who);
        found.map_or_else(Mark::default, |(process, holding)| {
            Mark::of(process, holding)
        })
    });
    jobs.collect()
}

#[cfg(test)]
mod tests;
