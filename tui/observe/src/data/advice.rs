//! Advice for the dashboard: the policy that would have served the jobs of the last minute better, once it is stable.
//!
//! A line that comes and goes with each tick is useless. So advice is shown when two evaluations in a row agree, and it
//! is removed when two in a row disagree. An edit removes it at once.

use rustc_hash::FxHashMap;

use crate::evidence::{Evidence, LOOK_BACK_NS};
use crate::finding::Finding;
use gpushare_sample::Sample;

/// Time between two evaluations.
const PACE_NS: u64 = 5_000_000_000;
/// A shorter time span than this gives too little evidence.
const LEAST_NS: u64 = 10_000_000_000;

/// The current advice.
#[derive(Clone, Debug, Default)]
pub struct StableAdvice {
    /// The sample in which the evaluated time begins, and the sample in which the next one will begin.
    past: Option<(Sample, Sample)>,
    looked_ns: u64,
    gpus: FxHashMap<usize, Opinion>,
}

#[derive(Clone, Debug, Default)]
struct Opinion {
    shown: Option<Finding>,
    /// The result of the last evaluation.
    last: Option<&'static str>,
}

impl StableAdvice {
    /// Adds the next sample. Returns the evidence of each device if it is time to evaluate it; the result goes to
    /// [`Self::hear`].
    pub fn evidence(&mut self, sample: &Sample) -> Vec<Evidence> {
        let now = sample.time_ns;
        let edited = |(_, next): &(Sample, Sample)| next.generation != sample.generation;
        if self.past.as_ref().is_none_or(edited) {
            *self = Self {
                past: Some((sample.clone(), sample.clone())),
                looked_ns: now,
                ..Self::default()
            };
        }
        let Some((first, next)) = &mut self.past else {
            return Vec::new();
        };
        if now.saturating_sub(self.looked_ns) < PACE_NS {
            return Vec::new();
        }
        self.looked_ns = now;
        let mut found = Vec::new();
        if now.saturating_sub(first.time_ns) >= LEAST_NS {
            found = Evidence::between(first, sample);
        }
        if now.saturating_sub(next.time_ns) >= LOOK_BACK_NS / 2 {
            *first = std::mem::replace(next, sample.clone());
        }
        found
    }

    /// Adds the result of an evaluation of a device's evidence.
    pub fn hear(&mut self, gpu: usize, found: Option<Finding>) {
        self.gpus.entry(gpu).or_default().hear(found);
    }

    /// Returns the advice for a device.
    pub fn of(&self, gpu: usize) -> Option<&Finding> {
        self.gpus.get(&gpu)?.shown.as_ref()
    }
}

impl Opinion {
    fn hear(&mut self, found: Option<Finding>) {
        let id = found.as_ref().map(|advice| advice.kind.id);
        if id == self.last {
            self.shown = found;
        }
        self.last = id;
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::LockPolicy;

    use super::*;
    use gpushare_sample::{DeviceSample, Holding, ProcessSample};

    const S: u64 = 1_000_000_000;

    /// Returns a sample with two jobs that launch, one of them only while `both`.
    fn sample(at_s: u64, launches: [u64; 2], generation: u64) -> Sample {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = at_s * S;
        sample.snapshot.generation = generation;
        sample.snapshot.devices.push(DeviceSample::default());
        sample.snapshot.devices[0].view.policy.0 = LockPolicy::default();
        for (at, launches) in launches.into_iter().enumerate() {
            let mut process = ProcessSample::default();
            process.view.slot.index = at as u16;
            process.view.slot.epoch = 1;
            process.view.share.weight = 100;
            let mut holding = Holding::default();
            holding.view.counters.launches = launches;
            process.view.devices.push(holding);
            sample.snapshot.processes.push(process);
        }
        sample
    }

    #[test]
    fn advice_comes_when_it_lasts_and_goes_when_it_has_gone_or_an_edit_was_made() {
        let mut advice = StableAdvice::default();
        let shown = |advice: &StableAdvice| advice.of(0).map(|advice| advice.kind.id);
        let update = |advice: &mut StableAdvice, sample: Sample| {
            for evidence in advice.evidence(&sample) {
                advice.hear(evidence.gpu, crate::findings::advise(&evidence));
            }
        };
        for at in 100..=114 {
            update(&mut advice, sample(at, [at, at], 1));
            assert_eq!(shown(&advice), None, "{at}: it has not lasted");
        }
        for at in 115..=200 {
            update(&mut advice, sample(at, [at, at], 1));
            assert_eq!(shown(&advice), Some("equals"), "{at}");
        }
        // The other job stops. The window drops it after two halves, and then two evaluations pass.
        let mut gone = 0;
        for at in 201..=300 {
            update(&mut advice, sample(at, [at, 200], 1));
            gone += usize::from(shown(&advice).is_none());
        }
        assert!((30..=95).contains(&gone), "{gone}");

        for at in 301..=340 {
            update(&mut advice, sample(at, [at, at], 1));
        }
        assert_eq!(shown(&advice), Some("equals"));
        update(&mut advice, sample(341, [341, 341], 2));
        assert_eq!(shown(&advice), None, "an edit makes it old");
    }
}
