//! The effect of a key or of news on the state.

use std::collections::BTreeSet;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

mod dialogs;
mod findings;
mod lists;
mod mouse;
mod news;
mod questions;
mod time;
mod trace;

pub use mouse::{click, let_go, pull, scroll};
pub use news::{news, over, tell, warn};

use super::keys::Action;
use super::operator::Task;
use super::overlay::{AuditList, Commands, FilterLine, Findings, Overlay};
use super::state::{Choices, Lanes, Screen, State, Subject, Tree};
use gpushare_base::text::plain::plain;
use gpushare_observe::filter::Filter;
use gpushare_sample::columns::{COLUMNS, Row};
use gpushare_sample::{ProcessSample, Who};

/// Maximum number of lines that a text scrolls through.
const MOST_LINES: usize = 5000;

/// The action that the program takes after a key.
#[derive(Debug)]
pub enum Next {
    /// Continue.
    Continue,
    /// Hand this task to the operator's thread.
    Do(Task),
    /// Draw everything anew.
    Redraw,
    /// Stop as a job of the shell.
    Suspend,
    /// Play the recording on from this moment.
    PlayFrom(u64),
    /// Put this into the terminal's clipboard.
    Copy(String),
    /// Put the screen into the terminal's clipboard.
    CopyScreen,
    /// Write the shown moment to files.
    Export,
    /// Show the colours of the next theme.
    Theme,
    /// End the program.
    Quit,
}

/// Handles a key.
pub fn key(state: &mut State, key: KeyEvent) -> Next {
    let next = pressed(state, key);
    state.pin_rows();
    next
}

/// Handles pasted text: it goes into the text field that has the cursor, and is ignored anywhere else.
pub fn paste(state: &mut State, text: &str) {
    // A field takes one line.
    let text = text.lines().next().unwrap_or_default();
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    match &mut state.overlay {
        Some(Overlay::Dialog(dialog)) => dialog.paste(&text),
        Some(Overlay::Filter(line)) => {
            enter(&mut line.input, &text);
            lists::narrow(&mut state.choices, line);
        }
        Some(Overlay::Commands(commands)) => enter(&mut commands.input, &text),
        _ => {
            let filter = state.choices.keymap.key_of(Action::Filter);
            let text = format!("pasted text is taken in fields only; {filter} opens the filter");
            say(state, &text, true);
        }
    }
}

fn enter(input: &mut Input, text: &str) {
    for letter in text.chars() {
        input.handle_event(&Event::Key(KeyCode::Char(letter).into()));
    }
}

fn pressed(state: &mut State, key: KeyEvent) -> Next {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') && state.overlay.is_some() {
        if let Some(Overlay::Filter(line)) = state.overlay.take() {
            state.choices.filter = line.before;
        }
        say(state, "closed; ^C again quits", false);
        return Next::Continue;
    }
    match state.overlay.take() {
        Some(Overlay::Help(scroll)) => {
            let lines = super::view::help_lines();
            state.overlay = lists::scrolled(scroll, lines, key).map(Overlay::Help);
        }
        Some(Overlay::Findings(which, at)) => return findings::key(state, which, at, key),
        Some(Overlay::Dialog(dialog)) => return dialogs::key(state, dialog, key),
        Some(Overlay::Audit(list)) => return lists::audit_key(state, list, key),
        Some(Overlay::Filter(line)) => lists::filter_key(state, line, key),
        Some(Overlay::About(mut about)) => {
            // The number of lines depends on the width; drawing stops at the last line.
            if let Some(to) = lists::scrolled(about.scroll, MOST_LINES, key) {
                about.scroll = to;
                state.overlay = Some(Overlay::About(about));
            }
        }
        Some(Overlay::Columns(at)) => lists::columns_key(state, at, key),
        Some(Overlay::Commands(commands)) => return lists::commands_key(state, commands, key),
        // In both, any other key means no.
        Some(Overlay::Undo(entry)) => {
            if let (Some(entry), KeyCode::Enter | KeyCode::Char('y')) = (entry, key.code) {
                return Next::Do(Task::Undo(entry));
            }
        }
        Some(Overlay::Question(question)) => {
            if matches!(key.code, KeyCode::Enter | KeyCode::Char('y')) {
                return Next::Do(question.task);
            }
        }
        None => {
            let place = state.choices.screen.place();
            state.choices.notice = None;
            if let Some(action) = state.choices.keymap.action(key, place) {
                return act(state, action);
            }
            unknown(state, key);
        }
    }
    Next::Continue
}

