//! The comparison of what jobs did before the newest edit with what they do since, by the measurement of `gpushare tune`.

use rustc_hash::FxHashMap;

use crate::rhythm::{Mark, Rhythm};
use gpushare_control::measured::{Measured, Tried};
use gpushare_sample::{EditLine, LockPolicy, Sample, Who};

/// Time for which a comparison is made and shown.
pub const SHOWN_NS: u64 = 30_000_000_000;
/// An edit that is older than this when it is first seen begins no comparison.
const FRESH_NS: u64 = 5_000_000_000;
/// Time in which jobs get used to an edit, before the measurement begins.
const SETTLE_NS: u64 = 1_000_000_000;
/// The measurement before an edit begins at least this long before it, where the jobs ran that long, and at most twice as long.
const WINDOW_NS: u64 = 10_000_000_000;
/// A shorter measurement says too little.
const LEAST_S: f64 = 1.0;
/// A shorter measurement is not kept for advice.
const KEPT_S: f64 = 5.0;

/// The comparison of the newest edit.
#[derive(Clone, Debug, Default)]
pub struct BeforeAfter {
    edit: Option<EditLine>,
    before: FxHashMap<Place, Rhythm>,
    /// The policy of each device while the jobs were measured before the edit; `None` if it changed in that time.
    policies: Vec<Option<LockPolicy>>,
    /// The moment at which the measurement after the edit began.
    from: Option<Moment>,
    after: FxHashMap<Place, Rhythm>,
    /// The moment at which the measurement before the next edit begins, and the one that follows it.
    past: Option<(Moment, Moment)>,
    newest: Moment,
    /// The figures to keep of an edit whose comparison has ended, and its generation.
    ended: Option<(u64, Measured)>,
}

/// A process on a device.
type Place = (Who, usize);

/// The counters of all jobs at one time.
#[derive(Clone, Debug, Default)]
struct Moment {
    time_ns: u64,
    marks: FxHashMap<Place, Mark>,
    policies: Vec<LockPolicy>,
}

impl Moment {
    fn of(sample: &Sample) -> Self {
        let managed = sample
            .processes
            .iter()
            .filter(|process| process.is_managed());
        let marks = managed.flat_map(|process| {
            let used = process.uses();
            used.map(move |holding| ((Who::of(process), holding.gpu), Mark::of(process, holding)))
        });
        Self {
            time_ns: sample.time_ns,
            marks: marks.collect(),
            policies: sample
                .devices
                .iter()
                .map(|device| device.policy.0)
                .collect(),
        }
    }

    /// Returns the policy of each device, if it is the same at a later moment.
    fn policies_until(&self, later: &Self) -> Vec<Option<LockPolicy>> {
        let both = self.policies.iter().zip(&later.policies);
        both.map(|(then, now)| (then == now).then_some(*then))
            .collect()
    }

    /// Returns what each job did from this moment to a later one, if it was there at both.
    fn until(&self, later: &Self) -> FxHashMap<Place, Rhythm> {
        let both = later.marks.iter();
        let both =
            both.filter_map(|(place, now)| Some((*place, self.marks.get(place)?.until(now))));
        both.collect()
    }
}

/// The figures of one job before an edit and since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The job.
    pub who: Who,
    /// Launches in a second, before and since.
    pub rates: (f64, f64),
    /// The 99th percentile of the times for which the device kept it waiting in a step, likewise; `None` if no step ended.
    pub p99_ns: (Option<u64>, Option<u64>),
}

impl BeforeAfter {
    /// Begins a comparison if one of these edits is new. `earlier` is the sample before them.
    pub fn note(&mut self, edits: &[EditLine], now_ns: u64, earlier: &Sample) {
        let known = self.edit.as_ref().map_or(0, |edit| edit.generation);
        let new = edits.iter().filter(|edit| edit.generation > known);
        let new = new.filter(|edit| now_ns.saturating_sub(edit.time_ns) < FRESH_NS);
        let Some(edit) = new.max_by_key(|edit| edit.generation) else {
            return;
        };
        let edit = edit.clone();
        self.end(earlier);
        let past = self.past.take().map(|(past, _)| past).unwrap_or_default();
        *self = Self {
            edit: Some(edit),
            before: past.until(&self.newest),
            policies: past.policies_until(&self.newest),
            ended: self.ended.take(),
            ..Self::default()
        };
    }

    /// Takes the counters of a sample.
    pub fn measure(&mut self, sample: &Sample) {
        self.newest = Moment::of(sample);
        let now_ns = sample.time_ns;
        let edit = self.edit.as_ref();
        let since = edit.map(|edit| now_ns.saturating_sub(edit.time_ns));
        if since.is_some_and(|since| since < SETTLE_NS) {
            return;
        }
        match (&self.from, since) {
            (None, Some(0..SHOWN_NS)) => self.from = Some(self.newest.clone()),
            (Some(from), Some(0..SHOWN_NS)) => self.after = from.until(&self.newest),
            _ => self.end(sample),
        }
        match &mut self.past {
            None => self.past = Some((self.newest.clone(), self.newest.clone())),
            Some((first, next)) if now_ns.saturating_sub(next.time_ns) >= WINDOW_NS => {
                *first = std::mem::replace(next, self.newest.clone());
            }
            Some(_) => {}
        }
    }

