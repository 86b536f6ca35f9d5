//! What the simulator says on standard error.
//!
//! An error may quote what comes from outside: variables, paths, the text of a scenario. None of it acts on a terminal.

use std::fmt::Display;
use std::io::Write;

/// Writes a sentence. An error code could not say why, and a standard error that is closed is no reason to end.
pub fn note(who: &str, sentence: &dyn Display) {
    let _ = writeln!(
        std::io::stderr(),
        "{who}: {}",
        shown(sentence.to_string().trim_end())
    );
}

/// The text with every character written out that hides, reorders or acts instead of showing; an error of a scenario
/// keeps its lines.
pub fn shown(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut shown, c| {
            // Quotes and backslashes have escapes of two characters, and show as they are.
            let escaped = c.escape_debug();
            if c != '\n' && (c.is_control() || escaped.len() > 2) {
                shown.extend(escaped);
            } else {
                shown.push(c);
            }
            shown
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_written_out_and_all_else_shows_as_it_is() {
        assert_eq!(shown("a\u{1b}]0;t\u{7}b"), "a\\u{1b}]0;t\\u{7}b");
        assert_eq!(
            shown("\u{202e}\u{200b}\u{9b}\t"),
            "\\u{202e}\\u{200b}\\u{9b}\\t"
        );
        assert_eq!(
            shown("Gr\u{fc}n 'a' \"b\" \\ |\n  ^"),
            "Gr\u{fc}n 'a' \"b\" \\ |\n  ^"
        );
    }
}
