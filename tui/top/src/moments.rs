//! Moments of the past, loaded from a recording: the last hour, or the one that is played.

use std::ops::Range;

use anyhow::Result;

use super::state::State;
use gpushare_observe::data::log::Showing;
use gpushare_observe::marks::{Mark, Marks};
use gpushare_observe::source::Source;
use gpushare_observe::source::replay::RUN_UP_NS;
use gpushare_sample::{EventLine, Sample};

/// The lanes know no time before this.
const LANES_NS: u64 = 130_000_000_000;
/// A recording without gaps has a sample in this time, so that the state of each process is known where the lanes begin, and at
/// the cursor.
const GAP_NS: u64 = 20_000_000_000;

/// Loads the moment on which the cursor is. `window` is the time that the lanes show.
pub fn load(state: &mut State, record: &mut dyn Source, window: Range<u64>) -> Result<()> {
    let Some(at_ns) = state.wanted(window.end) else {
        return Ok(());
    };
    let mut lanes = None;
    if !state.has_lanes(window.end) {
        let from_ns = window.start.max(window.end.saturating_sub(LANES_NS));
        let mut around = state.begin_anew();
        record.go_to(from_ns.saturating_sub(GAP_NS))?;
        while around.live_ns() < window.end
            && let Some(sample) = record.next()?
        {
            around.update(sample);
        }
        lanes = (around.data().samples() > 0).then_some(around);
    }
    let mut moment = state.begin_anew();
    record.go_to(at_ns.saturating_sub(RUN_UP_NS))?;
    while let Some(sample) = record.next()?
        && sample.time_ns <= at_ns
    {
        moment.update(sample);
    }
    let before_ns = moment.live_ns();
    let is_kept = moment.data().samples() > 0 && at_ns - before_ns < GAP_NS;
    if is_kept {
        let known = lanes.as_ref().map_or(state.around(), State::data);
        let events = known.log.newest(Showing::All, None);
        let events = events.skip_while(|event| event.time_ns > at_ns);
        let events = events.take_while(|event| event.time_ns > before_ns);
        let mut events: Vec<EventLine> = events.cloned().collect();
        events.reverse();
        moment.bring_forward(events, at_ns);
    }
    let kept = is_kept.then_some(moment);
    state.show(lanes, kept, window.end);
    Ok(())
}

/// Adds the samples that lead to a moment of a recording, from which it is played on.
pub fn play_from(state: &mut State, source: &mut dyn Source, at_ns: u64) -> Result<()> {
    source.go_to(at_ns.saturating_sub(RUN_UP_NS))?;
    while let Some(sample) = source.next()? {
        let is_there = sample.time_ns >= at_ns;
        state.update(sample);
        if is_there {
            break;
        }
    }
    Ok(())
}

/// Finds the marks of a recording and hands them over one after the other, until `found` returns false. Samples that are not
/// wanted are passed over.
pub fn find_marks(
    record: &mut dyn Source,
    mut state: State,
    is_wanted: impl Fn(&Sample) -> bool,
    mut found: impl FnMut(Vec<Mark>) -> bool,
) -> Result<()> {
    let mut marks = Marks::default();
    while let Some(sample) = record.next()? {
        if !is_wanted(&sample) {
            continue;
        }
        marks.note_edits(&sample);
        state.update(sample);
        if state.data().is_measured() {
            marks.note_alerts(state.data());
        }
        let more = marks.take();
        if !more.is_empty() && !found(more) {
            break;
        }
    }
    Ok(())
}
