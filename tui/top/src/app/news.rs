//! News from the operator's thread and the source.

use shm_layout::SlotId;

use super::say;
use crate::dialog::{Dialog, Progress};
use crate::keys::Action;
use crate::operator::News;
use crate::overlay::Overlay;
use crate::state::State;
use gpushare_base::text::edits::{from_to, undone};
use gpushare_base::text::units::format_duration;
use gpushare_control::Applied;
use gpushare_control::audit::Entry;
use gpushare_control::change::{ends_ns, summary};
use gpushare_sample::Who;

/// Shows the result of an action.
pub fn tell(state: &mut State, sentence: &str) {
    say(state, sentence, false);
}

/// Shows a fault that the user did not cause.
pub fn warn(state: &mut State, sentence: &str) {
    say(state, sentence, true);
}

/// Handles the end of a recording.
pub fn over(state: &mut State) {
    let quit = state.choices.keymap.key_of(Action::Quit);
    let text = format!("this is the end of the recording; {quit} quits");
    say(state, &text, false);
}

/// Handles news from the operator's thread.
pub fn news(state: &mut State, news: News) {
    told(state, news);
    state.pin_rows();
}

fn told(state: &mut State, news: News) {
    match news {
        News::InForce { target, applied } => {
            in_force(state, &target, &change(&target, &applied), &applied, false);
        }
        News::Settled { target, applied } => {
            in_force(state, &target, &change(&target, &applied), &applied, true);
        }
        News::Undone {
            target,
            restored,
            applied,
        } => {
            let (restored, before) = (restored.as_deref(), Some(&*applied.before));
            let undone = undone(&target, restored, before, &summary(&applied.new));
            in_force(state, &target, &undone, &applied, true);
        }
        News::Done(sentence) => {
            let sent = |dialog: &Dialog| dialog.progress == Progress::Sent;
            if matches!(&state.overlay, Some(Overlay::Dialog(dialog)) if sent(dialog)) {
                state.overlay = None;
            }
            say(state, &sentence, false);
        }
        News::Note(sentence) => say(state, &sentence, false),
        News::Remedied(sentence) => {
            let undo = state.choices.keymap.letter('u');
            say(state, &format!("{sentence}; {undo} undoes it"), false);
        }
        News::Warning(sentence) => say(state, &sentence, true),
        News::Refused(why) => match &mut state.overlay {
            Some(Overlay::Dialog(dialog)) if dialog.progress == Progress::Sent => {
                dialog.progress = Progress::Failed(why);
            }
            Some(Overlay::Audit(list)) => list.message = Some(why),
            _ => say(state, &why, true),
        },
        News::About(who, launched) => {
            if let Some(Overlay::About(about)) = &mut state.overlay
                && about.who == who
            {
                about.launched = Some(launched);
            }
        }
        News::Newest(newest) => {
            if let Some(Overlay::Undo(None)) = state.overlay {
                state.overlay = None;
                match newest {
                    Ok(entry) => state.overlay = Some(Overlay::Undo(Some(entry))),
                    Err(why) => say(state, &why, true),
                }
            }
        }
        News::Marks(marks) => {
            state.is_reading = !marks.is_empty();
            marks.into_iter().for_each(|mark| state.marks.add(mark));
        }
        News::Audit(path, history) => {
            let Some(Overlay::Audit(list)) = &mut state.overlay else {
                return;
            };
            list.path = path;
            match history {
                Ok(history) => {
                    list.damaged = history.damaged.len();
                    let mut entries: Vec<Entry> = history.entries;
                    entries.reverse();
                    list.entries = Some(entries);
                }
                Err(why) => list.message = Some(why),
            }
        }
    }
}

/// Describes an edit.
fn change(target: &str, applied: &Applied) -> String {
    let change = from_to(Some(&applied.before), &summary(&applied.new), "to");
    format!("{target}: {change}")
}

/// Shows an edit, which `told` describes, and who has not applied it.
fn in_force(state: &mut State, target: &str, told: &str, applied: &Applied, settled: bool) {
    let names: Vec<String> = applied
        .missing
        .iter()
        .map(|slot| name(state, *slot))
        .collect();
    let missing = names.join(", ");
    let generation = applied.generation;
    state.own_edits.insert(generation);
    if let Some(unlogged) = &applied.unlogged {
        say(state, unlogged, true);
    }
    match &mut state.overlay {
        Some(Overlay::Dialog(dialog))
            if matches!(dialog.progress, Progress::Sent | Progress::Waiting(_)) =>
        {
            if missing.is_empty() {
                state.overlay = None;
            } else {
                dialog.progress = Progress::Waiting(missing.clone());
            }
        }
        Some(Overlay::Audit(list)) => {
            list.message = Some(format!("{target}: undone by generation {generation}"));
        }
        _ => {}
    }
    let now_ns = state.data().sample.time_ns;
    let left = ends_ns(&applied.new).map(|until| until.saturating_sub(now_ns));
    // A second passes before the news arrives; "10m" is the time that the user chose.
    let left = left.map(|left| {
        format!(
            " for {}",
            format_duration(left.next_multiple_of(1_000_000_000))
        )
    });
    let change = format!("{told}{}", left.unwrap_or_default());
    let text = match (missing.is_empty(), settled) {
        (true, _) => format!("{change}; applied by all"),
        (false, true) => format!("{change}; NOT yet applied by {missing}"),
        (false, false) => format!("{change}; applied by all but {missing} so far"),
    };
    say(state, &text, !missing.is_empty());
}

fn name(state: &State, slot: SlotId) -> String {
    let who = Who::Slot(slot);
    match state.data().process(who) {
        Some(process) => format!("{} {}", state.data().letter(who), process.name()),
        None => format!("slot {}", slot.index),
    }
}
