//! Plain-text tables: columns as wide as their widest cell, two blanks between them, no trailing blanks.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::iter::repeat_n;

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthStr;

use gpushare_base::text::plain::plain;

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// Blanks between two columns.
const GAP: usize = 2;
/// Width of a terminal that does not tell its own.
pub const USUAL_WIDTH: usize = 80;
/// Width to which a process's name is cut where the terminal has no room for more.
pub const SHORT_NAME: usize = 13;
/// Width to which any name is cut, in a pipe too. No real one is longer, and all rows are as wide as the longest name, which
/// another user may have chosen.
pub const LONGEST_NAME: usize = 256;
/// Most characters in a column of a name: a letter and its accents. Another machine's answer may have a million of these.
const MARKS: usize = 4;

/// A table that grows row by row.
#[derive(Debug)]
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these headings.
    pub fn new(columns: &[(&str, Side)]) -> Self {
        Self {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| match plain(&cell) {
            Cow::Owned(plain) => plain,
            Cow::Borrowed(_) => cell,
        });
        self.rows.push(cells.collect());
    }

    /// Shortens the cells of a column until the table fits in `width`, but to no less than `least`.
    pub fn fit(&mut self, column: usize, width: usize, least: usize) {
        let widths = self.widths();
        let gaps = GAP * widths.len().saturating_sub(1);
        let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
        let room = widths[column].saturating_sub(excess).max(least);
        for row in &mut self.rows {
            row[column] = shorten(&row[column], room);
        }
    }

    /// Shortens columns, each to no less than its width here, until the table fits the terminal on standard output, if it is one.
    pub fn fit_terminal(&mut self, columns: &[(usize, usize)]) {
        if let Some(width) = terminal_width() {
            for (column, least) in columns {
                self.fit(*column, width, *least);
            }
        }
    }

    /// Returns the width of each column: that of its widest cell.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        (0..self.sides.len()).map(width).collect()
    }

    /// Writes the table in one piece, because standard output writes each line separately.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            for ((cell, side), width) in row.iter().zip(&self.sides).zip(&widths) {
                let pad = repeat_n(' ', width.saturating_sub(cell.width()));
                match side {
                    Side::Right => {
                        text.extend(pad);
                        text.push_str(cell);
                    }
                    Side::Left => {
                        text.push_str(cell);
                        text.extend(pad);
                    }
                }
                text.extend(repeat_n(' ', GAP));
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        out.write_all(text.as_bytes())
    }
}

/// Returns the width of the terminal on standard output; `None` if it is no terminal.
pub fn terminal_width() -> Option<usize> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let width = tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
    Some(if width == 0 { USUAL_WIDTH } else { width })
}

/// Cuts a text to `width` columns. A cut text ends in `~`.
pub fn clip(text: &str, width: usize) -> String {
    let text = plain(text);
    if text.width() <= width {
        return text.into();
    }
    within(text.chars(), width.saturating_sub(1)) + "~"
}

/// Cuts a name to `width` columns in the middle, because names differ at their ends.
pub fn shorten(name: &str, width: usize) -> String {
    let name = plain(name);
    if name.width() <= width && name.chars().nth(MARKS * width).is_none() {
        return name.into();
    }
    let kept = width.saturating_sub(1);
    let begin = within(name.chars(), kept - kept / 2);
    let end = within(name.chars().rev(), kept / 2);
    format!("{begin}~{}", end.chars().rev().collect::<String>())
}

/// Returns the first letters that fit in `width` columns.
fn within(letters: impl Iterator<Item = char>, width: usize) -> String {
    let mut text = String::new();
    for letter in letters.take(MARKS * width) {
        text.push(letter);
        if text.width() > width {
            text.pop();
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_words_left() {
        let mut table = Table::new(&[
            ("PID", Side::Right),
            ("NAME", Side::Left),
            ("DEN", Side::Right),
        ]);
        table.row(["7".into(), "train".into(), "0".into()]);
        let mut out = Vec::new();
        table.write(&mut out).expect("memory");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "PID  NAME   DEN\n  7  train    0\n"
        );
    }

    #[test]
    fn one_column_gives_way_until_the_table_fits() {
        let shown = |width: usize| {
            let mut table = Table::new(&[("NAME", Side::Left), ("DEN", Side::Right)]);
            table.row(["vllm-worker-7".into(), "0".into()]);
            table.fit(0, width, 8);
            let mut out = Vec::new();
            table.write(&mut out).expect("memory");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(shown(18), "NAME           DEN\nvllm-worker-7    0\n");
        assert_eq!(shown(15), "NAME        DEN\nvllm-~er-7    0\n");
        assert_eq!(shown(5), "NAME      DEN\nvllm~r-7    0\n");
    }

    #[test]
    fn a_long_name_is_cut_visibly() {
        assert_eq!(clip("vllm-worker-7", 8), "vllm-wo~");
        assert_eq!(clip("short", 8), "short");
        assert_eq!(clip("a\nb", 8), "a\\nb");
        assert_eq!(shorten("vllm-worker-7", 8), "vllm~r-7");
        assert_eq!(shorten("short", 8), "short");
    }
}
