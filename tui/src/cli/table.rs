//! Plain tables: columns as wide as their widest cell, two blanks between, no trailing blanks.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use crate::text::plain::plain;

/// On which side a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table that grows row by row.
#[derive(Debug)]
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(columns: &[(&str, Side)]) -> Self {
        Self {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|cell| plain(&cell).into()).collect());
    }

    /// Writes it.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.width())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, side), width) in row.iter().zip(&self.sides).zip(&widths) {
                let pad = " ".repeat(width.saturating_sub(cell.width()));
                let (before, after) = if *side == Side::Right {
                    (pad.as_str(), "")
                } else {
                    ("", pad.as_str())
                };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Cuts a text to `width` columns; a cut one ends in `~`.
pub fn clip(text: &str, width: usize) -> String {
    let text = plain(text);
    if text.width() <= width {
        return text.into();
    }
    let mut short = String::new();
    for character in text.chars() {
        if short.width() + character.to_string().width() >= width {
            break;
        }
        short.push(character);
    }
    short.push('~');
    short
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
    }
}
