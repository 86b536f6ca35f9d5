//! Messages of the simulator on standard error.
//!
//! A message may quote external text: variables, paths, a scenario. Control characters in it are escaped, so that none of it
//! acts on a terminal.

use std::fmt::Display;
use std::io::Write;

/// Writes a message. It explains what an error code cannot; a closed standard error is ignored.
pub fn note(who: &str, sentence: &dyn Display) {
    let _ = writeln!(
        std::io::stderr(),
        "{who}: {}",
        shown(sentence.to_string().trim_end())
    );
}

/// Escapes every character that hides, reorders or acts on a terminal. Line breaks stay.
pub fn shown(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut shown, c| {
            // The two-character escapes of quotes and backslashes are not needed.
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
