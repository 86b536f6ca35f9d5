//! The difference between two frames: the cells that are to be written.
//!
//! ratatui's own computes the width of every cell of the screen. Nearly all cells stay as they are, and need none.

use ratatui::buffer::{Buffer, Cell};
use unicode_width::UnicodeWidthStr as _;

/// Returns the cells of a frame that differ from the frame before, each with its column and line. Both frames have the same
/// area, which begins at the terminal's first cell.
///
/// Terminals differ in what a wide letter leaves behind, so from the first that comes or goes on, all of its line is returned.
pub(super) fn changes<'f>(before: &Buffer, now: &'f Buffer) -> Vec<(u16, u16, &'f Cell)> {
    let mut changes = Vec::new();
    let width = usize::from(now.area.width).max(1);
    let lines = before.content.chunks(width).zip(now.content.chunks(width));
    for (y, (before, now)) in (0..).zip(lines) {
        let mut is_unsure = false;
        for (x, (before, cell)) in (0..).zip(before.iter().zip(now)) {
            if !is_unsure && is_alike(before, cell) {
                continue;
            }
            is_unsure |= columns(before) > 1 || columns(cell) > 1;
            if !is_covered(now, x) {
                changes.push((x as u16, y, cell));
            }
        }
    }
    changes
}

/// Reports whether two cells look the same.
fn is_alike(one: &Cell, other: &Cell) -> bool {
    one.fg == other.fg
        && one.bg == other.bg
        && one.modifier == other.modifier
        && one.symbol() == other.symbol()
}

/// Reports whether a cell is the second half of a wide letter, which is no cell of the terminal. Such a cell is blank.
fn is_covered(line: &[Cell], x: usize) -> bool {
    line[x].symbol() == " " && (1..=x.min(2)).any(|back| columns(&line[x - back]) > back)
}

fn columns(cell: &Cell) -> usize {
    match cell.symbol().as_bytes() {
        // ASCII, and the lines and blocks of charts, U+2500 to U+25BF.
        [_] | [0xe2, 0x94..=0x96, _] => 1,
        _ => cell.symbol().width(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::backend::{Backend as _, TestBackend};
    use ratatui::layout::Rect;
    use ratatui::style::{Color, Style};

    use super::*;

    /// Returns the frame that a terminal shows after it has shown `first`.
    fn shown_after(first: &Buffer, then: &Buffer) -> (Buffer, usize) {
        let mut terminal = TestBackend::new(then.area.width, then.area.height);
        let blank = Buffer::empty(then.area);
        terminal.draw(changes(&blank, first).into_iter()).unwrap();
        terminal.draw(changes(first, then).into_iter()).unwrap();
        (terminal.buffer().clone(), changes(first, then).len())
    }

    #[test]
    fn only_the_cells_that_differ_are_written() {
        let first = Buffer::with_lines(["A hold 12%", "B wait 40%"]);
        let mut then = Buffer::with_lines(["A hold 13%", "B wait 40%"]);
        then.set_style(Rect::new(0, 1, 1, 1), Style::new().fg(Color::Red));
        let (shown, written) = shown_after(&first, &then);
        assert_eq!((shown, written), (then, 2));
    }

    #[test]
    fn a_wide_letter_that_comes_or_goes_takes_the_rest_of_its_line_with_it() {
        let narrow = Buffer::with_lines(["ab cd", "ef gh"]);
        let wide = Buffer::with_lines(["語 cd", "ef gh"]);
        for (first, then) in [(&narrow, &wide), (&wide, &narrow)] {
            let written = changes(first, then).into_iter();
            let written: Vec<_> = written.map(|(x, y, _)| (x, y)).collect();
            let all = (0..5).map(|x| (x, 0));
            let is_cell = |place: &(u16, u16)| *place != (1, 0) || std::ptr::eq(then, &narrow);
            assert_eq!(written, all.filter(is_cell).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_second_half_of_a_wide_letter_is_never_written() {
        let first = Buffer::with_lines(["語x"]);
        let mut then = first.clone();
        then.set_style(Rect::new(1, 0, 1, 1), Style::new().bg(Color::Red));
        assert_eq!(changes(&first, &then).len(), 0);
    }
}
