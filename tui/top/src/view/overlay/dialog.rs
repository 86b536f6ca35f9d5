//! The drawing of a dialog: the present values, the fields, the checks, the buttons, and the progress of the edit.

use std::cmp::Reverse;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tui_input::Input;

use crate::dialog::{Check, Control, Dialog, Field, Progress, Subject, Verdict};
use crate::palette::Role;
use crate::state::State;
use crate::view::{Look, layout, pen::Pen, what_if, wrapped};

const WIDTH: u16 = 92;
/// The column where the inputs begin.
const LABEL: u16 = 13;
/// The column where sentences begin.
const SENTENCE: u16 = 6;
const INPUT: u16 = 12;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, dialog: &Dialog) {
    let data = state.data();
    let mut checks = dialog.checks(data);
    let foreseen = dialog.what_if(data);
    let width = area.width.min(WIDTH).saturating_sub(SENTENCE + 2);
    let lines = |checks: &[Check]| -> Vec<(Option<Verdict>, String)> {
        let of = |check: &Check| {
            let words = wrapped(&check.text, width).into_iter().enumerate();
            let verdict = check.verdict;
            words.map(move |(at, text)| ((at == 0).then_some(verdict), text))
        };
        checks.iter().flat_map(of).collect()
    };
    let wanted = |checks: &[Check]| 8 + dialog.fields.len() + lines(checks).len().max(3);
    let ghosts = foreseen
        .as_ref()
        .map_or(0, |(_, foreseen)| what_if::height(foreseen));
    let has_room = wanted(&checks) + ghosts <= area.height.into();
    if let Some((gpu, foreseen)) = foreseen.as_ref().filter(|_| !has_room) {
        checks.push(what_if::in_words(data, *gpu, foreseen));
    }
    let ghosts = if has_room { ghosts } else { 0 };
    let told = lines(&checks).len();
    let wanted = wanted(&checks) + ghosts;
    let height = u16::try_from(wanted).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, WIDTH, height), &look.palette);
    let mut inside = pen.dialog(&dialog.title);

    // A small screen drops the blank lines first, then the present values, then the checks that do not fit; never the
    // buttons.
    let gap = u16::from(inside.height() >= height.saturating_sub(2));
    let all = dialog.fields.len() + told + 1 + BOTTOM;
    let cut = usize::from(inside.height()) < all;
    let mut y = 0;
    if !cut || usize::from(inside.height()) >= SMALL {
        inside.put(1, 0, "Now", inside.style(Role::Dim));
        inside.words(SENTENCE, 0, &dialog.now(data), inside.style(Role::Text));
        y = 1;
    }
    let room = usize::from(inside.height()).saturating_sub(BOTTOM + usize::from(y));
    if cut {
        checks.sort_by_key(|check| Reverse(check.verdict));
    }
    let all = dialog.fields.len();
    let (shown, left) = match cut {
        true => {
            let shown = room.saturating_sub(told.min(2)).max(1).min(all);
            (shown, room.saturating_sub(shown))
        }
        false => (all, told),
    };
    fields(&mut inside, y, dialog, shown);
    y += shown as u16 + gap;
    for (verdict, text) in lines(&checks).iter().take(left) {
        check(&mut inside, y, *verdict, text);
        y += 1;
    }
    if let Some((gpu, foreseen)) = foreseen.filter(|_| has_room) {
        let mut rest = inside.area;
        (rest.y, rest.height) = (rest.y + y, u16::try_from(ghosts).unwrap_or(0));
        what_if::draw(&mut inside.part(rest), state, gpu, &foreseen);
        y += rest.height;
    }
    y += gap;
    if cut {
        y = inside.height().saturating_sub(2);
    }
    buttons(&mut inside, y, dialog, state.choices.read_only);
    progress(&mut inside, y + 1 + gap, dialog, state);
}

/// Number of lines for the buttons and the progress.
const BOTTOM: usize = 2;
/// With fewer lines than this the present values are left out.
const SMALL: usize = 10;

/// The position of the cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Focus {
    /// In another field.
    Elsewhere,
    /// In this field; the first input replaces its value.
    Whole,
    /// In this field, at the position of the input.
    Cursor,
}

/// Draws `shown` of the fields, with the focused one among them.
fn fields(pen: &mut Pen<'_>, y: u16, dialog: &Dialog, shown: usize) {
    let last = dialog.fields.len().saturating_sub(1);
    let first = (dialog.focus.min(last) + 1).saturating_sub(shown);
    let fields = dialog.fields.iter().enumerate().skip(first).take(shown);
    for ((at, line), y) in fields.zip(y..) {
        let focus = match (at == dialog.focus, dialog.fresh) {
            (false, _) => Focus::Elsewhere,
            (true, true) => Focus::Whole,
            (true, false) => Focus::Cursor,
        };
        field(pen, y, line, focus);
    }
}

