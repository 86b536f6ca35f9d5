//! The edits of a search: one for each trial, each with an end of its own.

use shm_layout::{Change, LockPolicy, Until, clock};

use crate::segments;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::uuids;
use gpushare_control::audit::{Place, TRIAL};
use gpushare_control::{EditRequest, Editor};
use gpushare_observe::source::live::Live;
use gpushare_observe::tune::Plan;
use gpushare_sample::Sample;

/// Makes the edits of a search.
pub struct Trials {
    editor: Editor,
    gpu: usize,
    uuid: shm_layout::Uuid,
    lasts_ns: u64,
    /// The edit that restores the settings of the start.
    start: Change,
    /// The policy in force, if it is one that this search set.
    trial: Option<LockPolicy>,
    /// The generation of the newest edit that is known.
    generation: u64,
}

impl Trials {
    /// Sets the settings of the start again. Fails at once if this user may not edit them: only a broker itself knows its rights.
    pub fn begin(editor: Editor, plan: &Plan, sample: &Sample) -> Result<Self, Failure> {
        let uuid = uuids::parse(&sample.devices[plan.gpu].uuid);
        let uuid = uuid.ok_or_else(|| Failure::failed(format!("GPU{} has no UUID", plan.gpu)))?;
        let change = Change::Policy {
            device: Some(uuid),
            policy: Some(plan.settings[0].policy),
            until: None,
        };
        let start = editor.preview(&change, &target(plan.gpu))?;
        let mut trials = Self {
            editor,
            gpu: plan.gpu,
            uuid,
            lasts_ns: plan.reverts_after_ns(),
            start,
            trial: None,
            generation: sample.generation,
        };
        let why = |failure: Failure| Failure {
            sentence: format!("each trial sets a policy; {}", failure.sentence),
            ..failure
        };
        trials.set_start(sample.generation).map_err(why)?;
        Ok(trials)
    }

    /// Returns the generation of the newest edit of the search, or the one at its start.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Puts a policy in force for a while, or the settings of the start. `which` trial it is is for the log. Refused if somebody
    /// else has edited.
    pub fn put(&mut self, policy: Option<&LockPolicy>, which: &str) -> Result<(), Failure> {
        if policy.is_none() && self.trial.is_none() {
            return Ok(());
        }
        let change = match policy {
            None => self.start.clone(),
            Some(policy) => self.policy(policy, Some(clock::now() + self.lasts_ns)),
        };
        self.generation = self.submit(change, self.generation, format!("{TRIAL} {which}"))?;
        self.trial = policy.copied();
        Ok(())
    }

    /// Restores the settings of the start, unless the policy in force is not the one of a trial. Returns true if the settings of the
    /// start are in force.
    pub fn restore(&mut self, live: &mut Live) -> Result<bool, Failure> {
        let sample = segments::look(live)?;
        let in_force = sample.devices.get(self.gpu).map(|device| device.policy.0);
        match self.trial {
            None => return Ok(sample.generation == self.generation),
            Some(trial) if in_force != Some(trial) => return Ok(false),
            Some(_) => {}
        }
        self.set_start(sample.generation)?;
        Ok(true)
    }

    fn set_start(&mut self, generation: u64) -> Result<(), Failure> {
        let why = format!("{TRIAL}s: the settings of the start");
        self.generation = self.submit(self.start.clone(), generation, why)?;
        self.trial = None;
        Ok(())
    }

    /// Puts the best policy in force, until a time or for good.
    pub fn keep(&self, policy: &LockPolicy, until_ns: Option<u64>) -> Result<(), Failure> {
        let why = "gpushare tune: the best of the trials".to_owned();
        self.submit(self.policy(policy, until_ns), self.generation, why)?;
        Ok(())
    }

    fn policy(&self, policy: &LockPolicy, until_ns: Option<u64>) -> Change {
        Change::Policy {
            device: Some(self.uuid),
            policy: Some(*policy),
            until: until_ns.map(Until::lasting),
        }
    }

    fn submit(&self, change: Change, generation: u64, why: String) -> Result<u64, Failure> {
        let mut request = EditRequest::new(change, target(self.gpu), Place::Ctl).because(Some(why));
        request.expected_generation = Some(generation);
        Ok(self.editor.submit(request)?.generation)
    }
}

fn target(gpu: usize) -> String {
    format!("gpu{gpu}")
}
