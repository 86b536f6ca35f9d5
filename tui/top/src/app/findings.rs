//! The keys of the lists of findings, and what starts a remedy: the dialog with the proposed value, or a question.

use crossterm::event::{KeyCode, KeyEvent};

use super::{Next, READ_ONLY, act, dialogs, say, time};
use crate::keys::Action;
use crate::operator::Task;
use crate::overlay::{Findings, Overlay, Question};
use crate::state::State;
use crate::view;
use gpushare_base::text::units::format_duration;
use gpushare_control::audit::Place;
use gpushare_observe::finding::{Edit, Finding};

/// Time for which a remedy is tried, in nanoseconds.
const TRIAL_NS: u64 = 600_000_000_000;

pub(super) fn key(state: &mut State, which: Findings, at: usize, key: KeyEvent) -> Next {
    let found = state.findings(which).into_owned();
    let last = found.len().saturating_sub(1);
    let at = match key.code {
        KeyCode::Down | KeyCode::Char('j') => at.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::PageDown => at.saturating_add(10),
        KeyCode::PageUp => at.saturating_sub(10),
        KeyCode::Home => 0,
        KeyCode::End => last,
        KeyCode::Enter => return start(state, which, at.min(last), &found),
        KeyCode::Char(digit @ '1'..='9') => {
            return start(state, which, digit as usize - '1' as usize, &found);
        }
        _ => return Next::Continue,
    };
    state.overlay = Some(Overlay::Findings(which, at.min(last)));
    Next::Continue
}

/// Starts the remedy of one of the findings. If it has none, the list stays.
fn start(state: &mut State, which: Findings, at: usize, found: &[Finding]) -> Next {
    let finding = found.get(at).filter(|finding| finding.has_edits());
    match (finding, which) {
        (None, _) => {
            let at = at.min(found.len().saturating_sub(1));
            state.overlay = Some(Overlay::Findings(which, at));
            say(state, "no setting would help this one", false);
        }
        (Some(finding), Findings::Alerts) => return open(state, finding),
        (Some(_), Findings::Why) if state.choices.read_only => say(state, READ_ONLY, true),
        (Some(finding), Findings::Why) => ask(state, finding, Some(TRIAL_NS)),
    }
    Next::Continue
}

/// Opens the remedy of an alert for the process and the device of the alert, whatever is selected.
pub(super) fn open(state: &mut State, alert: &Finding) -> Next {
    if alert.has_edits() && !time::is_present(state) {
        return Next::Continue;
    }
    if let Some(gpu) = alert.gpu {
        state.show_gpu(gpu);
    }
    state.choices.selected = alert.who.or(state.choices.selected);
    match alert.remedy.as_ref().map(|remedy| remedy.edits.as_slice()) {
        None | Some([]) => return act(state, Action::Alerts),
        Some([edit]) if dialogs::propose(state, edit) => {}
        Some(_) => ask(state, alert, None),
    }
    Next::Continue
}

/// Asks whether the edits of a remedy are to be made: for a time, if they can end by themselves, or for good.
fn ask(state: &mut State, finding: &Finding, lasts_ns: Option<u64>) {
    let Some(remedy) = finding.remedy.as_ref().filter(|_| time::is_present(state)) else {
        return;
    };
    let lasts_ns = lasts_ns.filter(|_| remedy.edits.iter().all(Edit::can_expire));
    let sample = &state.data().sample;
    let until_ns = lasts_ns.map(|ns| sample.time_ns.saturating_add(ns));
    let requests = match remedy.requests(sample, until_ns, Place::Tui) {
        Ok(requests) => requests,
        Err(why) => return say(state, &why, true),
    };
    let span = lasts_ns.map(format_duration);
    let reason = match &span {
        Some(span) => format!("why is it slow: a trial of {span}"),
        None => format!("alert {}", finding.kind.id),
    };
    let target = requests
        .first()
        .map_or("", |request| &request.target)
        .to_owned();
    let mut lines = view::wrapped(&finding.proposal().unwrap_or_default(), 66);
    if let Some(span) = &span {
        lines.push(format!("After {span} what holds now comes back by itself."));
    }
    let tasks = requests
        .into_iter()
        .map(|request| Task::Edit(Box::new(request.because(Some(reason.clone())))));
    let mut tasks: Vec<Task> = tasks.collect();
    let task = match tasks.len() {
        1 => tasks.remove(0),
        _ => Task::All(tasks),
    };
    let span = span.map_or(String::new(), |span| format!(" for {span}"));
    state.overlay = Some(Overlay::Question(Box::new(Question {
        title: format!("{target}: {}{span}?", remedy.text),
        lines,
        task,
    })));
}
