//! The key that starts or stops recording a process's calls.

use shm_layout::Change;
use shm_layout::trace::{DEFAULT_RECORDS, size};

use super::{READ_ONLY, UNMANAGED, say, subject};
use crate::dialog::gpus;
use crate::operator::Task;
use crate::overlay::{Overlay, Question};
use crate::state::State;
use gpushare_base::text::units::{human_size, short_count};
use gpushare_control::EditRequest;
use gpushare_control::audit::Place;
use gpushare_control::targets::Chosen;
use gpushare_sample::{ProcessSample, SlotId, TraceView};

/// Asks before the recording starts or stops.
pub(super) fn ask(state: &mut State) {
    if state.choices.read_only {
        return say(state, READ_ONLY, true);
    }
    let Some((who, _)) = subject(state) else {
        return;
    };
    let found = state.data().process(who).and_then(|process| {
        let title = format!("{} on {}", state.data().title(who), gpus(process));
        Some((title, process.slot()?, process))
    });
    let question = match found {
        None => return say(state, UNMANAGED, true),
        Some((title, slot, process)) => match process.trace().filter(TraceView::goes_on) {
            Some(trace) => stop(&title, slot, process, trace),
            None => start(&title, slot, process),
        },
    };
    state.overlay = Some(Overlay::Question(Box::new(question)));
}

fn start(title: &str, slot: SlotId, process: &ProcessSample) -> Question {
    Question {
        title: format!("Trace {title}?"),
        lines: vec![
            "Every driver call is recorded with its time: kernels, copies,".into(),
            "allocations, and the turns at the lock.".into(),
            "Each call takes longer meanwhile; nothing else changes.".into(),
            format!(
                "Room for {} records, {} beside the segments; what does not fit",
                short_count(DEFAULT_RECORDS.into()),
                human_size(size(DEFAULT_RECORDS))
            ),
            "is counted and dropped. gpushare trace export reads it at any time.".into(),
        ],
        task: Task::Trace(Chosen {
            slot,
            start_time: process.identity.start_time,
            title: process.pid_and_name(),
        }),
    }
}

fn stop(title: &str, slot: SlotId, process: &ProcessSample, trace: TraceView) -> Question {
    let change = Change::Trace { slot, on: None };
    let (name, start_time) = (process.pid_and_name(), process.identity.start_time);
    let request = EditRequest::of_process(change, name, start_time, Place::Tui);
    Question {
        title: format!("Stop the trace of {title}?"),
        lines: vec![
            format!(
                "{} records are written, {} did not fit.",
                short_count(trace.progress.records),
                short_count(trace.progress.dropped)
            ),
            "The file stays: gpushare trace export reads it, gpushare trace rm".into(),
            "removes it.".into(),
        ],
        task: Task::Edit(Box::new(request)),
    }
}