    /// Ends the comparison, and keeps its figures if they say what another policy does to the same jobs.
    fn end(&mut self, sample: &Sample) {
        let from = self.from.take();
        let (Some(edit), Some(from)) = (&self.edit, from) else {
            return;
        };
        let after = from.policies_until(&self.newest);
        let policies = self.policies.iter().zip(&after).enumerate();
        let mut changed = policies.filter_map(|(gpu, (before, after))| {
            let (before, after) = ((*before)?, (*after)?);
            (before != after).then_some((gpu, before, after))
        });
        if let (Some((gpu, before, after)), None) = (changed.next(), changed.next())
            && let Some(measured) = self.figures(sample, gpu, [before, after])
        {
            self.ended = Some((edit.generation, measured));
        }
    }

    /// Returns what the jobs of a device did under both policies; `None` if they were not the same jobs, or not measured for
    /// long enough.
    fn figures(&self, sample: &Sample, gpu: usize, policies: [LockPolicy; 2]) -> Option<Measured> {
        let works = |rhythms: &FxHashMap<Place, Rhythm>| {
            let here = rhythms.iter().filter(|((_, on), _)| *on == gpu);
            let working = here.filter(|(_, rhythm)| rhythm.launches_per_s() > 0.0);
            let mut jobs: Vec<Who> = working.map(|((who, _), _)| *who).collect();
            jobs.sort_unstable();
            jobs
        };
        let jobs = works(&self.before);
        if jobs.is_empty() || jobs != works(&self.after) {
            return None;
        }
        let name = |who: &Who| {
            let process = sample.processes.iter().find(|one| Who::of(one) == *who)?;
            Some(process.name().to_owned())
        };
        let tried = |(policy, rhythms): (LockPolicy, &FxHashMap<Place, Rhythm>)| {
            let rhythms = jobs.iter().map(|who| &rhythms[&(*who, gpu)]);
            let is_long = rhythms.clone().all(|rhythm| rhythm.seconds() >= KEPT_S);
            is_long.then(|| Tried {
                policy,
                rates: rhythms.clone().map(Rhythm::launches_per_s).collect(),
                p99_ns: rhythms.map(Rhythm::step_p99_ns).collect(),
            })
        };
        let settings = policies.into_iter().zip([&self.before, &self.after]);
        Some(Measured {
            time: String::new(),
            uuid: sample.devices.get(gpu)?.uuid.clone(),
            jobs: jobs.iter().map(name).collect::<Option<_>>()?,
            settings: settings.map(tried).collect::<Option<_>>()?,
        })
    }

    /// Takes the figures of a comparison that has ended, without their time, and the generation of its edit.
    pub fn take_ended(&mut self) -> Option<(u64, Measured)> {
        self.ended.take()
    }

    /// Returns the edit whose comparison is to be shown at this time.
    pub fn edit(&self, now_ns: u64) -> Option<&EditLine> {
        let edit = self.edit.as_ref()?;
        (now_ns.saturating_sub(edit.time_ns) < SHOWN_NS).then_some(edit)
    }

    /// Returns what each job of a device did before the edit and does since; none while that is not known.
    pub fn changes(&self, gpu: usize) -> Vec<Change> {
        let here = self.after.iter().filter(|((_, on), _)| *on == gpu);
        let known =
            here.filter_map(|(place, after)| Some((place.0, self.before.get(place)?, after)));
        let known =
            known.filter(|(_, before, after)| before.seconds().min(after.seconds()) >= LEAST_S);
        let changes = known.map(|(who, before, after)| Change {
            who,
            rates: (before.launches_per_s(), after.launches_per_s()),
            p99_ns: (before.step_p99_ns(), after.step_p99_ns()),
        });
        let mut changes: Vec<Change> = changes
            .filter(|change| change.rates != (0.0, 0.0))
            .collect();
        changes.sort_by_key(|change| change.who);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::{Holding, ProcessSample, SlotId};

    const S: u64 = 1_000_000_000;

    /// Returns a sample of a job that has launched this often, with a step for each launch.
    fn sample(at_s: u64, launches: u32, step_ns: u64) -> Sample {
        let mut process = ProcessSample::default();
        process.view.slot = SlotId { index: 0, epoch: 1 };
        process.view.heartbeat_ns = at_s * S;
        let mut holding = Holding::default();
        holding.counters.launches = launches.into();
        holding.view.lock.steps.add(step_ns, launches);
        process.devices.push(holding);
        let mut sample = Sample::default();
        sample.snapshot.time_ns = at_s * S;
        sample.snapshot.processes.push(process);
        sample
    }

    #[test]
    fn an_edit_is_compared_with_the_time_before_it_for_half_a_minute() {
        let mut comparison = BeforeAfter::default();
        let edit = EditLine {
            generation: 8,
            time_ns: 130 * S + S / 2,
            ..EditLine::default()
        };
        let old = EditLine {
            generation: 7,
            time_ns: 20 * S,
            ..edit.clone()
        };
        comparison.note(&[old], 100 * S, &Sample::default());
        for at in 100..=130 {
            comparison.measure(&sample(at, (at as u32 - 100) * 40, 5_000_000));
        }
        assert_eq!(comparison.edit(130 * S), None, "an old edit");
        comparison.note(std::slice::from_ref(&edit), 131 * S, &Sample::default());
        for at in 131..=133 {
            comparison.measure(&sample(at, 1200 + (at as u32 - 131) * 100, 5_000_000));
        }
        assert_eq!(comparison.edit(133 * S), Some(&edit));
        let found = comparison.changes(0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rates, (40.0, 100.0));
        assert!(found[0].p99_ns.0.is_some() && found[0].p99_ns.1.is_some());
        assert_eq!(comparison.changes(1), []);
        assert_eq!(
            comparison.edit(161 * S),
            None,
            "it has been shown for long enough"
        );
    }
}
