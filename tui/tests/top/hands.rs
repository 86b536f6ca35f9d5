//! Shared parts of the tests of keys: pressing keys and reading the screen.

use crossterm::event::{KeyCode, KeyEvent};
use gpushare_sample::Who;
use gpushare_top::app::{self, Next};
use gpushare_top::overlay::Overlay;
use gpushare_top::screencast;
use gpushare_top::state::State;

use crate::support::look;

pub fn press(state: &mut State, keys: &str) -> Next {
    let mut next = Next::Continue;
    for letter in keys.chars() {
        next = app::key(state, KeyEvent::from(code(letter)));
    }
    next
}

pub fn tap(state: &mut State, key: KeyCode) -> Next {
    app::key(state, KeyEvent::from(key))
}

fn code(letter: char) -> KeyCode {
    match letter {
        '\n' => KeyCode::Enter,
        '\t' => KeyCode::Tab,
        '\x1b' => KeyCode::Esc,
        '\x08' => KeyCode::Backspace,
        letter => KeyCode::Char(letter),
    }
}

pub fn notice(state: &State) -> &str {
    state.choices.notice.as_ref().map_or("", |said| &said.text)
}

pub fn title(state: &State) -> &str {
    match &state.overlay {
        Some(Overlay::Dialog(dialog)) => &dialog.title,
        Some(Overlay::Question(question)) => &question.title,
        _ => "",
    }
}

pub fn screen(state: &State) -> String {
    lines(state, (120, 40), false).join("\n")
}

/// Returns a screen of this size, line by line.
pub fn lines(state: &State, size: (u16, u16), ascii: bool) -> Vec<String> {
    let frame = screencast::frame(state, &look(ascii), size);
    let line = |y| (0..size.0).map(|x| frame[(x, y)].symbol()).collect();
    (0..size.1).map(line).collect()
}

/// Selects the process with this name on the shown device.
pub fn select(state: &mut State, name: &str) {
    let found = state
        .data()
        .sample
        .processes
        .iter()
        .find(|p| p.name() == name);
    state.choices.selected = found.map(Who::of);
    assert!(state.choices.selected.is_some(), "{name}");
}

pub const S: u64 = 1_000_000_000;
