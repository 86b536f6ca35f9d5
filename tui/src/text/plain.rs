//! Foreign text made harmless before it reaches a terminal.
//!
//! Names of processes and groups, paths and what was typed on the command line may hold escape
//! sequences that recolour, retitle or rewrite a terminal, or characters that turn the direction of
//! a line around. [`Plain`] stands between a program and its terminal and writes those as `\u{1b}`;
//! what the program itself writes has none but line feeds and tabs. [`plain`] does the same to one
//! piece of text and leaves not even those, so that a name stays on its line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a character may do something to a terminal instead of standing on it.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with what acts written out.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, &[])
}

fn escaped<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let hides = |c: char| acts(c) && !kept.contains(&c);
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hides(c) {
            // Memory takes all that is written.
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// A writer behind which nothing acts on the terminal.
///
/// Bytes that are no text become the replacement character.
#[derive(Debug)]
pub struct Plain<W: Write> {
    to: W,
    /// The beginning of a character whose rest has not come yet.
    begun: Vec<u8>,
}

impl<W: Write> Plain<W> {
    /// Puts it before a writer.
    pub fn new(to: W) -> Self {
        Self {
            to,
            begun: Vec::new(),
        }
    }

    fn text(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.utf8_chunks() {
            self.to
                .write_all(escaped(chunk.valid(), &['\n', '\t']).as_bytes())?;
            if !chunk.invalid().is_empty() {
                self.to.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(())
    }
}

/// How many bytes at the end are the beginning of a character.
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
    fn a_character_in_two_pieces_is_one_and_no_text_is_marked() {
        assert_eq!(written(&[b"gr\xc3", b"\xbcn"]), "grün");
        assert_eq!(written(&[b"\xc2", b"\x9b2J"]), "\\u{9b}2J");
        assert_eq!(written(&[b"\xe2\x80", b"\xae"]), "\\u{202e}");
        assert_eq!(written(&[b"x\xff\xc3"]), "x\u{fffd}\u{fffd}");
        assert_eq!(written(&["𝄞".as_bytes()]), "𝄞");
    }
}
