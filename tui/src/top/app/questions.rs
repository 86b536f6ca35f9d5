//! What is asked before it is done to the selected process.

use super::{READ_ONLY, UNMANAGED, say, subject};
use crate::sample::ProcessSample;
use crate::text::units::short_size;
use crate::top::dialog::{ShareSubject, gpus};
use crate::top::operator::Task;
use crate::top::overlay::{Overlay, Question};
use crate::top::state::State;

/// Asks before a process is paused, or goes on.
pub(super) fn pause(state: &mut State) {
    ask(state, |process| {
        if process.share.paused {
            let lines = vec!["It may submit work again, on every GPU.".into()];
            return ("Resume", false, false, lines);
        }
        let lines = vec![
            "Its next launch waits, on every GPU, until it is resumed.".into(),
            "It keeps its memory. P resumes it.".into(),
        ];
        ("Pause", true, false, lines)
    });
}

/// Asks before a process's memory is evicted, or may come back.
pub(super) fn evict(state: &mut State) {
    ask(state, |process| {
        if process.share.evict {
            let lines = vec![
                "It is resumed, and its next call brings its memory back, once there is room for all of it.".into(),
            ];
            return ("Bring back", false, false, lines);
        }
        let held = process.devices.iter().map(|holding| holding.used);
        let bytes = held.fold(0, u64::saturating_add);
        let lines = vec![
            format!(
                "It is paused, and its {} move to the memory of the host, which must have room for it.",
                short_size(bytes)
            ),
            "Others can use the room. Its calls wait until E lets it come back.".into(),
        ];
        ("Evict", true, true, lines)
    });
}

/// Asks before the selected process is paused or resumed: the verb, whether it is paused, evicted, and what that means.
fn ask(
    state: &mut State,
    what: impl Fn(&ProcessSample) -> (&'static str, bool, bool, Vec<String>),
) {
    if state.choices.read_only {
        return say(state, READ_ONLY, true);
    }
    let Some((who, _)) = subject(state) else {
        return;
    };
    let data = state.data();
    let asked = data.process(who).and_then(|process| {
        let (verb, paused, evict, lines) = what(process);
        let request = ShareSubject::pause(process, paused, evict)?;
        let (title, user, gpus) = (data.title(who), &process.user, gpus(process));
        Some(Question {
            title: format!("{verb} {title} ({user}) on {gpus}?"),
            lines,
            task: Task::Edit(Box::new(request)),
        })
    });
    match asked {
        Some(question) => state.overlay = Some(Overlay::Question(Box::new(question))),
        None => say(state, UNMANAGED, true),
    }
}
