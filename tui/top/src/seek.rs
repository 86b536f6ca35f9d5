//! The search for the next alert in a recording, or for the one before.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::state::State;
use gpushare_observe::finding::Severity;
use gpushare_observe::source::Source;
use gpushare_sample::{Sample, Who};

/// Maximum time for which a search keeps the screen waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// Distances of the search backwards, tried one after the other, in seconds.
const BACK_S: [u64; 4] = [60, 300, 1_500, 7_500];
const S: u64 = 1_000_000_000;

type Warnings = HashSet<(&'static str, Option<Who>, Option<usize>)>;

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The word of an alert that begins at the moment shown now.
    Alert(String),
    /// No alert up to the end or the beginning.
    Nothing,
    /// No alert yet when the time limit was reached.
    NotYet,
    /// The source is not a recording.
    Live,
}

fn warnings(state: &State) -> Warnings {
    let alerts = state.data().alerts.iter();
    let bad = alerts.filter(|alert| alert.kind.severity == Severity::Warning);
    bad.map(|alert| (alert.kind.id, alert.who, alert.gpu))
        .collect()
}

/// Returns the sentence of a warning that was not active before.
fn new_one(state: &State, known: &Warnings) -> Option<String> {
    let new = |kind, who, gpu| !known.contains(&(kind, who, gpu));
    let mut alerts = state.data().alerts.iter();
    let begins = alerts.find(|alert| {
        let is_new = new(alert.kind.id, alert.who, alert.gpu);
        alert.kind.severity == Severity::Warning && is_new
    });
    begins.map(|alert| format!("{} {}", alert.kind.word, alert.sentence()))
}

/// Moves forward until a warning begins that is not active now.
pub fn forward(source: &mut dyn Source, state: &mut State) -> Result<Found> {
    if source.wind(0)?.is_none() {
        return Ok(Found::Live);
    }
    let start = Instant::now();
    let mut known = warnings(state);
    while let Some(sample) = source.next()? {
        state.update(sample);
        if let Some(alert) = new_one(state, &known) {
            return Ok(Found::Alert(alert));
        }
        known = warnings(state);
        if start.elapsed() > PATIENCE {
            return Ok(Found::NotYet);
        }
    }
    Ok(Found::Nothing)
}

/// Moves back to the begin of the last warning before now.
pub fn back(source: &mut dyn Source, state: &mut State) -> Result<Found> {
    let now_ns = state.data().sample.time_ns;
    let start = Instant::now();
    let mut at_ns = now_ns;
    let mut found = Found::Nothing;
    for back in BACK_S {
        let from = now_ns.saturating_sub(back * S);
        let Some(passed) = source.wind(difference(from, at_ns))? else {
            return Ok(Found::Live);
        };
        let began = passed.first().map_or(0, |sample| sample.time_ns);
        let mut scratch = State::default();
        let mut last = None;
        let mut known = feed(&mut scratch, passed);
        at_ns = scratch.data().sample.time_ns;
        while at_ns + S < now_ns {
            let Some(sample) = source.next()? else { break };
            at_ns = sample.time_ns;
            scratch.update(sample);
            // A warning that was active at the start of the search began before it.
            if new_one(&scratch, &known).is_some() && at_ns + S < now_ns {
                last = Some(at_ns);
            }
            known = warnings(&scratch);
            if start.elapsed() > PATIENCE {
                found = Found::NotYet;
                break;
            }
        }
        if let Some(moment) = last {
            let passed = source.wind(difference(moment, at_ns))?;
            let passed = passed.unwrap_or_default();
            let mut known = Warnings::new();
            let mut alert = None;
            for sample in passed {
                state.update(sample);
                alert = new_one(state, &known).or(alert);
                known = warnings(state);
            }
            return Ok(Found::Alert(alert.unwrap_or_default()));
        }
        if found == Found::NotYet || began == 0 || began > from {
            break;
        }
    }
    // Back to the moment before the search.
    let passed = source.wind(difference(now_ns, at_ns))?.unwrap_or_default();
    feed(state, passed);
    Ok(found)
}

fn feed(state: &mut State, samples: Vec<Sample>) -> Warnings {
    samples.into_iter().for_each(|sample| state.update(sample));
    warnings(state)
}

fn difference(to_ns: u64, from_ns: u64) -> i64 {
    let by = to_ns.abs_diff(from_ns).min(i64::MAX as u64) as i64;
    if to_ns < from_ns { -by } else { by }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_observe::source::replay::{Recorder, Replay};
    use gpushare_sample::{DeviceSample, Origin};

    /// Two minutes with two holders of one lock from second 40 to 45 and from 80 on.
    fn recording() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        for second in 0..120_u64 {
            let mut sample = Sample {
                origin: Origin::Live,
                ..Sample::default()
            };
            sample.time_ns = (1_000 + second) * S;
            let violations = u64::from((40..45).contains(&second) || second >= 80);
            sample.devices.push(DeviceSample::default());
            sample.devices[0].violations = violations;
            recorder.add(&sample).unwrap();
        }
        file
    }

    fn second(state: &State) -> u64 {
        state.data().sample.time_ns / S - 1_000
    }

    #[test]
    fn one_goes_from_alert_to_alert_and_back() {
        let file = recording();
        let mut replay = Replay::open(file.path()).unwrap();
        let mut state = State::default();
        state.update(replay.next().unwrap().unwrap());
        for moment in [40, 80] {
            let found = forward(&mut replay, &mut state).unwrap();
            assert!(
                matches!(&found, Found::Alert(why) if why.starts_with("BUG ")),
                "{found:?}"
            );
            assert_eq!(second(&state), moment);
        }
        assert_eq!(forward(&mut replay, &mut state).unwrap(), Found::Nothing);
        assert_eq!(second(&state), 119);
        for moment in [80, 40] {
            let found = back(&mut replay, &mut state).unwrap();
            assert!(
                matches!(&found, Found::Alert(why) if why.starts_with("BUG ")),
                "{found:?}"
            );
            assert_eq!(second(&state), moment);
        }
        assert_eq!(back(&mut replay, &mut state).unwrap(), Found::Nothing);
        assert_eq!(second(&state), 40, "it stays where it was");
    }
}
