//! A pen that writes into one part of the frame and never outside it.

use std::borrow::Cow;
use std::sync::LazyLock;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use unicode_width::UnicodeWidthStr;

use crate::palette::{Glyphs, Palette, Role};
use gpushare_base::text::plain::plain;

/// The maximum width of a name.
pub(super) const WIDEST_NAME: u16 = 28;

/// A pen with the coordinates of `area`; text outside is not written.
pub(super) struct Pen<'a> {
    buffer: &'a mut Buffer,
    pub(super) area: Rect,
    pub(super) palette: &'a Palette,
    /// Set if its panes have no frame.
    open: bool,
}

impl<'a> Pen<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect, palette: &'a Palette) -> Self {
        let area = area.intersection(buffer.area);
        Self {
            buffer,
            area,
            palette,
            open: false,
        }
    }

    /// Sets whether panes have a heading and no frame, for a small screen.
    pub(super) fn opened(mut self, open: bool) -> Self {
        self.open = open;
        self
    }

    /// Returns the inside of a pane drawn by this pen.
    pub(super) fn inside(&self) -> Rect {
        inside(self.area, self.open)
    }

    /// Reborrows the pen.
    pub(super) fn reborrow<'b>(pen: &'b mut Pen<'_>) -> Pen<'b> {
        Pen::new(pen.buffer, pen.area, pen.palette)
    }

    /// Returns the pen for another part of the same frame.
    pub(super) fn part(&mut self, area: Rect) -> Pen<'_> {
        Pen::new(self.buffer, area, self.palette)
    }

    pub(super) fn width(&self) -> u16 {
        self.area.width
    }

    pub(super) fn height(&self) -> u16 {
        self.area.height
    }

    pub(super) fn glyphs(&self) -> &'static Glyphs {
        self.palette.glyphs
    }

    pub(super) fn style(&self, role: Role) -> Style {
        self.palette.style(role)
    }

    /// Writes `text` and returns the column behind it.
    pub(super) fn put(&mut self, x: u16, y: u16, text: &str, style: impl Into<Style>) -> u16 {
        self.put_within(x, y, text, u16::MAX, style)
    }

    /// Writes `text` in at most `width` columns and returns the column behind it; a mark shows where text was cut off.
    pub(super) fn put_within(
        &mut self,
        x: u16,
        y: u16,
        text: &str,
        width: u16,
        style: impl Into<Style>,
    ) -> u16 {
        if y >= self.area.height || x >= self.area.width {
            return x;
        }
        // A name may hold characters that are invisible or that control the terminal.
        let text = &*plain(text);
        let bare;
        let text = match self.palette.glyphs.full.is_ascii() && !text.is_ascii() {
            true => {
                bare = text.replace(|letter: char| !letter.is_ascii(), "?");
                &*bare
            }
            false => text,
        };
        let room = (self.area.width - x).min(width);
        let (left, top) = (self.area.x + x, self.area.y + y);
        let style = style.into();
        let (end, fits) = match text.is_ascii() {
            // Nearly all text is ASCII, where each byte takes a column.
            true => {
                let ground = ground(style);
                let line = self.line(x, y).iter_mut().take(room.into());
                for (cell, byte) in line.zip(text.bytes()) {
                    write(cell, &ASCII[usize::from(byte)], &ground);
                }
                let width = u16::try_from(text.len()).unwrap_or(u16::MAX);
                (left + width.min(room), width <= room)
            }
            false => {
                let whole = Style::reset().patch(style);
                let (end, _) = self.buffer.set_stringn(left, top, text, room.into(), whole);
                (end, columns(text) <= usize::from(room))
            }
        };
        if room > 1 && !fits {
            self.glyph(x + room - 1, y, self.palette.glyphs.cut, style);
        }
        end - self.area.x
    }

    /// Writes a sentence; what does not fit is left out word by word.
    pub(super) fn words(&mut self, x: u16, y: u16, text: &str, style: impl Into<Style>) -> u16 {
        self.words_within(x, y, text, u16::MAX, style)
    }

    /// Writes a sentence in at most `width` columns; what does not fit is left out word by word.
    pub(super) fn words_within(
        &mut self,
        x: u16,
        y: u16,
        text: &str,
        width: u16,
        style: impl Into<Style>,
    ) -> u16 {
        let room = self.area.width.saturating_sub(x).min(width);
        let room = usize::from(room);
        let mut kept = text;
        let mut shown = Cow::from(text);
        while columns(&shown) > room
            && let Some((before, _)) = kept.rsplit_once(' ')
        {
            kept = before;
            shown = format!("{} {}", kept.trim_end(), self.palette.glyphs.cut).into();
        }
        self.put_within(x, y, &shown, width, style)
    }

    /// Writes the keys of a dialog. Of the parts, which three blanks separate, the last one stays, and others are left out
    /// whole.
    pub(super) fn hint(&mut self, x: u16, y: u16, keys: &str, style: impl Into<Style>) -> u16 {
        const GAP: &str = "   ";
        let mut parts: Vec<&str> = keys.split(GAP).collect();
        let room = usize::from(self.area.width.saturating_sub(x));
        while parts.len() > 1 && columns(&parts.join(GAP)) > room {
            parts.remove(parts.len() - 2);
        }
        let kept = parts.join(GAP);
        match columns(&kept) <= room {
            true => self.put(x, y, &kept, style),
            false => x,
        }
    }

    /// Writes a name in at most `width` columns. A long one is cut in the middle, because names differ at their ends.
    pub(super) fn name(
        &mut self,
        x: u16,
        y: u16,
        name: &str,
        width: u16,
        style: impl Into<Style>,
    ) -> u16 {
        let room = width.min(self.area.width.saturating_sub(x));
        let short = self.short(name, room);
        self.put_within(x, y, &short, width, style)
    }

    /// Returns a name that takes at most `width` columns, cut in the middle.
    pub(super) fn short<'n>(&self, name: &'n str, width: u16) -> Cow<'n, str> {
        let width = usize::from(width);
        if columns(name) <= width {
            return name.into();
        }
        let kept = width.saturating_sub(1);
        let begin = within(name.chars(), kept - kept / 2);
        let end = within(name.chars().rev(), kept / 2);
        let end: String = end.chars().rev().collect();
        format!("{begin}{}{end}", self.palette.glyphs.cut).into()
    }

    /// Returns the cells of a line from a column on.
    fn line(&mut self, x: u16, y: u16) -> &mut [Cell] {
        if x >= self.area.width || y >= self.area.height {
            return &mut [];
        }
        let width = usize::from(self.area.width - x);
        let whole = self.buffer.area;
        let above = usize::from(self.area.y + y - whole.y) * usize::from(whole.width);
        let start = above + usize::from(self.area.x + x - whole.x);
        let cells = self.buffer.content.get_mut(start..start + width);
        cells.unwrap_or_default()
    }

    /// Writes one glyph of one column. It is fast, because charts consist of thousands of glyphs.
    pub(super) fn glyph(&mut self, x: u16, y: u16, glyph: &'static str, style: Style) {
        self.fill(x, y, 1, glyph, style);
    }

    /// Writes the same glyph in `count` columns.
    pub(super) fn fill(&mut self, x: u16, y: u16, count: u16, glyph: &'static str, style: Style) {
        let (glyph, ground) = (Cell::new(glyph), ground(style));
        let line = self.line(x, y).iter_mut().take(count.into());
        line.for_each(|cell| write(cell, &glyph, &ground));
    }

    /// Writes `text` so that it ends at column `end`.
    pub(super) fn put_before(&mut self, end: u16, y: u16, text: &str, style: impl Into<Style>) {
        let width = u16::try_from(columns(&plain(text))).unwrap_or(u16::MAX);
        match end.checked_sub(width) {
            Some(x) => self.put(x, y, text, style),
            None => self.put_within(0, y, text, end, style),
        };
    }

    /// Writes several pieces one behind the other and returns the column behind them.
    pub(super) fn pieces(&mut self, mut x: u16, y: u16, pieces: &[(&str, Role)]) -> u16 {
        for (text, role) in pieces {
            x = self.put(x, y, text, self.palette.style(*role));
        }
        x
    }

    /// Applies a style to one whole line.
    pub(super) fn mark_line(&mut self, y: u16, style: Style) {
        if y < self.area.height {
            let line = Rect::new(self.area.x, self.area.y + y, self.area.width, 1);
            self.buffer.set_style(line, style);
        }
    }

    /// Makes one whole column stand out.
    pub(super) fn mark_column(&mut self, x: u16) {
        if x < self.area.width {
            let column = Rect::new(self.area.x + x, self.area.y, 1, self.area.height);
            let style = self.palette.style(Role::Selected);
            self.buffer.set_style(column, style);
        }
    }

    /// Draws a pane with a frame and a heading; returns the pen for its inside. `note` stands at the right of the
    /// heading.
    pub(super) fn pane(&mut self, title: &str, note: &str) -> Pen<'_> {
        if self.open {
            let (line, border) = (self.palette.glyphs.frame.horizontal_top, Role::Border);
            let style = self.style(border);
            self.fill(0, 0, u16::MAX, line, style);
            self.heading(title, note);
            return Pen::new(self.buffer, self.inside(), self.palette);
        }
        self.framed(title, note, self.palette.glyphs.frame, Role::Border)
    }

    /// Draws a dialog with a frame and a heading, on a cleared background; returns the pen for its inside. A heading that does not
    /// fit has its names cut, not what follows them.
    pub(super) fn dialog(&mut self, title: &str) -> Pen<'_> {
        for position in self.area.positions() {
            self.buffer[position].reset();
        }
        let short = |word| self.short(word, WIDEST_NAME);
        let title = match columns(title) + 6 <= usize::from(self.width()) {
            true => title.to_owned(),
            false => title.split(' ').map(short).collect::<Vec<_>>().join(" "),
        };
        self.framed(&title, "", self.palette.glyphs.dialog, Role::Text)
    }

    fn framed(
        &mut self,
        title: &str,
        note: &str,
        set: border::Set<'static>,
        role: Role,
    ) -> Pen<'_> {
        let style = self.style(role);
        let (right, bottom) = (
            self.width().saturating_sub(1),
            self.height().saturating_sub(1),
        );
        for y in 0..self.height() {
            self.glyph(0, y, set.vertical_left, style);
            self.glyph(right, y, set.vertical_right, style);
        }
        for (y, [left, line, end]) in [
            (
                bottom,
                [set.bottom_left, set.horizontal_bottom, set.bottom_right],
            ),
            (0, [set.top_left, set.horizontal_top, set.top_right]),
        ] {
            self.fill(0, y, u16::MAX, line, style);
            self.glyph(0, y, left, style);
            self.glyph(right, y, end, style);
        }
        let inside = inside(self.area, false);
        self.heading(title, note);
        Pen::new(self.buffer, inside, self.palette)
    }

    /// Draws a pane's heading in the line of its frame.
    fn heading(&mut self, title: &str, note: &str) {
        let width = self.area.width;
        if width > 4 && self.area.height > 0 {
            let end = self.put_within(
                2,
                0,
                &format!(" {title} "),
                width - 4,
                self.palette.style(Role::Title),
            );
            let room = width.saturating_sub(end + 2);
            if !note.is_empty() && columns(note) + 2 <= usize::from(room) {
                self.put_before(
                    width - 2,
                    0,
                    &format!(" {note} "),
                    self.palette.style(Role::Dim),
                );
            }
        }
    }
}

