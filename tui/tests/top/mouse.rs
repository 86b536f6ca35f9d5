//! Dragging the mark of a quota with the mouse.

use gpushare_top::app::{self, Next};
use gpushare_top::overlay::Overlay;
use gpushare_top::state::{Grip, Pulled, State};
use gpushare_top::view;
use ratatui::layout::Rect;

use crate::hands::{notice, title};
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
fn nothing_is_pulled_on_other_screens() {
    let mut state = state();
    crate::hands::press(&mut state, "\n\n");
    let places = (0..AREA.height).flat_map(|y| (0..AREA.width).map(move |x| (x, y)));
    let grips = places.filter_map(|(x, y)| view::grip(AREA, &state, x, y));
    assert_eq!(grips.count(), 0);
}
