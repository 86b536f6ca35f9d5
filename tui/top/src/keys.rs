//! The keys: one table from which the dispatch, the footer and the help are made.

pub mod press;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ends the program.
    Quit,
    /// Stops the program as a shell job.
    Suspend,
    /// Draws everything anew.
    Redraw,
    /// Shows the key list.
    Help,
    /// Goes one step back.
    Back,
    /// Moves the selection by this many rows.
    Move(isize),
    /// Shows the selected process alone.
    Detail,
    /// Shows the device this many positions further.
    Gpu(isize),
    /// Opens the remedy of the alert with this number, or shows the device with it.
    Digit(usize),
    /// Switches between processes of every device and of one.
    AllGpus,
    /// Sorts by the column this many positions further.
    Sort(isize),
    /// Reverses the sort order.
    Reverse,
    /// Shows the list of columns, to sort by one or to hide it.
    Columns,
    /// Gathers the rows by user, group or container.
    Tree,
    /// Folds the group of the selected process, or unfolds it.
    Fold,
    /// Folds all groups, or unfolds them.
    FoldAll,
    /// Shows the lanes of other processes.
    Lanes,
    /// Scrolls the lanes by this many.
    ScrollLanes(isize),
    /// Marks the selected process for the next action, or removes its mark.
    Mark,
    /// Marks every process in the list, or removes all marks.
    MarkAll,
    /// Asks for a filter.
    Filter,
    /// Stops the screen at this moment, or returns to the present.
    Freeze,
    /// Shows more time in the lanes, or less.
    Zoom(isize),
    /// Moves the cursor by this many columns of the lanes into the past, or forward.
    Pan(i64),
    /// Shows another choice of events.
    Events,
    /// Opens the dialog for the selected process's memory quota.
    Quota,
    /// Opens the dialog for its weight, priority and cap.
    Share,
    /// Opens the dialog for the device's lock policy.
    Policy,
    /// Pauses the selected process, or resumes it.
    Pause,
    /// Evicts the selected process's memory, or restores it.
    Evict,
    /// Pins the selected process's memory to its devices, or unpins it.
    Pin,
    /// Shows the list of edits, to read and to undo.
    Audit,
    /// Asks in the last line whether to undo the newest edit.
    Undo,
    /// Starts or stops recording the selected process's calls.
    Trace,
    /// Moves the cursor by this many seconds forward, or back.
    Wind(i64),
    /// Copies the selected process's pid to the clipboard.
    Copy,
    /// Copies the process's row to the clipboard.
    CopyRow,
    /// Copies the whole screen to the clipboard.
    CopyScreen,
    /// Puts the cursor on the next mark (an alert or an edit), or on the one before.
    Alert(i64),
    /// Writes the shown moment to files.
    Export,
    /// Shows the next theme.
    Theme,
    /// Explains why each job is slow, and what would help.
    Why,
    /// Lists every action, to search and to run.
    Commands,
    /// Opens the dialog that sends a signal to the selected process.
    Signal,
    /// Opens the dialog that gives it a higher priority for a while.
    Boost,
    /// Shows every alert in full.
    Alerts,
    /// Shows how the selected process was started, and where its limits come from.
    About,
    /// Shows waits and blockers, or returns to the screen before.
    Waits,
    /// Shows which processes have their memory on the device and which on the host, or returns to the screen before.
    Models,
    /// Switches between the waits of the last seconds and of all time.
    Span,
}

/// The screen on which a key works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The main screen.
    Main,
    /// The screen of one process.
    Detail,
    /// The screen of the waits.
    Waits,
    /// The screen of the models.
    Models,
}

/// A key.
#[derive(Debug)]
pub struct Key {
    codes: &'static [KeyCode],
    control: bool,
    /// The heading above it in the help.
    pub heading: &'static str,
    /// The name of the key on screen; empty for an action that only the search has.
    pub shown: &'static str,
    /// The word in the footer; empty keeps the key out.
    pub label: &'static str,
    /// The line in the help.
    pub about: &'static str,
    /// The action.
    pub action: Action,
    places: &'static [Place],
}

