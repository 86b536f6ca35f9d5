//! Dragging with the mouse: the mark of a quota, and the time axis of the lanes.

use gpushare_top::app::{self, Next};
use gpushare_top::overlay::Overlay;
use gpushare_top::state::{Grip, Pulled, State};
use gpushare_top::view;
use ratatui::layout::Rect;

use crate::hands::{S, notice, screen, title};
use crate::support::state;

const AREA: Rect = Rect::new(0, 0, 120, 40);

/// Returns the first position at which the mouse can drag such an object.
fn found(state: &State, wanted: impl Fn(Grip) -> bool) -> (Grip, u16) {
    let places = (0..AREA.height).flat_map(|y| (0..AREA.width).map(move |x| (x, y)));
    let mut grips = places.filter_map(|(x, y)| Some((view::grip(AREA, state, x, y)?, x)));
    grips.find(|(grip, _)| wanted(*grip)).expect("a grip")
}

#[test]
fn a_quota_that_is_pulled_is_asked_for_in_its_dialog() {
    let mut state = state();
    let (grip, x) = found(&state, |grip| matches!(grip, Grip::Quota(..)));
    let Grip::Quota(who, gpu) = grip else {
        unreachable!("by the search")
    };
    assert_eq!(view::pulled(AREA, &state, grip, x), None, "only pressed");
    let bytes = |to: u16| match view::pulled(AREA, &state, grip, to) {
        Some(Pulled::Quota(of, on, bytes)) if (of, on) == (who, gpu) => bytes,
        other => panic!("{other:?}"),
    };
    let (near, far) = (bytes(x + 4), bytes(x + 8));
    let now = state
        .data()
        .process(who)
        .unwrap()
        .on(gpu)
        .unwrap()
        .quota
        .bytes;
    assert!(Some(near) > now && far > near, "{now:?} {near} {far}");
    let pulled = view::pulled(AREA, &state, grip, x + 8);
    app::pull(&mut state, pulled);
    assert!(
        notice(&state).contains("let go to set it"),
        "{}",
        notice(&state)
    );
    assert!(state.overlay.is_none());
    assert!(matches!(app::let_go(&mut state, pulled), Next::Continue));
    assert!(
        title(&state).starts_with("Memory quota"),
        "{}",
        title(&state)
    );
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("no dialog")
    };
    let written = dialog.fields[0].value();
    assert_eq!(written, gpushare_base::text::units::format_size(far));
}

#[test]
fn the_time_line_is_pulled_and_pressed_to_go_to_a_moment() {
    let mut state = state();
    let (grip, x) = found(&state, |grip| matches!(grip, Grip::Time(_)));
    let to = |x: u16| match view::pulled(AREA, &state, grip, x) {
        Some(Pulled::Time(ns)) => ns,
        other => panic!("{other:?}"),
    };
    let column = state.choices.column_ns(state.data()) as i64;
    assert_eq!(
        to(x + 4),
        -4 * column,
        "what is pulled to the right is earlier"
    );
    // The left edge is as old as the title says.
    let oldest = to(x);
    assert!(oldest < -5 * S as i64, "{oldest}");
    assert!(screen(&state).contains("Lock lanes"));
    let pulled = view::pulled(AREA, &state, grip, x + 4);
    app::pull(&mut state, pulled);
    assert_eq!(notice(&state), "1.0s back");
    assert!(matches!(app::let_go(&mut state, pulled), Next::Wind(ns) if ns == -4 * column));
}

#[test]
fn nothing_is_pulled_on_other_screens() {
    let mut state = state();
    crate::hands::press(&mut state, "\n\n");
    let places = (0..AREA.height).flat_map(|y| (0..AREA.width).map(move |x| (x, y)));
    let grips = places.filter_map(|(x, y)| view::grip(AREA, &state, x, y));
    assert_eq!(grips.count(), 0);
}