/// Returns the first letters that fit in `width` columns.
fn within(letters: impl Iterator<Item = char>, width: usize) -> String {
    let mut text = String::new();
    for letter in letters {
        text.push(letter);
        if columns(&text) > width {
            text.pop();
            break;
        }
    }
    text
}

/// Returns the number of columns that a text takes.
fn columns(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.width(),
    }
}

/// A cell of each ASCII character: a frame has thousands, and a copy costs half of what making the symbol does.
static ASCII: LazyLock<Vec<Cell>> =
    LazyLock::new(|| (0..128_u8).map(|byte| char::from(byte).into()).collect());

/// Writes a symbol with the style of a blank.
fn write(cell: &mut Cell, symbol: &Cell, ground: &Cell) {
    cell.clone_from(symbol);
    (cell.fg, cell.bg, cell.modifier) = (ground.fg, ground.bg, ground.modifier);
}

/// Returns a blank of this style, without the modifiers of the cell before, such as dim or bold.
fn ground(style: Style) -> Cell {
    let mut ground = Cell::EMPTY;
    ground.set_style(style);
    ground
}

/// Returns the inside of a pane.
pub(super) fn inside(area: Rect, open: bool) -> Rect {
    let side = u16::from(!open).min(area.width);
    let top = 1.min(area.height);
    Rect {
        x: area.x + side,
        y: area.y + top,
        width: area.width.saturating_sub(2 * side),
        height: area.height.saturating_sub(top + side),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::palette::Depth;

    /// Returns what is drawn in one line of this width.
    fn drawn(width: u16, draw: impl Fn(&mut Pen<'_>) -> u16) -> String {
        let palette = Palette::new(Depth::Mono, false, false);
        let area = Rect::new(0, 0, width, 1);
        let mut buffer = Buffer::empty(area);
        draw(&mut Pen::new(&mut buffer, area, &palette));
        let cells = buffer.content.iter().map(Cell::symbol);
        cells.collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn a_sentence_is_cut_between_words_a_hint_between_its_parts_and_a_name_in_the_middle() {
        let words = |width| {
            drawn(width, |pen| {
                pen.words(0, 0, "quota none to 32GiB", Style::new())
            })
        };
        assert_eq!(words(19), "quota none to 32GiB");
        assert_eq!(words(18), "quota none to …");
        assert_eq!(words(14), "quota none …");
        let hint = |width| {
            drawn(width, |pen| {
                pen.hint(0, 0, "Enter all   u undo   Esc close", Style::new())
            })
        };
        assert_eq!(hint(30), "Enter all   u undo   Esc close");
        assert_eq!(hint(29), "Enter all   Esc close");
        assert_eq!(hint(12), "Esc close");
        assert_eq!(hint(8), "");
        let name = |width| {
            drawn(20, |pen| {
                pen.name(0, 0, "worker-east-17", width, Style::new())
            })
        };
        assert_eq!(name(14), "worker-east-17");
        assert_eq!(name(9), "work…t-17");
    }
}
