//! The strip: the last hour, or the whole recording, in one line, with its marks and the moment that is shown.

use ratatui::layout::{Position, Rect};

use super::pen::Pen;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::units::short_time;
use gpushare_observe::marks::About;

/// The width of the text at the left.
const LEFT: u16 = 6;
/// The width of the text at the right.
const RIGHT: u16 = 22;
/// A shorter strip is not drawn.
const LEAST: u16 = 20;

/// The position of the strip in its line, and the time that it shows.
struct Strip {
    x: u16,
    width: u16,
    span: [u64; 2],
}

impl Strip {
    fn of(width: u16, state: &State) -> Option<Self> {
        let span = match state.is_played() {
            true => state.span_ns?,
            false => state.reach(),
        };
        let width = width.checked_sub(LEFT + RIGHT)?;
        (width >= LEAST).then_some(Self {
            x: LEFT,
            width,
            span,
        })
    }

    /// Returns the column of a moment.
    fn column(&self, at_ns: u64) -> usize {
        let [first, last] = self.span;
        let whole = u128::from(last.saturating_sub(first).max(1));
        let part = u128::from(at_ns.saturating_sub(first));
        let column = usize::try_from(part * u128::from(self.width) / whole).unwrap_or(usize::MAX);
        column.min(usize::from(self.width) - 1)
    }

    /// Returns the begin of a column.
    fn moment(&self, column: u16) -> u64 {
        let [first, last] = self.span;
        let whole = u128::from(last.saturating_sub(first));
        let part = whole * u128::from(column) / u128::from(self.width);
        first.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let Some(strip) = Strip::of(pen.width(), state).filter(|_| pen.height() > 0) else {
        return;
    };
    let begin = if state.is_played() { " 0s " } else { " -1h " };
    pen.put(1, 0, begin, pen.style(Role::Dim));
    let mut marked = vec![None; strip.width.into()];
    let [first, last] = strip.span;
    for mark in state.marks.within(first..last.saturating_add(1)) {
        let cell: &mut Option<About> = &mut marked[strip.column(mark.at_ns)];
        *cell = Some(cell.map_or(mark.about, |known| known.min(mark.about)));
    }
    for (x, about) in (strip.x..).zip(marked) {
        let (glyph, role) = match about {
            Some(About::Alert) => (pen.glyphs().denied, Role::Bad),
            Some(About::Edit) => (pen.glyphs().edit, Role::Key),
            None => continue,
        };
        pen.glyph(x, 0, glyph, pen.style(role));
    }
    if let Some(at_ns) = shown_ns(state) {
        let column = u16::try_from(strip.column(at_ns)).unwrap_or(0);
        let (up, style) = (pen.glyphs().up, pen.style(Role::Selected));
        pen.glyph(strip.x + column, 0, up, style);
    }
    let (text, role) = position(state);
    let x = strip.x + strip.width;
    pen.put(x, 0, &format!(" {text} "), pen.style(role));
}

/// Returns the moment that is marked: none in the present.
fn shown_ns(state: &State) -> Option<u64> {
    let past = state.past().map(|past| past.at_ns);
    past.or_else(|| state.is_played().then(|| state.live_ns()))
}

/// Describes the position: how far behind the present, or `3m20s of 12m45s`.
fn position(state: &State) -> (String, Role) {
    if let (true, Some([first, last])) = (state.is_played(), state.span_ns) {
        let length = short_time(last.saturating_sub(first));
        let at_ns = shown_ns(state).unwrap_or(first);
        let text = match at_ns.saturating_sub(first) {
            0 => format!("begin of {length}"),
            _ if at_ns >= last => format!("END of {length}"),
            at => format!("{} of {length}", short_time(at)),
        };
        return (text, Role::Title);
    }
    match behind_ns(state) {
        Some(ns) => (behind(ns), Role::Bad),
        None => ("now".to_owned(), Role::Dim),
    }
}

/// Describes how far behind the present the screen is.
pub(super) fn behind(ns: u64) -> String {
    format!("{} behind LIVE", short_time(ns))
}

/// Returns the time by which the shown moment is behind the present; `None` for the present.
pub(super) fn behind_ns(state: &State) -> Option<u64> {
    Some(state.live_ns().saturating_sub(state.moment_ns()?))
}

/// Reports whether a position is on the strip. `area` is its line.
pub(super) fn shows_time(area: Rect, state: &State, x: u16, y: u16) -> bool {
    let columns = Strip::of(area.width, state).map(|strip| strip.x..strip.x + strip.width);
    let column = x.saturating_sub(area.x);
    area.contains(Position::new(x, y)) && columns.is_some_and(|columns| columns.contains(&column))
}

/// Returns the moment in a column of the screen: that of the first mark there, else the begin of the column.
pub(super) fn moment_at(area: Rect, state: &State, x: u16) -> Option<u64> {
    let strip = Strip::of(area.width, state)?;
    let column = x.saturating_sub(area.x + strip.x).min(strip.width - 1);
    let span = strip.moment(column)..strip.moment(column + 1);
    let mark = state.marks.within(span.clone()).first();
    Some(mark.map_or(span.start, |mark| mark.at_ns))
}