const ANY: &[Place] = &[Place::Main, Place::Detail, Place::Waits, Place::Models];
const LISTS: &[Place] = &[Place::Main, Place::Waits, Place::Models];
const MAIN: &[Place] = &[Place::Main];
const WAITS: &[Place] = &[Place::Waits];
const ALONE: &[Place] = &[Place::Main, Place::Detail];

macro_rules! keys {
    ($($heading:literal: $([$($code:expr),*] $control:literal $shown:literal $label:literal $about:literal $action:expr, $places:expr;)*)*) => {
        /// Every key, in the order of the help; the footer takes those with a label, as many as fit.
        pub static KEYS: &[Key] = &[$($(Key {
            codes: &[$($code),*],
            control: $control,
            heading: $heading,
            shown: $shown,
            label: $label,
            about: $about,
            action: $action,
            places: $places,
        },)*)*];
    };
}

use Action as A;
use KeyCode as K;

keys! {
    "Everywhere":
    [K::Char('?'), K::F(1)]      false "?"     "help"   "this help"                                             A::Help, ANY;
    [K::Char('q')]               false "q"     "quit"   "quit; settings stay in force"                          A::Quit, ANY;
    [K::Esc]                     false "Esc"   ""       "back to the main screen, there to the present; clears a filter" A::Back, ANY;
    [K::Char(':')]               false ":"     "search" "search everything one can do here"                     A::Commands, ANY;

    "Change":
    [K::Char('e')]               false "e"     "quota"  "memory quota of the selected process"                  A::Quota, ANY;
    [K::Char('p')]               false "p"     "policy" "lock policy of this GPU or of all"                     A::Policy, ANY;
    [K::Char('w')]               false "w"     "weight" "weight, priority and cap of the selected process"      A::Share, ANY;
    [K::Char('b')]               false "b"     ""       "boost: a higher priority for a while"                  A::Boost, ANY;
    [K::Char('P')]               false "P"     ""       "pause or resume the selected process; asks"                 A::Pause, ANY;
    [K::Char('E')]               false "E"     ""       "evict the selected process's memory to the host, or let it come back; asks" A::Evict, ANY;
    [K::Char('i')]               false "i"     ""       "pin the selected process's memory to the GPU, or unpin it; asks" A::Pin, ANY;
    [K::Char('K')]               false "K"     ""       "kill the selected process, or send it a signal; asks"  A::Signal, ANY;

    "Understand":
    [K::Char('x')]               false "x"     "why"    "why is it slow? and what would help"                   A::Why, ANY;
    [K::Enter]                   false "Enter" "detail" "everything about the selected process"                 A::Detail, LISTS;
    [K::Char('m')]               false "m"     "waits"  "waits between processes, and hand-off times"           A::Waits, ANY;
    [K::Char('M')]               false "M"     "models" "models: which processes are on the GPU, out, coming in, and their waits" A::Models, ANY;
    [K::Char('!')]               false "!"     "alerts" "all alerts in full, and their remedies by number"     A::Alerts, ANY;
    [K::Char('v')]               false "v"     "env"    "command, environment, and sources of the limits"  A::About, ALONE;
    [K::Char('v')]               false "v"     "span"   "in m: last 20 s or all time"      A::Span, WAITS;
    [K::Char('l')]               false "l"     "events" "other events: notable, all, lock, denials, edits"      A::Events, ANY;
    [K::Char('t')]               false "t"     "trace"  "record driver calls of the selected process, or stop"  A::Trace, ANY;

    "Edits":
    [K::Char('a')]               false "a"     "audit"  "edits so far, and undo"                                A::Audit, ANY;
    [K::Char('u')]               false "u"     "undo"   "undo the newest edit; asks in the last line"           A::Undo, ANY;

    "Choose":
    [K::Tab, K::Char('g')]       false "Tab"   "GPU"    "next GPU"                                              A::Gpu(1), ANY;
    [K::BackTab]                 false "S-Tab" ""       "previous GPU"                                          A::Gpu(-1), ANY;
    [K::Char('0'), K::Char('1'), K::Char('2'), K::Char('3'), K::Char('4'), K::Char('5'), K::Char('6'), K::Char('7'), K::Char('8'), K::Char('9')]
                                 false "0-9"   ""       "the remedy of the alert with this number; else the GPU with it" A::Digit(0), ANY;
    [K::Down, K::Char('j'), K::Char('n')] false "Down j" "" "next process"                                      A::Move(1), ANY;
    [K::Up, K::Char('k'), K::Char('N')]   false "Up k"   "" "previous process"                                  A::Move(-1), ANY;
    [K::PageDown]                false "PgDn"  ""       "ten down"                                              A::Move(10), ANY;
    [K::PageUp]                  false "PgUp"  ""       "ten up"                                                A::Move(-10), ANY;
    [K::Home]                    false "Home"  ""       "first process"                                         A::Move(-9999), ANY;
    [K::End]                     false "End"   ""       "last process"                                          A::Move(9999), ANY;
    [K::Char(' ')]               false "Space" ""       "mark the selected process; e w b P E then mean all marked ones" A::Mark, MAIN;
    [K::Char('*')]               false "*"     ""       "mark all in the list, as the filter leaves it; again: none"  A::MarkAll, MAIN;
    [K::Char('/')]               false "/"     "filter" "filter the list: user=alice used>4G state=wait name~x" A::Filter, MAIN;
    [K::Char('s')]               false "s"     "sort"   "sort by the next column"                               A::Sort(1), MAIN;
    [K::Char('S')]               false "S"     ""       "sort by the previous column"                           A::Sort(-1), MAIN;
    [K::Char('r')]               false "r"     ""       "reverse the order"                                     A::Reverse, MAIN;
    [K::Char('o')]               false "o"     "columns" "columns: sort by one, show it or not"                   A::Columns, MAIN;
    [K::Char('T')]               false "T"     ""       "gather the list by user, group, container, or not"     A::Tree, MAIN;
    [K::Char('-')]               false "-"     ""       "fold the group of the selected process, or unfold it; a folded one is edited as one" A::Fold, MAIN;
    [K::Char('+')]               false "+"     ""       "fold all groups, or unfold them"                       A::FoldAll, MAIN;
    [K::Char('L')]               false "L"     ""       "which processes have lanes: the busiest, those in the list, the marked" A::Lanes, MAIN;
    [K::Char('D')]               false "D"     ""       "scroll the lanes down"                                 A::ScrollLanes(5), MAIN;
    [K::Char('U')]               false "U"     ""       "scroll the lanes up"                                   A::ScrollLanes(-5), MAIN;
    [K::Char('G')]               false "G"     ""       "list the processes of all GPUs, or of this one"        A::AllGpus, MAIN;

    "Time":
    [K::Left]                    false "Left"  "time"   "show the moment before: a cursor in the lanes, with what happened there" A::Pan(1), MAIN;
    [K::Right]                   false "Right" ""       "show the moment after; Esc returns to the present"     A::Pan(-1), MAIN;
    [K::Char('<')]               false "<"     ""       "eight columns of the lanes back"                       A::Pan(8), MAIN;
    [K::Char('>')]               false ">"     ""       "eight columns forward"                                 A::Pan(-8), MAIN;
    [K::Char(',')]               false ","     ""       "10 s back, in the last hour or a recording"            A::Wind(-10), ANY;
    [K::Char('.')]               false "."     ""       "10 s forward"                                          A::Wind(10), ANY;
    [K::Char('(')]               false "("     ""       "5 min back"                                            A::Wind(-300), ANY;
    [K::Char(')')]               false ")"     ""       "5 min forward"                                         A::Wind(300), ANY;
    [K::Char('{')]               false "{"     ""       "back to where the alert or edit before begins"         A::Alert(-1), ANY;
    [K::Char('}')]               false "}"     ""       "on to the next alert or edit"                          A::Alert(1), ANY;
    [K::Char('f')]               false "f"     "freeze" "stop at this moment; again: back to the present, or play on" A::Freeze, ANY;
    [K::Char('z'), K::Char(']')] false "z ]"   "zoom"   "more time in the lanes; so does the wheel, around the cursor" A::Zoom(1), MAIN;
    [K::Char('Z'), K::Char('[')] false "Z ["   ""       "less time in the lanes"                                A::Zoom(-1), MAIN;

    "Copy and write":
    [K::Char('O')]               false "O"     ""       "write this moment as text, JSON, SVG and HTML to this directory" A::Export, ANY;
    [K::Char('y')]               false "y"     ""       "copy the pid of the selected process"                  A::Copy, ANY;
    []                           false ""      ""       "copy the row of the selected process"                  A::CopyRow, ANY;
    []                           false ""      ""       "copy the screen"                                       A::CopyScreen, ANY;

    "Terminal":
    []                           false ""      ""       "next theme: other colours"                             A::Theme, ANY;
    [K::Char('l')]               true  "^L"    ""       "redraw the screen"                                     A::Redraw, ANY;
    [K::Char('z')]               true  "^Z"    ""       "suspend to the shell; fg resumes"                      A::Suspend, ANY;
    [K::Char('c')]               true  "^C"    ""       "quit"                                                  A::Quit, ANY;
}

