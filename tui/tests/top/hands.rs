//! What the tests of keys share: hands on the keyboard and eyes on the screen.

use crossterm::event::{KeyCode, KeyEvent};
use gpushare_tui::sample::Who;
use gpushare_tui::top::app::{self, Next};
use gpushare_tui::top::overlay::Overlay;
use gpushare_tui::top::state::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::support::look;

pub fn press(state: &mut State, keys: &str) -> Next {
    let mut next = Next::Continue;
    for letter in keys.chars() {
        next = app::key(state, KeyEvent::from(code(letter)));
    }
    next
}

/// Presses one key.
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

/// What lies over the screen, by its title.
pub fn title(state: &State) -> &str {
    match &state.overlay {
        Some(Overlay::Dialog(dialog)) => &dialog.title,
        Some(Overlay::Question(question)) => &question.title,
        _ => "",
    }
}

pub fn screen(state: &State) -> String {
    let area = Rect::new(0, 0, 120, 40);
    let mut buffer = Buffer::empty(area);
    gpushare_tui::top::view::draw_into(&mut buffer, area, state, &look(false));
    let line = |y| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
    (0..area.height)
        .map(line)
        .collect::<Vec<String>>()
        .join("\n")
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

/// A second.
pub const S: u64 = 1_000_000_000;
