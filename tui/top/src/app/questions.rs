//! Questions that precede an action on the selected process, or on all marked ones.

use super::{READ_ONLY, UNMANAGED, say, subjects};
use crate::dialog::{ShareSubject, gpus};
use crate::keys::Action;
use crate::operator::Task;
use crate::overlay::{Overlay, Question};
use crate::state::State;
use gpushare_base::text::plain::plain;
use gpushare_base::text::units::short_size;
use gpushare_observe::data::Data;
use gpushare_sample::{ProcessSample, Who};
use shm_layout::{Set, ShareEdit};

/// The planned change of a process.
struct Wish {
    verb: &'static str,
    share: ShareEdit,
    /// The consequences.
    lines: Vec<String>,
}

/// Returns the edit that pauses a process, with its memory evicted or not, or resumes it.
fn paused(paused: bool, evict: bool) -> ShareEdit {
    ShareEdit {
        paused: Set::To(paused),
        evict: if evict { Set::To(true) } else { Set::Inherit },
        ..ShareEdit::default()
    }
}

/// Asks before processes are paused; if all are paused, before they are resumed.
pub(super) fn pause(state: &mut State) {
    let key = state.choices.keymap.letter('P');
    ask(state, |processes| {
        let resume = processes.iter().all(|process| process.share.paused);
        let (verb, lines) = match (resume, processes.len()) {
            (true, 1) => (
                "Resume",
                vec!["It may submit work again, on every GPU.".into()],
            ),
            (true, _) => (
                "Resume",
                vec!["They may submit work again, on every GPU.".into()],
            ),
            (false, 1) => (
                "Pause",
                vec![
                    "Its next launch waits, on every GPU, until it is resumed.".into(),
                    format!("It keeps its memory. {key} resumes it."),
                ],
            ),
            (false, _) => (
                "Pause",
                vec![
                    "Their next launches wait, on every GPU, until they are resumed.".into(),
                    format!("They keep their memory. {key} resumes them."),
                ],
            ),
        };
        Ok(Wish {
            verb,
            share: paused(!resume, false),
            lines,
        })
    });
}

/// Asks before the memory of processes is evicted; if all of it is, before it is restored.
pub(super) fn evict(state: &mut State) {
    let key = state.choices.keymap.letter('E');
    let unpin = state.choices.keymap.key_of(Action::Pin);
    ask(state, |processes| {
        let back = processes.iter().all(|process| process.share.evict);
        let pinned = processes.iter().find(|process| process.share.pinned);
        if let Some(process) = pinned.filter(|_| !back) {
            let name = plain(process.name());
            return Err(format!(
                "{name} is pinned, so its memory stays on the GPU; {unpin} unpins it"
            ));
        }
        let holdings = processes.iter().flat_map(|process| &process.devices);
        let bytes = holdings.fold(0, |sum: u64, holding| sum.saturating_add(holding.used));
        let bytes = short_size(bytes);
        let one = processes.len() == 1;
        let lines = match (back, one) {
            (true, true) => vec![
                "It is resumed, and its next call brings its memory back.".into(),
                "The call waits until there is room for all of it.".into(),
            ],
            (true, false) => vec![
                "They are resumed, and the next call of each brings its memory back.".into(),
                "The call waits until there is room for all of it.".into(),
            ],
            (false, true) => vec![
                format!("It is paused, and its {bytes} move to the host, if there is room."),
                format!("Others can use the room. Its calls wait until {key} lets it come back."),
            ],
            (false, false) => vec![
                format!("They are paused, and their {bytes} move to the host, if there is room."),
                format!(
                    "Others can use the room. Their calls wait until {key} lets them come back."
                ),
            ],
        };
        Ok(Wish {
            verb: if back { "Bring back" } else { "Evict" },
            share: paused(!back, !back),
            lines,
        })
    });
}

/// Asks before processes are pinned; if all are pinned, before they are unpinned.
pub(super) fn pin(state: &mut State) {
    ask(state, |processes| {
        let unpin = processes.iter().all(|process| process.share.pinned);
        let lines = match (unpin, processes.len()) {
            (true, 1) => vec!["Its memory may leave again: for others, or when it is idle."],
            (true, _) => vec!["Their memory may leave again: for others, or when they are idle."],
            (false, 1) => vec![
                "It is evicted neither for others nor because it is idle.",
                "Memory that is on the host comes back by itself.",
            ],
            (false, _) => vec![
                "They are evicted neither for others nor because they are idle.",
                "Memory that is on the host comes back by itself.",
            ],
        };
        Ok(Wish {
            verb: if unpin { "Unpin" } else { "Pin" },
            share: ShareEdit {
                pinned: Set::To(!unpin),
                ..ShareEdit::default()
            },
            lines: lines.into_iter().map(str::to_owned).collect(),
        })
    });
}

/// Asks before the chosen processes are changed.
fn ask(state: &mut State, what: impl Fn(&[&ProcessSample]) -> Result<Wish, String>) {
    if state.choices.read_only {
        return say(state, READ_ONLY, true);
    }
    let meant: Vec<Who> = subjects(state).into_iter().map(|(who, _)| who).collect();
    if meant.is_empty() {
        return;
    }
    let data = state.data();
    let processes: Vec<&ProcessSample> =
        meant.iter().filter_map(|who| data.process(*who)).collect();
    let wish = match what(&processes) {
        Ok(wish) => wish,
        Err(why) => return say(state, &why, true),
    };
    let request = |process: &&ProcessSample| {
        let request = ShareSubject::of(process, wish.share)?;
        Some(Task::Edit(Box::new(request)))
    };
    let Some(tasks) = processes.iter().map(request).collect::<Option<Vec<Task>>>() else {
        return say(state, UNMANAGED, true);
    };
    let question = together(data, &meant, wish.verb, wish.lines, tasks);
    state.overlay = Some(Overlay::Question(Box::new(question)));
}

/// Maximum number of names listed one by one.
const NAMED: usize = 12;

/// Returns the question before an action on one process, or on several, with the names of all.
pub(super) fn together(
    data: &Data,
    meant: &[Who],
    verb: &str,
    mut lines: Vec<String>,
    mut tasks: Vec<Task>,
) -> Question {
    let named = |who: &Who| {
        let Some(process) = data.process(*who) else {
            return data.title(*who);
        };
        format!(
            "{} ({}) on {}",
            data.title(*who),
            process.user,
            gpus(process)
        )
    };
    if let ([who], 1) = (meant, tasks.len()) {
        return Question {
            title: format!("{verb} {}?", named(who)),
            lines,
            task: tasks.remove(0),
        };
    }
    let mut names: Vec<String> = meant.iter().take(NAMED).map(named).collect();
    if meant.len() > NAMED {
        names.push(format!("and {} more", meant.len() - NAMED));
    }
    names.append(&mut lines);
    Question {
        title: format!("{verb} {} processes?", meant.len()),
        lines: names,
        task: Task::All(tasks),
    }
}