/// Reports a key without a meaning, and the key that may have been meant.
fn unknown(state: &mut State, key: KeyEvent) {
    let pressed = match key.code {
        KeyCode::Char(letter) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            format!("^{}", letter.to_ascii_uppercase().escape_debug())
        }
        KeyCode::Char(letter) => letter.escape_debug().to_string(),
        other => other.to_string(),
    };
    let key = |action| state.choices.keymap.key_of(action);
    let (search, list) = (key(Action::Commands), key(Action::Help));
    let text =
        format!("{pressed} does nothing here; {search} searches what one can do, {list} lists all");
    say(state, &text, false);
}

fn act(state: &mut State, action: Action) -> Next {
    // A change is made in the present, so its dialog shows that.
    if action.is_change() && !state.is_played() {
        state.resume();
    }
    let (is_past, has_details) = (state.is_past(), state.has_details());
    let choices = &mut state.choices;
    match action {
        Action::Quit => return Next::Quit,
        Action::Suspend => return Next::Suspend,
        Action::Redraw => return Next::Redraw,
        Action::Help => state.overlay = Some(Overlay::Help(0)),
        Action::Alerts => state.overlay = Some(Overlay::Findings(Findings::Alerts, 0)),
        Action::Why => state.overlay = Some(Overlay::Findings(Findings::Why, 0)),
        Action::Commands => state.overlay = Some(Overlay::Commands(Commands::default())),
        Action::Back => return back(state),
        Action::Waits => toggle(choices, Screen::Waits),
        Action::Models => toggle(choices, Screen::Models),
        Action::Span => choices.lately = !choices.lately,
        Action::Move(by) => move_selection(state, by),
        Action::Detail => detail(state),
        Action::Gpu(by) => turn_gpu(state, by),
        Action::Digit(number) => return digit(state, number),
        Action::AllGpus => choices.all_gpus = !choices.all_gpus,
        Action::Sort(by) => sort_by_next(choices, by),
        Action::About => return lists::about(state),
        Action::Columns => state.overlay = Some(Overlay::Columns(choices.sort)),
        Action::Tree => choices.tree = choices.tree.next(),
        Action::Fold | Action::FoldAll if choices.tree == Tree::Flat => {
            let key = choices.keymap.key_of(Action::Tree);
            say(state, &format!("{key} gathers the list first"), false);
        }
        Action::Fold => {
            if !state.fold() {
                subject(state);
            }
        }
        Action::FoldAll => state.fold_all(),
        Action::Lanes => lanes(state),
        Action::ScrollLanes(by) => scroll_lanes(state, by),
        Action::Mark => mark(state),
        Action::MarkAll => mark_all(state),
        Action::Reverse => choices.descending = !choices.descending,
        Action::Filter => edit_filter(state),
        Action::Freeze if is_past => return time::resume(state),
        Action::Freeze => state.stop(),
        Action::Zoom(by) => state.zoom(by),
        Action::Pan(columns) => return time::move_by_columns(state, columns),
        Action::Events => {
            choices.events = choices.events.next();
            // The pane may be hidden.
            let text = format!("events: {}", choices.events.word());
            say(state, &text, false);
        }
        Action::Quota | Action::Share | Action::Policy | Action::Boost | Action::Signal => {
            dialogs::open(state, action);
        }
        Action::Pause => questions::pause(state),
        Action::Evict => questions::evict(state),
        Action::Pin => questions::pin(state),
        Action::Wind(seconds) => return time::move_by(state, seconds),
        Action::Copy => return copy_pid(state),
        Action::CopyRow => return copy_row(state),
        Action::CopyScreen => return copied(state, "the screen", Next::CopyScreen),
        Action::Alert(by) => return time::jump(state, by),
        Action::Export if !has_details => {
            say(state, "the details of this moment are not kept", true);
        }
        Action::Export => return Next::Export,
        Action::Theme => return Next::Theme,
        Action::Trace => trace::ask(state),
        Action::Audit => {
            state.overlay = Some(Overlay::Audit(AuditList::default()));
            return Next::Do(Task::ReadAudit);
        }
        Action::Undo if choices.read_only => say(state, READ_ONLY, true),
        Action::Undo => {
            state.overlay = Some(Overlay::Undo(None));
            return Next::Do(Task::ReadNewest);
        }
    }
    Next::Continue
}

