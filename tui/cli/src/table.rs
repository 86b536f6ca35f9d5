//! Plain-text tables: columns as wide as their widest cell, two blanks between them, no trailing blanks.

use std::borrow::Cow;
use std::io::{self, Write};
use std::iter::repeat_n;

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

    /// Writes the table in one piece, because standard output writes each line separately.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
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
                text.push_str("  ");
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        out.write_all(text.as_bytes())
    }
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
    if name.width() <= width {
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
    for letter in letters {
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
    fn a_long_name_is_cut_visibly() {
        assert_eq!(clip("vllm-worker-7", 8), "vllm-wo~");
        assert_eq!(clip("short", 8), "short");
        assert_eq!(clip("a\nb", 8), "a\\nb");
        assert_eq!(shorten("vllm-worker-7", 8), "vllm~r-7");
        assert_eq!(shorten("short", 8), "short");
    }
}
