//! What a key or a piece of news does to the state.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use shm_layout::SlotId;
use tui_input::backend::crossterm::EventHandler;

mod trace;

use super::dialog::{
    self, Dialog, PolicySubject, Progress, QuotaSubject, ShareSubject, SignalSubject, gpus,
};
use super::keys::{self, Action};
use super::operator::{News, Task};
use super::overlay::{AuditList, Commands, FilterLine, Overlay, Question};
use super::state::filter::Filter;
use super::state::{Choices, Hit, Screen, State, Subject};
use super::{view, why};
use crate::edit::Applied;
use crate::edit::audit::{Entry, Outcome};
use crate::edit::change::{ends_ns, summary};
use crate::sample::Who;
use crate::sample::columns::COLUMNS;
use crate::sample::{ProcessSample, Sample};
use crate::text::edits::from_to;
use crate::text::units::{format_duration, short_size};

/// What the program should do after a key.
#[derive(Debug)]
pub enum Next {
    /// Go on.
    Continue,
    /// Hand this to the operator's thread.
    Do(Task),
    /// Draw everything anew.
    Redraw,
    /// Stop as a job of the shell.
    Suspend,
    /// Wind the recording so many nanoseconds on, or back.
    Wind(i64),
    /// Put this into the terminal's clipboard.
    Copy(String),
    /// Leave.
    Quit,
}

/// Takes in a key.
pub fn key(state: &mut State, key: KeyEvent) -> Next {
    let next = pressed(state, key);
    state.pin_rows();
    next
}

/// Takes in pasted text: it goes where one writes, and is no command anywhere else.
pub fn paste(state: &mut State, text: &str) {
    // A line takes one line.
    let text = text.lines().next().unwrap_or_default();
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    match &mut state.overlay {
        Some(Overlay::Dialog(dialog)) => dialog.paste(&text),
        Some(Overlay::Filter(line)) => {
            for letter in text.chars() {
                line.input
                    .handle_event(&Event::Key(KeyCode::Char(letter).into()));
            }
            narrow(&mut state.choices, line);
        }
        Some(Overlay::Commands(commands)) => {
            for letter in text.chars() {
                let key = Event::Key(KeyCode::Char(letter).into());
                commands.input.handle_event(&key);
            }
        }
        _ => say(
            state,
            "pasted text is taken in fields only; / opens the filter",
            true,
        ),
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
            state.overlay = scrolled(scroll, lines, key).map(Overlay::Help);
        }
        Some(Overlay::Alerts(scroll)) => {
            // Sentences take several lines on a narrow screen; drawing stops at the last.
            let lines = 16 * state.data().alerts.len();
            state.overlay = scrolled(scroll, lines, key).map(Overlay::Alerts);
        }
        Some(Overlay::Dialog(dialog)) => return dialog_key(state, dialog, key),
        Some(Overlay::Audit(list)) => return audit_key(state, list, key),
        Some(Overlay::Filter(line)) => filter_key(state, line, key),
        Some(Overlay::Why(at)) => why_key(state, at, key),
        Some(Overlay::Commands(commands)) => return commands_key(state, commands, key),
        // Anything but yes means no.
        Some(Overlay::Question(question)) => {
            if matches!(key.code, KeyCode::Enter | KeyCode::Char('y')) {
                return Next::Do(question.task);
            }
        }
        None => {
            let place = state.choices.screen.place();
            state.choices.notice = None;
            if let Some(action) = keys::action(key, place) {
                return act(state, action);
            }
            unknown(state, key);
        }
    }
    Next::Continue
}

/// Says what a key that means nothing might have been meant for.
fn unknown(state: &mut State, key: KeyEvent) {
    if let KeyCode::Char(letter) = key.code {
        let letter = letter.escape_debug();
        let text = format!("{letter} does nothing here; : searches what one can do, ? lists all");
        say(state, &text, false);
    }
}

/// Takes in a click. A second one on the same row shows the process alone.
pub fn click(state: &mut State, hit: Hit) -> Next {
    if state.overlay.is_some() {
        return Next::Continue;
    }
    state.choices.notice = None;
    match hit {
        Hit::Process(who, gpu) if state.subject() == Subject::This(who, gpu) => {
            return act(state, Action::Detail);
        }
        Hit::Process(who, gpu) => {
            state.choices.selected = Some(who);
            state.show_gpu(gpu);
        }
        Hit::Heading(column) if state.choices.sort == column => {
            state.choices.descending = !state.choices.descending;
        }
        Hit::Heading(column) => state.choices.sort = column,
        Hit::Gpu(gpu) => state.show_gpu(gpu),
        Hit::Alert(at) => return remedy(state, at),
    }
    Next::Continue
}