/// Goes one step back: to the screen before, to the present, to no marks, to no filter.
fn back(state: &mut State) -> Next {
    let is_past = state.is_past();
    let choices = &mut state.choices;
    match choices.screen {
        Screen::Detail(_) | Screen::Waits | Screen::Models => choices.screen = choices.behind(),
        Screen::Main if is_past => return time::resume(state),
        Screen::Main if !choices.marked.is_empty() => choices.marked.clear(),
        Screen::Main => choices.filter = Filter::default(),
    }
    Next::Continue
}

/// Shows a screen, or the main screen instead of it.
fn toggle(choices: &mut Choices, screen: Screen) {
    choices.screen = match choices.screen == screen {
        true => Screen::Main,
        false => screen,
    };
}

fn move_selection(state: &mut State, by: isize) {
    state.select(by);
    if let (Screen::Detail(_), Some(who)) = (state.choices.screen, state.choices.selected) {
        state.choices.screen = Screen::Detail(who);
    }
}

/// Opens what is selected. The line about the newest edit offers this key for itself.
fn detail(state: &mut State) {
    if !state.is_past() && state.close_comparison() {
        return;
    }
    match state.subject() {
        Subject::Group => state.unfold(),
        _ => show_detail(state),
    }
}

fn scroll_lanes(state: &mut State, by: isize) {
    let last = state.data().on(state.choices.gpu).len().saturating_sub(1);
    let from = &mut state.choices.lanes_from;
    *from = from.saturating_add_signed(by).min(last);
}

/// Shows everything about the selected process.
fn show_detail(state: &mut State) {
    if let Some((who, gpu)) = subject(state) {
        state.choices.selected = Some(who);
        if !matches!(state.choices.screen, Screen::Detail(_)) {
            state.choices.list = state.choices.screen;
        }
        state.choices.screen = Screen::Detail(who);
        state.show_gpu(gpu);
    }
}

/// Opens the remedy of the alert with this number on the main screen; without one, shows the device with the number.
fn digit(state: &mut State, number: usize) -> Next {
    let alerts = &state.data().alerts;
    let alert = number.checked_sub(1).and_then(|at| alerts.get(at));
    match alert.filter(|alert| alert.has_edits()).cloned() {
        Some(alert) if state.choices.screen == Screen::Main => findings::open(state, &alert),
        _ => {
            show_gpu(state, number);
            Next::Continue
        }
    }
}

fn show_gpu(state: &mut State, gpu: usize) {
    let count = state.data().sample.devices.len();
    if gpu < count {
        state.show_gpu(gpu);
    } else {
        let text = format!("there is no GPU{gpu}; there are {count}");
        say(state, &text, true);
    }
}

/// Sorts by the visible column that is `by` columns further.
fn sort_by_next(choices: &mut Choices, by: isize) {
    let shown: Vec<usize> = (0..COLUMNS.len())
        .filter(|at| COLUMNS[*at].width > 0)
        .collect();
    let now = shown.iter().position(|at| *at == choices.sort).unwrap_or(0);
    let next = (now as isize + by).rem_euclid(shown.len() as isize);
    choices.sort_by(shown[next.unsigned_abs()]);
}

fn edit_filter(state: &mut State) {
    let before = state.choices.filter.clone();
    state.overlay = Some(Overlay::Filter(FilterLine {
        input: Input::new(before.text().to_owned()),
        error: None,
        before,
    }));
}

fn copy_pid(state: &mut State) -> Next {
    let process = subject(state).and_then(|(who, _)| state.data().process(who));
    let Some(pid) = process.map(ProcessSample::shown_pid) else {
        return Next::Continue;
    };
    let pid = pid.to_string();
    copied(state, &pid, Next::Copy(pid.clone()))
}

/// Reports what `next` puts into the clipboard.
fn copied(state: &mut State, what: &str, next: Next) -> Next {
    let text = format!("copied {what} to the clipboard, if this terminal allows it");
    say(state, &text, false);
    next
}

fn copy_row(state: &mut State) -> Next {
    let Some(subject) = subject(state) else {
        return Next::Continue;
    };
    let rows = state.rows();
    let row = rows
        .iter()
        .find(|row| (row.who, row.holding.gpu) == subject);
    let shown = |row: &Row<'_>| {
        let columns = COLUMNS.iter().filter(|column| column.width > 0);
        let cells = columns.map(|column| (column.value)(row).shown().into_owned());
        plain(&cells.collect::<Vec<_>>().join(" ")).into_owned()
    };
    let Some(text) = row.map(shown) else {
        return Next::Continue;
    };
    copied(state, "the row", Next::Copy(text))
}