impl Key {
    /// Reports whether the action is a command with a name, and not a movement.
    pub fn is_command(&self) -> bool {
        !matches!(
            self.action,
            Action::Move(_) | Action::Pan(_) | Action::Digit(_) | Action::Commands
        )
    }

    /// Reports whether the action has a key. Otherwise it is only in the search.
    pub fn has_key(&self) -> bool {
        !self.codes.is_empty()
    }

    /// Reports whether the key works on a screen.
    pub fn works_in(&self, place: Place) -> bool {
        self.places.contains(&place)
    }
}

/// Returns the action of a key on a screen.
pub fn action(event: KeyEvent, place: Place) -> Option<Action> {
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    KEYS.iter()
        .find(|key| {
            key.control == control && key.codes.contains(&event.code) && key.works_in(place)
        })
        .map(|key| match (key.action, event.code) {
            (Action::Digit(_), KeyCode::Char(digit)) => {
                Action::Digit(digit.to_digit(10).map_or(0, |digit| digit as usize))
            }
            (action, _) => action,
        })
}

impl Action {
    /// Reports whether the action changes something outside the screen.
    pub fn is_change(self) -> bool {
        matches!(
            self,
            Action::Quota
                | Action::Share
                | Action::Policy
                | Action::Boost
                | Action::Signal
                | Action::Pause
                | Action::Evict
                | Action::Pin
                | Action::Trace
                | Action::Undo
                | Action::Audit
        )
    }

