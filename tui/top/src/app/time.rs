//! The actions that choose the moment on the screen.

use super::{Next, say};
use crate::keys::Action;
use crate::state::State;

const S: i64 = 1_000_000_000;

/// Moves the cursor by this many columns of the lanes, into the past if positive.
pub(super) fn move_by_columns(state: &mut State, columns: i64) -> Next {
    let column_ns = state.choices.column_ns(state.around());
    let now_ns = state.live_ns() / column_ns * column_ns;
    let from_ns = state.cursor().map_or(now_ns, |cursor| cursor.start);
    let by_ns = columns.saturating_mul(i64::try_from(column_ns).unwrap_or(i64::MAX));
    go_to(state, from_ns.saturating_add_signed(by_ns.saturating_neg()))
}

/// Moves the cursor by this many seconds forward, or back.
pub(super) fn move_by(state: &mut State, seconds: i64) -> Next {
    let from_ns = state.past().map_or(state.live_ns(), |past| past.at_ns);
    go_to(
        state,
        from_ns.saturating_add_signed(seconds.saturating_mul(S)),
    )
}

/// Puts the cursor on the next mark, or on the one before.
pub(super) fn jump(state: &mut State, by: i64) -> Next {
    let now_ns = state.live_ns();
    let cursor = state.cursor().unwrap_or(now_ns..now_ns.saturating_add(1));
    let mark = match by < 0 {
        true => state.marks.before(cursor.start),
        false => state.marks.from(cursor.end),
    };
    if let Some(at_ns) = mark.map(|mark| mark.at_ns) {
        return go_to(state, at_ns);
    }
    let place = if by < 0 { "before" } else { "after" };
    let more = match state.is_reading {
        true => "; the recording is still being read",
        false => "",
    };
    let text = format!("no alert begins and no edit was made {place} this moment{more}");
    say(state, &text, false);
    // The marks of the last hour are read as soon as a moment of it is shown.
    if by < 0 && !state.is_past() {
        state.stop();
    }
    Next::Continue
}

/// Puts the cursor on a moment. At the end of what can be shown it returns to the present.
pub(super) fn go_to(state: &mut State, at_ns: u64) -> Next {
    let [first, last] = state.reach();
    let text = match (state.is_played(), at_ns >= last) {
        (false, true) => {
            say(state, "this is the present", false);
            return resume(state);
        }
        (true, true) => "this is the end of the recording",
        (true, false) if at_ns < first => "this is the beginning of the recording",
        (false, false) if at_ns < first => "nothing older than an hour is shown",
        _ => "",
    };
    state.look_at(at_ns);
    if !text.is_empty() {
        say(state, text, false);
    }
    Next::Continue
}

/// Reports whether the present is shown. Otherwise the last line says that a remedy of then is not for now.
pub(super) fn is_present(state: &mut State) -> bool {
    if state.is_past() {
        let key = state.choices.keymap.key_of(Action::Freeze);
        let text = format!("this remedy is of a moment of the past; {key} returns to the present");
        say(state, &text, true);
    }
    !state.is_past()
}

/// Returns to the present, or plays the recording on from the moment that is shown.
pub(super) fn resume(state: &mut State) -> Next {
    let is_played = state.is_played();
    let now_ns = state.live_ns();
    match state.resume() {
        Some(at_ns) if is_played && at_ns != now_ns => Next::PlayFrom(at_ns),
        _ => Next::Continue,
    }
}