/// Selects what an alert is about and presses the key that helps.
fn remedy(state: &mut State, at: usize) -> Next {
    let Some(alert) = state.data().alerts.get(at).cloned() else {
        return Next::Continue;
    };
    if let Some(gpu) = alert.gpu {
        state.show_gpu(gpu);
    }
    state.choices.selected = alert.who.or(state.choices.selected);
    let key = alert.remedy.as_ref().and_then(|remedy| remedy.key);
    let Some(key) = key else {
        return act(state, Action::Alerts);
    };
    let next = pressed(state, KeyEvent::from(KeyCode::Char(key)));
    state.pin_rows();
    next
}

/// Scrolls what has the keyboard.
pub fn scroll(state: &mut State, by: isize) -> Next {
    let code = if by > 0 { KeyCode::Down } else { KeyCode::Up };
    key(state, KeyEvent::from(code))
}

fn why_key(state: &mut State, at: usize, key: KeyEvent) {
    let all = why::explain(state.data(), state.choices.gpu);
    let last = all.len().saturating_sub(1);
    let at = match key.code {
        KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Enter if state.choices.read_only => return say(state, READ_ONLY, true),
        KeyCode::Enter => {
            let remedy = all.get(at.min(last)).and_then(|why| why.remedy.clone());
            let Some(remedy) = remedy else {
                state.overlay = Some(Overlay::Why(at));
                return say(state, "no setting would help this one", false);
            };
            let lines = view::wrapped(&remedy.effect, 66).into_iter();
            let after = "After ten minutes what holds now comes back by itself.".to_owned();
            state.overlay = Some(Overlay::Question(Box::new(Question {
                title: format!("{}: {} for 10m?", remedy.request.target, remedy.what),
                lines: lines.chain([after]).collect(),
                task: Task::Edit(Box::new(remedy.request)),
            })));
            return;
        }
        _ => return,
    };
    state.overlay = Some(Overlay::Why(at));
}