/// Returns the process and device of an action. If there is none, the last line says why. If none is selected, the
/// first is selected, so that the next key press shows its target before it acts.
fn subject(state: &mut State) -> Option<(Who, usize)> {
    match state.subject() {
        Subject::This(who, gpu) => return Some((who, gpu)),
        Subject::Group => {
            let unfold = state.choices.keymap.key_of(Action::Fold);
            let text = format!("this is a folded group; {unfold} unfolds it");
            say(state, &text, true);
        }
        Subject::Hidden(who) => {
            let key = |action| state.choices.keymap.key_of(action);
            let why = match state.choices.filter.is_empty() {
                true => format!(
                    "it is not in this list; {} selects one that is",
                    key(Action::Move(1))
                ),
                false => format!(
                    "the filter hides it; {} clears the filter",
                    key(Action::Back)
                ),
            };
            let text = format!("{} is selected, but {why}", state.data().title(who));
            say(state, &text, true);
        }
        Subject::Nothing => {
            state.select(1);
            let text = match state.choices.selected {
                Some(who) => format!(
                    "no process was selected; now {} is: press the key again",
                    state.data().title(who)
                ),
                None => "there is no process to do this with".to_owned(),
            };
            say(state, &text, true);
        }
    }
    None
}

/// Marks the selected process, or removes its mark, and goes on to the next.
fn mark(state: &mut State) {
    let Some((who, _)) = subject(state) else {
        return;
    };
    if !state.choices.marked.remove(&who) {
        state.choices.marked.insert(who);
    }
    state.select(1);
}

/// Shows the lanes of other processes; those of the marked only if there are any.
fn lanes(state: &mut State) {
    let choices = &mut state.choices;
    choices.lanes = choices.lanes.next();
    if choices.lanes == Lanes::Marked && choices.marked.is_empty() {
        choices.lanes = choices.lanes.next();
    }
    choices.lanes_from = 0;
    let text = match choices.lanes {
        Lanes::Busy => "lanes of all, the busiest where not all fit",
        Lanes::Listed => "lanes of the processes in the list, in its order",
        Lanes::Marked => "lanes of the marked processes",
    };
    say(state, text, false);
}

/// Marks every process in the list, or removes the marks if all have one.
fn mark_all(state: &mut State) {
    let listed = state.rows().iter().map(|row| row.who).collect();
    let marked = &mut state.choices.marked;
    *marked = match *marked == listed {
        true => Default::default(),
        false => listed,
    };
}

/// Returns the processes of an action, each with the device to show: the marked processes on the screen, else those of the
/// selected group, else the selected one.
fn subjects(state: &mut State) -> Vec<(Who, usize)> {
    let are_marked = state.choices.screen == Screen::Main && !state.choices.marked.is_empty();
    let mut found = match are_marked {
        true => state
            .rows()
            .iter()
            .map(|row| (row.who, row.holding.gpu))
            .collect(),
        false => state.selected_group(),
    };
    if !are_marked && found.is_empty() {
        return subject(state).into_iter().collect();
    }
    let mut seen = BTreeSet::new();
    let marked = &state.choices.marked;
    found.retain(|(who, _)| (!are_marked || marked.contains(who)) && seen.insert(*who));
    if found.is_empty() {
        let back = state.choices.keymap.key_of(Action::Back);
        let text =
            format!("none of the marked processes is in this list; {back} takes the marks away");
        say(state, &text, true);
    }
    found
}

/// Shows the next device. For a process that is shown alone, it is the next of its own devices.
fn turn_gpu(state: &mut State, by: isize) {
    if let Screen::Detail(who) = state.choices.screen
        && let Some(process) = state.data().process(who)
    {
        let gpus: Vec<usize> = process.uses().map(|h| h.gpu).collect();
        let shown = state.shown_gpu(process);
        let at = gpus.iter().position(|gpu| Some(*gpu) == shown).unwrap_or(0);
        let next = (at as isize + by).rem_euclid(gpus.len().max(1) as isize);
        if let Some(gpu) = gpus.get(next.unsigned_abs()).copied() {
            state.show_gpu(gpu);
        }
        return;
    }
    let mut choices = state.choices.clone();
    choices.turn_gpu(by, state.data());
    state.choices = choices;
}

const UNMANAGED: &str = "gpushare does not manage this process; start it with gpushare run";
const READ_ONLY: &str = "read-only: nothing can be changed; start gpushare-top without --read-only";

fn say(state: &mut State, text: &str, bad: bool) {
    let mut choices = std::mem::take(&mut state.choices);
    choices.say(text, bad, state.live_ns());
    state.choices = choices;
}