    /// Returns the action's name in the settings: `sort+1`, `all-gpus`, `quit`.
    pub fn name(self) -> String {
        let shown = format!("{self:?}");
        let (word, number) = match shown.split_once('(') {
            Some((word, number)) => (word, number.trim_end_matches(')')),
            None => (shown.as_str(), ""),
        };
        let mut name = String::new();
        for letter in word.chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        match number.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("{name}+{number}"),
            false => name + number,
        }
    }
}

/// The keys chosen by the user, which replace those of the table.
#[derive(Clone, Debug, Default)]
pub struct Keymap {
    chosen: Vec<(KeyCode, bool, String, Action)>,
}

impl Keymap {
    /// Gives the named action a key, written as `q`, `^x`, `F5` or `Enter`.
    pub fn choose(&mut self, name: &str, written: &str) -> Result<(), String> {
        let key = KEYS
            .iter()
            .find(|key| key.action.name() == name && !is_digit(key.action));
        let action = key.map(|key| key.action).ok_or_else(|| {
            format!("there is no action \"{name}\"; gpushare-top --print-config lists them")
        })?;
        let (code, control) = chord(written).ok_or_else(|| {
            format!("\"{written}\" is no key; write a letter, ^x, F5, Enter, Esc, Tab, S-Tab, Space, Home, End, PgUp, PgDn, Up, Down, Left or Right")
        })?;
        let same = |chosen: &&(KeyCode, bool, String, Action)| {
            (chosen.0, chosen.1) == (code, control) && meet(chosen.3, action)
        };
        if let Some((.., other)) = self.chosen.iter().find(same) {
            return Err(format!("{written} is chosen for {} already", other.name()));
        }
        self.chosen
            .push((code, control, written.to_owned(), action));
        Ok(())
    }