fn field(pen: &mut Pen<'_>, y: u16, field: &Field, focus: Focus) {
    let focused = focus != Focus::Elsewhere;
    let role = if focused { Role::Title } else { Role::Dim };
    pen.put(1, y, field.label, pen.style(role));
    match &field.control {
        Control::Text(input) => {
            let width = if field.label == "Reason" { 40 } else { INPUT };
            let width = width.min(pen.width().saturating_sub(LABEL + 3));
            text(pen, y, input, width, focus);
            pen.words(LABEL + width + 4, y, &field.note, pen.style(Role::Dim));
        }
        Control::Choice { options, at } => {
            let mut x = LABEL;
            let wanted: usize = options.iter().map(|word| word.chars().count() + 7).sum();
            // If not all words fit, the chosen one and its position are shown.
            let all = wanted <= usize::from(pen.width().saturating_sub(LABEL)) + 3;
            for (option, word) in options.iter().enumerate() {
                let chosen = option == *at;
                if !all && !chosen {
                    continue;
                }
                let mark = if chosen { "(x) " } else { "( ) " };
                let role = match (chosen, focused) {
                    (true, true) => Role::Selected,
                    (true, false) => Role::Text,
                    (false, _) => Role::Dim,
                };
                x = pen.put(x, y, &format!("{mark}{word}"), pen.style(role)) + 3;
            }
            let note = match all {
                true => field.note.clone(),
                false => format!("{} of {}", at + 1, options.len()),
            };
            pen.put(x, y, &note, pen.style(Role::Dim));
        }
    }
}

fn text(pen: &mut Pen<'_>, y: u16, input: &Input, width: u16, focus: Focus) {
    let scroll = input.visual_scroll(usize::from(width));
    let shown: String = input.value().chars().skip(scroll).collect();
    pen.put(LABEL, y, "[", pen.style(Role::Dim));
    pen.put_within(LABEL + 2, y, &shown, width, pen.style(Role::Text));
    pen.put(LABEL + width + 2, y, "]", pen.style(Role::Dim));
    if focus == Focus::Whole && !shown.is_empty() {
        pen.put_within(LABEL + 2, y, &shown, width, pen.style(Role::Selected));
    } else if focus != Focus::Elsewhere {
        let at = input.visual_cursor().saturating_sub(scroll);
        let under = shown.chars().nth(at).unwrap_or(' ');
        let x = LABEL + 2 + u16::try_from(at).unwrap_or(0).min(width);
        pen.put(x, y, &under.to_string(), pen.style(Role::Selected));
    }
}

fn check(pen: &mut Pen<'_>, y: u16, verdict: Option<Verdict>, text: &str) {
    if let Some(verdict) = verdict {
        let (word, role) = match verdict {
            Verdict::Good => ("ok", Role::Good),
            Verdict::Warn => ("warn", Role::Warn),
            Verdict::Bad => ("no", Role::Bad),
        };
        pen.put(1, y, word, pen.style(role));
    }
    pen.words(SENTENCE, y, text, pen.style(Role::Text));
}

fn buttons(pen: &mut Pen<'_>, y: u16, dialog: &Dialog, read_only: bool) {
    let names = ["< Apply >", "< Cancel >"];
    let mut x = LABEL;
    for (at, name) in names.into_iter().enumerate() {
        let role = match dialog.focus == dialog.apply_at() + at {
            true => Role::Selected,
            false if at == 0 && read_only => Role::Dim,
            false => Role::Text,
        };
        x = pen.put(x, y, name, pen.style(role)) + 2;
    }
    let help = match read_only {
        true => "read-only: nothing can be changed",
        false => "Enter apply   Tab next   arrows choose   Esc",
    };
    pen.hint(x + 1, y, help, pen.style(Role::Dim));
}

fn progress(pen: &mut Pen<'_>, y: u16, dialog: &Dialog, state: &State) {
    let is_signal = matches!(dialog.subject, Subject::Signal(_));
    let (text, role) = match &dialog.progress {
        Progress::Editing if is_signal => (
            "a signal cannot be undone; the audit log has it".into(),
            Role::Dim,
        ),
        Progress::Editing => (
            format!(
                "will be generation {}, applied at the next call",
                state.data().sample.generation.saturating_add(1)
            ),
            Role::Dim,
        ),
        Progress::Sent => ("sent …".into(), Role::Dim),
        Progress::Waiting(missing) => (
            format!("in force; not yet applied by {missing}"),
            Role::Warn,
        ),
        Progress::Failed(why) => (why.clone(), Role::Bad),
    };
    pen.words(1, y, &text, pen.style(role));
}
