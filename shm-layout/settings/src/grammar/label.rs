//! Labels, groups, reasons and paths: text that shows as it is written.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use super::TextError;

/// Maximum length of a process's label in bytes.
pub const LONGEST_LABEL: usize = 63;
/// Maximum length of a group's name in bytes.
pub const LONGEST_GROUP: usize = 31;

/// Returns true if a character hides, reorders or acts instead of showing: controls, format characters (zero-width, bidi
/// overrides and isolates, tags), separators of lines, blanks without ink, private use and noncharacters.
pub const fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}'
        | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{10ffff}')
}

/// Returns the place of the first number that an error of the system ends with, as in ` (os error 98)`.
pub fn error_number(sentence: &str) -> Option<Range<usize>> {
    let start = sentence.find(" (os error ")?;
    let end = sentence[start..]
        .find(')')
        .map_or(sentence.len(), |end| start + end + 1);
    Some(start..end)
}

/// Returns a message without the numbers of the system's errors.
pub fn without_error_numbers(sentence: &str) -> Cow<'_, str> {
    match error_number(sentence) {
        None => Cow::Borrowed(sentence),
        Some(Range { start, end }) => {
            Cow::Owned([&sentence[..start], &without_error_numbers(&sentence[end..])].concat())
        }
    }
}

/// Refuses a text in which a character does not show.
pub fn visible(text: &str) -> Result<(), TextError> {
    // Nearly all text is this; it is looked through much faster than characters are decoded.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    match text.chars().find(|c| is_hidden(*c)) {
        None => Ok(()),
        Some(c) => Err(TextError::Conflict {
            why: format!(
                "\"{}\" has the invisible or control character U+{:04X}; use printable ones",
                shown(text),
                u32::from(c)
            ),
        }),
    }
}

/// Refuses a name for which the segments have no room, or which a table on a screen cannot show.
pub fn check_name(text: &str, longest: usize) -> Result<(), TextError> {
    visible(text)?;
    let bytes = text.len();
    if bytes <= longest {
        return Ok(());
    }
    let start: String = text.chars().take(longest).collect();
    let why = format!("{start:?}… has {bytes} bytes; at most {longest} fit");
    Err(TextError::Conflict { why })
}

/// The text with every hidden character written out, as `\u{202e}`.
pub fn shown(text: &str) -> String {
    text.chars().fold(String::new(), |mut shown, c| {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// A path as it stands in a sentence: on one line, without effect on a terminal. A path may hold every byte but zero.
pub trait PathText {
    /// The path with every hidden character written out; bytes that are not UTF-8 become the replacement character.
    fn shown(&self) -> String;
}

impl PathText for Path {
    fn shown(&self) -> String {
        shown(&self.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_sentence_stays_on_its_line() {
        assert_eq!(
            Path::new("/tmp/a\nb\u{1b}[2J").shown(),
            "/tmp/a\\nb\\u{1b}[2J"
        );
        assert_eq!(Path::new("/tmp/Größe 1").shown(), "/tmp/Größe 1");
    }

    #[test]
    fn a_message_has_no_number_of_an_error() {
        let error = std::io::Error::from_raw_os_error(98);
        let sentence = format!("cannot listen: {error}; then {error}");
        let words = "cannot listen: Address already in use; then Address already in use";
        assert_eq!(without_error_numbers(&sentence), words);
        assert_eq!(
            without_error_numbers("all is well (so far)"),
            "all is well (so far)"
        );
        assert_eq!(without_error_numbers("cut off (os error 9"), "cut off");
    }

    #[test]
    fn what_hides_or_reorders_is_refused_and_writing_of_every_kind_is_not() {
        for text in [
            "a\u{1b}[2J",
            "a\u{9b}",
            "a\u{7f}",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "\u{feff}a",
            "a\u{2028}b",
            "a\u{ad}b",
            "a\u{e0041}b",
            "a\u{e000}b",
            "a\nb",
            "a\u{2064}b",
            "\u{3164}",
        ] {
            let error = visible(text).expect_err(text).to_string();
            assert!(!error.chars().any(is_hidden), "{error}");
        }
        for text in [
            "train",
            "über 8GiB",
            "日本語",
            "עברית",
            "résumé",
            "=1+1",
            "",
        ] {
            assert_eq!(visible(text), Ok(()), "{text}");
        }
    }
}