    /// Checks that no key has two meanings.
    pub fn check(&self) -> Result<(), String> {
        for (code, control, written, action) in &self.chosen {
            let mut same = KEYS
                .iter()
                .filter(|key| key.control == *control && key.codes.contains(code));
            let taken = |key: &&Key| {
                !self.is_moved(key.action) && key.action != *action && meet(key.action, *action)
            };
            if let Some(other) = same.find(taken) {
                return Err(format!(
                    "{written} means \"{}\" already; give {} another key too",
                    other.about,
                    other.action.name()
                ));
            }
        }
        Ok(())
    }

    fn is_moved(&self, action: Action) -> bool {
        self.chosen.iter().any(|(.., moved)| *moved == action)
    }

    /// Returns the action of a key on a screen.
    pub fn action(&self, event: KeyEvent, place: Place) -> Option<Action> {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let chosen = self.chosen.iter().find(|(code, wants, _, of)| {
            let here = KEYS
                .iter()
                .any(|key| key.action == *of && key.works_in(place));
            (*code, *wants) == (event.code, control) && here
        });
        if let Some((.., action)) = chosen {
            return Some(*action);
        }
        // ^C always quits, because users try it when they remember no other key.
        let stays = |action: Action| action == Action::Quit && control;
        action(event, place).filter(|action| stays(*action) || !self.is_moved(*action))
    }

    /// Returns the name to print for a key.
    pub fn shown(&self, key: &'static Key) -> String {
        let chosen = self
            .chosen
            .iter()
            .filter(|(.., action)| *action == key.action);
        let chosen: Vec<&str> = chosen.map(|(_, _, written, _)| written.as_str()).collect();
        match chosen.is_empty() {
            true => key.shown.to_owned(),
            false => chosen.join(" "),
        }
    }

    /// Returns the name to print for an action's first key.
    pub fn key_of(&self, action: Action) -> String {
        let key = KEYS.iter().find(|key| key.action == action);
        let shown = key.map_or_else(String::new, |key| self.shown(key));
        shown.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Returns the name to print for the action that has this letter in the table.
    pub fn letter(&self, letter: char) -> String {
        let key = KEYS
            .iter()
            .find(|key| !key.control && key.codes.contains(&KeyCode::Char(letter)));
        match key.filter(|key| self.is_moved(key.action)) {
            Some(key) => self.shown(key),
            None => letter.to_string(),
        }
    }
}

/// Reports whether both actions work on a common screen. If they do not, one key may have both meanings.
fn meet(one: Action, other: Action) -> bool {
    let works = |action: Action, place: &Place| {
        let mut keys = KEYS.iter();
        keys.any(|key| key.action == action && key.places.contains(place))
    };
    let mut places = ANY.iter();
    places.any(|place| works(one, place) && works(other, place))
}

fn is_digit(action: Action) -> bool {
    matches!(action, Action::Digit(_))
}

/// Parses a key as it is written.
pub fn chord(written: &str) -> Option<(KeyCode, bool)> {
    let (name, control) = match written.strip_prefix('^').filter(|rest| !rest.is_empty()) {
        Some(rest) => (rest, true),
        None => (written, false),
    };
    let mut letters = name.chars();
    let code = match (letters.next(), letters.next(), name) {
        (Some(letter), None, _) if !letter.is_control() && letter != ' ' => {
            // ^L and ^l are one key.
            KeyCode::Char(if control {
                letter.to_ascii_lowercase()
            } else {
                letter
            })
        }
        (.., "Space") => KeyCode::Char(' '),
        (.., "Enter") => KeyCode::Enter,
        (.., "Tab") => KeyCode::Tab,
        (.., "S-Tab") => KeyCode::BackTab,
        (.., "Esc") => KeyCode::Esc,
        (.., "PgDn") => KeyCode::PageDown,
        (.., "Home") => KeyCode::Home,
        (.., "End") => KeyCode::End,
        (.., "PgUp") => KeyCode::PageUp,
        (.., "Up") => KeyCode::Up,
        (.., "Down") => KeyCode::Down,
        (.., "Left") => KeyCode::Left,
        (.., "Right") => KeyCode::Right,
        (Some('F'), Some(_), _) => {
            KeyCode::F(name[1..].parse().ok().filter(|n| (1..=12).contains(n))?)
        }
        _ => return None,
    };
    Some((code, control))
}

#[cfg(test)]
mod tests;
