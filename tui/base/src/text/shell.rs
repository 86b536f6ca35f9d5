//! Quoting of words for a shell.

use std::ffi::OsStr;

/// Quotes a word so that `sh` reads it literally. It works on bytes, because a path need not be UTF-8.
pub fn quote(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word.as_encoded_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_word_with_quotes_and_blanks_stays_one_word() {
        for (word, quoted) in [
            ("it's here", r"'it'\''s here'"),
            ("wait > 10% user=a", "'wait > 10% user=a'"),
            ("name~'$(id)", r"'name~'\''$(id)'"),
        ] {
            assert_eq!(quote(word.as_ref()), quoted.as_bytes());
        }
    }
}
