//! Escaping of text from other programs and users before it reaches a terminal.
//!
//! Names of processes and groups, paths and command lines may hold escape sequences that recolour, retitle or rewrite a
//! terminal, or characters that reverse the direction of a line. [`Plain`] is a writer before the terminal that writes
//! those as `\u{1b}`. The program's own text has no control characters but line feeds and tabs. [`plain`] escapes one piece
//! of text, including line feeds and tabs, so that a name stays on its line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use shm_layout::text::is_hidden;

/// Returns the text with all control and hidden characters escaped.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, &[], as_rust)
}

/// First characters that make a spreadsheet read a cell as a formula, including the full-width forms.
const FORMULA: [char; 8] = [
    '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
];

/// Returns a cell of CSV: its control characters are escaped, it stays on one line, and a spreadsheet reads it as text and
/// not as a formula. Numbers are unchanged.
pub fn cell(text: &str) -> Cow<'_, str> {
    let shown = plain(text);
    let formula = shown.starts_with(FORMULA) && shown.len() > 1;
    if formula && shown.parse::<f64>().is_err() {
        return Cow::Owned(format!("'{shown}"));
    }
    shown
}

fn as_rust(shown: &mut String, c: char) {
    shown.extend(c.escape_default());
}

/// Writes the character as a JSON escape, which a reader decodes to the same character.
fn as_json(shown: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _ = write!(shown, "\\u{unit:04x}");
    }
}

fn escaped<'t>(text: &'t str, kept: &[char], write_out: fn(&mut String, char)) -> Cow<'t, str> {
    let hides = |c: char| is_hidden(c) && !kept.contains(&c);
    // Nearly all text has no such byte. This check is much faster than decoding the characters.
    let shows = |byte: u8| matches!(byte, b' '..=b'~') || kept.contains(&char::from(byte));
    if text.bytes().all(shows) || !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hides(c) {
            write_out(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// A writer that escapes control characters before the terminal.
///
/// Bytes that are no valid text become the replacement character.
#[derive(Debug)]
pub struct Plain<W: Write> {
    to: W,
    /// First bytes of a character whose rest is not written yet.
    begun: Vec<u8>,
    write_out: fn(&mut String, char),
}

impl<W: Write> Plain<W> {
    /// Wraps a writer.
    pub fn new(to: W) -> Self {
        Self {
            to,
            begun: Vec::new(),
            write_out: as_rust,
        }
    }

    /// Wraps a writer of JSON. Hidden characters are written as JSON escapes, so the document's content is unchanged.
    pub fn json(to: W) -> Self {
        Self {
            write_out: as_json,
            ..Self::new(to)
        }
    }

    fn text(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.utf8_chunks() {
            self.to
                .write_all(escaped(chunk.valid(), &['\n', '\t'], self.write_out).as_bytes())?;
            if !chunk.invalid().is_empty() {
                self.to.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Returns the number of bytes at the end that are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(4);
    for (at, byte) in last.enumerate() {
        let wants = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if at + 1 < wants { at + 1 } else { 0 };
    }
    0
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut joined = std::mem::take(&mut self.begun);
        let bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined
        };
        let (whole, begun) = bytes.split_at(bytes.len() - unfinished(bytes));
        self.text(whole)?;
        self.begun = begun.to_vec();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.text(&begun)?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut plain = Plain::new(&mut out);
        for piece in pieces {
            plain.write_all(piece).expect("memory");
        }
        plain.flush().expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_acts_is_written_out_and_all_else_is_as_it_was() {
        assert_eq!(plain("grün 8GiB"), "grün 8GiB");
        assert!(matches!(plain("grün"), Cow::Borrowed(_)));
        assert_eq!(plain("\x1b[31mred\x07\n"), "\\u{1b}[31mred\\u{7}\\n");
        assert_eq!(plain("\u{9b}2J \u{202e}txt"), "\\u{9b}2J \\u{202e}txt");
        assert_eq!(written(&[b"PID\tNAME\n"]), "PID\tNAME\n");
        assert_eq!(written(&[b"a\x1b]0;title\x07b"]), "a\\u{1b}]0;title\\u{7}b");
    }

    #[test]
    fn json_keeps_every_character_and_shows_none_that_acts() {
        let text = "\u{202e}a\u{9b}\u{7f}\u{e0041}\u{1b}\n\u{200b}";
        let mut out = Vec::new();
        serde_json::to_writer_pretty(Plain::json(&mut out), &[text]).expect("memory");
        let out = String::from_utf8(out).expect("text");
        assert!(!out.contains(|c| is_hidden(c) && c != '\n'), "{out:?}");
        let back: Vec<String> = serde_json::from_str(&out).expect("JSON");
        assert_eq!(back, [text]);
    }

    #[test]
    fn a_cell_that_would_be_a_formula_is_text_and_a_number_is_a_number() {
        assert_eq!(cell("=cmd()"), "'=cmd()");
        assert_eq!(cell("+x"), "'+x");
        assert_eq!(cell("-x"), "'-x");
        assert_eq!(cell("@x"), "'@x");
        // Characters that a spreadsheet would remove are escaped.
        assert_eq!(cell("\tx"), "\\tx");
        assert_eq!(cell("\n=x"), "\\n=x");
        assert_eq!(cell("=\u{1b}[2Jx\ny"), "'=\\u{1b}[2Jx\\ny");
        assert_eq!(cell("\u{ff1d}x"), "'\u{ff1d}x");
        for number in ["-3", "+4.5", "-1e9", "-", "", "a=b"] {
            assert_eq!(cell(number), number);
        }
    }

    #[test]
    fn a_character_in_two_pieces_is_one_and_no_text_is_marked() {
        assert_eq!(written(&[b"gr\xc3", b"\xbcn"]), "grün");
        assert_eq!(written(&[b"\xc2", b"\x9b2J"]), "\\u{9b}2J");
        assert_eq!(written(&[b"\xe2\x80", b"\xae"]), "\\u{202e}");
        assert_eq!(written(&[b"x\xff\xc3"]), "x\u{fffd}\u{fffd}");
        assert_eq!(written(&["𝄞".as_bytes()]), "𝄞");
    }
}
