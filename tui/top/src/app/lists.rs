//! The keys of the lists that lie over the screen: edits, commands, columns, and the filter line.

use std::path::Path;

use crossterm::event::{Event, KeyCode, KeyEvent};
use tui_input::backend::crossterm::EventHandler;

use super::{Next, READ_ONLY, act, subject};
use crate::operator::Task;
use crate::overlay::{About, AuditList, Commands, FilterLine, Overlay};
use crate::state::{Choices, State};
use gpushare_base::host::pids;
use gpushare_control::audit::{Entry, Outcome};
use gpushare_observe::filter::Filter;
use gpushare_sample::Origin;
use gpushare_sample::columns::COLUMNS;

pub(super) fn commands_key(state: &mut State, mut commands: Commands, key: KeyEvent) -> Next {
    let found = commands.found(state.choices.screen.place());
    let last = found.len().saturating_sub(1);
    match key.code {
        KeyCode::Esc => return Next::Continue,
        KeyCode::Enter => {
            let chosen = found.get(commands.at.min(last)).map(|key| key.action);
            return chosen.map_or(Next::Continue, |action| act(state, action));
        }
        KeyCode::Down | KeyCode::Tab => commands.at = (commands.at + 1).min(last),
        KeyCode::Up | KeyCode::BackTab => commands.at = commands.at.saturating_sub(1),
        KeyCode::PageDown => commands.at = (commands.at + 10).min(last),
        KeyCode::PageUp => commands.at = commands.at.saturating_sub(10),
        _ => {
            commands.input.handle_event(&Event::Key(key));
            commands.at = 0;
        }
    }
    state.overlay = Some(Overlay::Commands(commands));
    Next::Continue
}

/// Returns the new scroll position in a text of `lines` lines after a key; `None` for a key that closes the text.
pub(super) fn scrolled(scroll: usize, lines: usize, key: KeyEvent) -> Option<usize> {
    match key.code {
        KeyCode::Down | KeyCode::Char('j') => Some((scroll + 1).min(lines)),
        KeyCode::Up | KeyCode::Char('k') => Some(scroll.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some((scroll + 10).min(lines)),
        KeyCode::PageUp => Some(scroll.saturating_sub(10)),
        KeyCode::Home => Some(0),
        _ => None,
    }
}

pub(super) fn audit_key(state: &mut State, mut list: AuditList, key: KeyEvent) -> Next {
    let last = list
        .entries
        .as_ref()
        .map_or(0, |entries| entries.len().saturating_sub(1));
    let mut next = Next::Continue;
    let asked = std::mem::take(&mut list.asking);
    match key.code {
        KeyCode::Enter | KeyCode::Char('y') if asked => {
            if let Some(entry) = list.entry() {
                next = Next::Do(Task::Undo(Box::new(entry.clone())));
                list.message = Some(format!("undoing edit {} …", entry.number));
            }
        }
        // Any other key means no.
        _ if asked => {}
        KeyCode::Enter => list.whole = !list.whole && list.entry().is_some(),
        KeyCode::Esc if list.whole => list.whole = false,
        KeyCode::Esc | KeyCode::Char('q' | 'a') => return Next::Continue,
        KeyCode::Down | KeyCode::Char('j') => list.selected = (list.selected + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => list.selected = list.selected.saturating_sub(1),
        KeyCode::PageDown => list.selected = (list.selected + 10).min(last),
        KeyCode::PageUp => list.selected = list.selected.saturating_sub(10),
        KeyCode::Char('u') if state.choices.read_only => list.message = Some(READ_ONLY.into()),
        KeyCode::Char('u') => match list.entry().map(not_to_undo) {
            None => {}
            Some(Some(why)) => list.message = Some(why),
            Some(None) => {
                list.message = None;
                list.asking = true;
            }
        },
        _ => {}
    }
    state.overlay = Some(Overlay::Audit(list));
    next
}

/// Explains why there is nothing to undo. The operator's thread checks whether an undo is still possible.
fn not_to_undo(entry: &Entry) -> Option<String> {
    let record = &entry.record;
    let number = entry.number;
    match (record.result, record.undoes, &record.restore) {
        _ if record.change.is_none() => Some(format!(
            "edit {number} is no setting: it cannot be taken back"
        )),
        (Outcome::Refused, ..) => Some(format!(
            "edit {number} was refused: there is nothing to undo"
        )),
        (_, Some(_), _) => Some(format!(
            "edit {number} is an undo itself; make the original edit again instead"
        )),
        (_, _, None) => Some(format!(
            "edit {number} does not record the earlier value; set the value by hand"
        )),
        _ => None,
    }
}

pub(super) fn filter_key(state: &mut State, mut line: FilterLine, key: KeyEvent) {
    match key.code {
        KeyCode::Esc => {
            state.choices.filter = line.before;
            return;
        }
        KeyCode::Enter if line.error.is_none() => return,
        KeyCode::Enter => {}
        _ => {
            line.input.handle_event(&Event::Key(key));
            narrow(&mut state.choices, &mut line);
        }
    }
    state.overlay = Some(Overlay::Filter(line));
}

/// Applies the filter while it is typed, once it is valid.
pub(super) fn narrow(choices: &mut Choices, line: &mut FilterLine) {
    match Filter::parse(line.input.value()) {
        Ok(filter) => {
            choices.filter = filter;
            line.error = None;
        }
        Err(why) => line.error = Some(why),
    }
}

/// Handles a key in the list of columns.
pub(super) fn columns_key(state: &mut State, at: usize, key: KeyEvent) {
    let last = COLUMNS.len() - 1;
    let at = match key.code {
        KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::PageDown => (at + 10).min(last),
        KeyCode::PageUp => at.saturating_sub(10),
        KeyCode::Home => 0,
        KeyCode::End => last,
        KeyCode::Char(' ') => {
            state.choices.toggle_column(at);
            at
        }
        KeyCode::Char('r') => {
            state.choices.descending = !state.choices.descending;
            at
        }
        KeyCode::Char('2') => {
            state.choices.sort_then_by(at);
            at
        }
        KeyCode::Enter => return state.choices.sort_by(at),
        _ => return,
    };
    state.overlay = Some(Overlay::Columns(at));
}

/// Shows how the selected process was started.
pub(super) fn about(state: &mut State) -> Next {
    let Some((who, _)) = subject(state) else {
        return Next::Continue;
    };
    let pid = state.data().process(who).and_then(|process| process.pid);
    let task = match pid {
        _ if state.data().sample.origin == Origin::Replay => Err("a recording does not hold it"),
        None => Err("its pid is not visible from here"),
        // Inside a container the start time differs, so the kernel's is read now.
        Some(pid) => pids::start_time(Path::new(&format!("/proc/{pid}")))
            .map(|started| Task::About(who, pid, started))
            .ok_or("that process has ended"),
    };
    let launched = task.as_ref().err().map(|why| Err((*why).to_owned()));
    state.overlay = Some(Overlay::About(Box::new(About {
        who,
        launched,
        scroll: 0,
    })));
    task.map_or(Next::Continue, Next::Do)
}
