//! Words for a shell.

use std::ffi::OsStr;

/// A word as `sh` takes it literally, byte for byte: a path need not be UTF-8.
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