fn commands_key(state: &mut State, mut commands: Commands, key: KeyEvent) -> Next {
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

fn act(state: &mut State, action: Action) -> Next {
    let choices = &mut state.choices;
    match action {
        Action::Quit => return Next::Quit,
        Action::Suspend => return Next::Suspend,
        Action::Redraw => return Next::Redraw,
        Action::Help => state.overlay = Some(Overlay::Help(0)),
        Action::Alerts => state.overlay = Some(Overlay::Alerts(0)),
        Action::Why => state.overlay = Some(Overlay::Why(0)),
        Action::Commands => state.overlay = Some(Overlay::Commands(Commands::default())),
        Action::Back => match choices.screen {
            Screen::Detail(_) | Screen::Waits => choices.screen = choices.behind(),
            Screen::Main => choices.filter = Filter::default(),
        },
        Action::Waits => {
            choices.screen = match choices.screen {
                Screen::Waits => Screen::Main,
                Screen::Main | Screen::Detail(_) => Screen::Waits,
            }
        }
        Action::Span => choices.lately = !choices.lately,
        Action::Move(by) => {
            state.select(by);
            if let (Screen::Detail(_), Some(who)) = (state.choices.screen, state.choices.selected) {
                state.choices.screen = Screen::Detail(who);
            }
        }
        Action::Detail => {
            if let Some((who, gpu)) = subject(state) {
                state.choices.selected = Some(who);
                state.choices.from_waits = state.choices.screen == Screen::Waits;
                state.choices.screen = Screen::Detail(who);
                state.show_gpu(gpu);
            }
        }
        Action::Gpu(by) => turn_gpu(state, by),
        Action::GpuNumber(gpu) => {
            let count = state.data().sample.devices.len();
            match gpu < count {
                true => state.show_gpu(gpu),
                false => say(
                    state,
                    &format!("there is no GPU{gpu}; there are {count}"),
                    true,
                ),
            }
        }
        Action::AllGpus => choices.all_gpus = !choices.all_gpus,
        Action::Sort(by) => {
            let shown: Vec<usize> = (0..COLUMNS.len())
                .filter(|at| COLUMNS[*at].width > 0)
                .collect();
            let now = shown.iter().position(|at| *at == choices.sort).unwrap_or(0);
            let next = (now as isize + by).rem_euclid(shown.len() as isize);
            choices.sort = shown[next.unsigned_abs()];
        }
        Action::Reverse => choices.descending = !choices.descending,
        Action::Filter => {
            let input = tui_input::Input::new(choices.filter.text().to_owned());
            let before = choices.filter.clone();
            state.overlay = Some(Overlay::Filter(FilterLine {
                input,
                error: None,
                before,
            }));
        }
        Action::Freeze => state.toggle_freeze(),
        Action::Zoom(by) => choices.zoom_by(by),
        Action::Pan(by) => choices.pan = choices.pan.saturating_add_signed(by).min(4000),
        Action::Events => choices.events = choices.events.next(),
        Action::Quota | Action::Share | Action::Policy | Action::Boost | Action::Signal => {
            open_dialog(state, action);
        }
        Action::Pause => pause(state),
        Action::Evict => evict(state),
        Action::Wind(seconds) => return Next::Wind(seconds.saturating_mul(1_000_000_000)),
        Action::Copy => {
            let process = subject(state).and_then(|(who, _)| state.data().process(who));
            let Some(pid) = process.map(ProcessSample::shown_pid) else {
                return Next::Continue;
            };
            let text = format!("copied {pid} to the clipboard, if this terminal allows it");
            say(state, &text, false);
            return Next::Copy(pid.to_string());
        }
        Action::Trace => trace::ask(state),
        Action::Audit => {
            state.overlay = Some(Overlay::Audit(AuditList::default()));
            return Next::Do(Task::ReadAudit);
        }
    }
    Next::Continue
}

/// The process that an action is about, and the device. Where there is none, the last line says why; and where none is
/// selected, the first is, so that the next key shows what it means before it does it.
fn subject(state: &mut State) -> Option<(Who, usize)> {
    match state.subject() {
        Subject::This(who, gpu) => return Some((who, gpu)),
        Subject::Hidden(who) => {
            let why = match state.choices.filter.is_empty() {
                true => "it is not in this list; Down selects one that is",
                false => "the filter hides it; Esc clears the filter",
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

/// Shows the next device; of a process that is shown alone, the next of its own.
fn turn_gpu(state: &mut State, by: isize) {
    if let Screen::Detail(who) = state.choices.screen
        && let Some(process) = state.data().process(who)
    {
        let gpus: Vec<usize> = process.devices.iter().map(|h| h.gpu).collect();
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

fn open_dialog(state: &mut State, action: Action) {
    let subject = match action {
        // The device of the process that is shown alone, and else the chosen one.
        Action::Policy => match state.subject() {
            Subject::This(who, gpu) if state.choices.screen == Screen::Detail(who) => {
                Some((who, gpu))
            }
            _ => None,
        },
        _ => match subject(state) {
            None => return,
            found => found,
        },
    };
    let data = state.data();
    let gpu = subject.map_or(state.choices.gpu, |(_, gpu)| gpu);
    let process = subject.and_then(|(who, _)| Some((who, data.process(who)?)));
    let dialog = match (action, process) {
        (Action::Policy, _) => PolicySubject::open(data, gpu)
            .ok_or("this GPU has no lock yet: no process uses it through gpushare"),
        (_, None) => return,
        (Action::Quota, Some((who, process))) => {
            QuotaSubject::open(process, gpu, data.letter(who)).ok_or(UNMANAGED)
        }
        (Action::Signal, Some((who, process))) => SignalSubject::open(process, data.title(who)),
        (Action::Boost, Some((who, process))) => {
            ShareSubject::boost(process, data.letter(who)).ok_or(UNMANAGED)
        }
        (_, Some((who, process))) => ShareSubject::open(process, data.letter(who)).ok_or(UNMANAGED),
    };
    match dialog {
        Ok(dialog) => state.overlay = Some(Overlay::Dialog(Box::new(dialog))),
        Err(why) => say(state, why, true),
    }
}

const UNMANAGED: &str = "gpushare does not manage this process; start it with gpushare run";
const READ_ONLY: &str = "read-only: nothing can be changed; start gpushare-top without --read-only";

/// Asks before a process is paused, or goes on.
fn pause(state: &mut State) {
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
fn evict(state: &mut State) {
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

/// Where a text of so many lines is scrolled to by a key; `None` for a key that closes it.
fn scrolled(scroll: usize, lines: usize, key: KeyEvent) -> Option<usize> {
    match key.code {
        KeyCode::Down | KeyCode::Char('j') => Some((scroll + 1).min(lines)),
        KeyCode::Up | KeyCode::Char('k') => Some(scroll.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some((scroll + 10).min(lines)),
        KeyCode::PageUp => Some(scroll.saturating_sub(10)),
        KeyCode::Home => Some(0),
        _ => None,
    }
}

fn dialog_key(state: &mut State, mut dialog: Box<Dialog>, key: KeyEvent) -> Next {
    let mut next = Next::Continue;
    match dialog.key(key) {
        dialog::Outcome::Close => return Next::Continue,
        dialog::Outcome::Stay => {}
        dialog::Outcome::Apply if state.choices.read_only => {
            dialog.progress = Progress::Failed(READ_ONLY.into())
        }
        dialog::Outcome::Apply if dialog.progress == Progress::Sent => {}
        dialog::Outcome::Apply => match dialog.task(state.data()) {
            Ok(task) => {
                dialog.progress = Progress::Sent;
                next = Next::Do(task);
            }
            Err(why) => dialog.progress = Progress::Failed(why),
        },
    }
    state.overlay = Some(Overlay::Dialog(dialog));
    next
}

fn audit_key(state: &mut State, mut list: AuditList, key: KeyEvent) -> Next {
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
        // Anything else means no, and nothing more.
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

/// Why there is nothing to undo; whether it still can be, the operator's thread finds out.
fn not_to_undo(entry: &Entry) -> Option<String> {
    let record = &entry.record;
    let number = entry.number;
    match (record.result, record.undoes, &record.restore) {
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

fn filter_key(state: &mut State, mut line: FilterLine, key: KeyEvent) {
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

/// The list follows what is written, as far as it can be understood.
fn narrow(choices: &mut Choices, line: &mut FilterLine) {
    match Filter::parse(line.input.value()) {
        Ok(filter) => {
            choices.filter = filter;
            line.error = None;
        }
        Err(why) => line.error = Some(why),
    }
}

/// Takes in what was on the way to another moment of a recording, or that there is no recording.
pub fn wound(state: &mut State, passed: Option<Vec<Sample>>) {
    let Some(passed) = passed else {
        return say(
            state,
            "only a recording can be rewound: --record F, then --replay F",
            false,
        );
    };
    let still = state.is_frozen();
    if still {
        state.toggle_freeze();
    }
    passed.into_iter().for_each(|sample| state.update(sample));
    if still {
        state.toggle_freeze();
    }
}

/// Says that something went wrong that is not of the user's doing.
pub fn warn(state: &mut State, sentence: &str) {
    say(state, sentence, true);
}

/// Takes in that a recording has no more samples.
pub fn over(state: &mut State) {
    say(state, "this is the end of the recording; q quits", false);
}

/// Takes in what the operator's thread has done.
pub fn news(state: &mut State, news: News) {
    told(state, news);
    state.pin_rows();
}

fn told(state: &mut State, news: News) {
    match news {
        News::InForce { target, applied } => in_force(state, &target, &applied, false),
        News::Settled { target, applied } => in_force(state, &target, &applied, true),
        News::Done(sentence) => {
            let sent = |dialog: &Dialog| dialog.progress == Progress::Sent;
            if matches!(&state.overlay, Some(Overlay::Dialog(dialog)) if sent(dialog)) {
                state.overlay = None;
            }
            say(state, &sentence, false);
        }
        News::Warning(sentence) => say(state, &sentence, true),
        News::Refused(why) => match &mut state.overlay {
            Some(Overlay::Dialog(dialog)) if dialog.progress == Progress::Sent => {
                dialog.progress = Progress::Failed(why);
            }
            Some(Overlay::Audit(list)) => list.message = Some(why),
            _ => say(state, &why, true),
        },
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

fn in_force(state: &mut State, target: &str, applied: &Applied, settled: bool) {
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
    let change = from_to(Some(&summary(&applied.old)), &summary(&applied.new), "to");
    let now_ns = state.data().sample.time_ns;
    let left = ends_ns(&applied.new).map(|until| until.saturating_sub(now_ns));
    // A second is lost on the way here; "10m" is what was asked for.
    let left = left.map(|left| {
        format!(
            " for {}",
            format_duration(left.next_multiple_of(1_000_000_000))
        )
    });
    let change = format!("{target}: {change}{}", left.unwrap_or_default());
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

fn say(state: &mut State, text: &str, bad: bool) {
    let mut choices = std::mem::take(&mut state.choices);
    choices.say(text, bad, state.data());
    state.choices = choices;
}
