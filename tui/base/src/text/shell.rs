//! Quoting of words for a shell.

use std::ffi::{OsStr, OsString};

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

/// Returns words as a line for `sh`. Only words that need it are quoted.
pub fn line(words: impl Iterator<Item = OsString>) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=%+,".contains(byte);
    let shown = words.map(|word| match word.as_encoded_bytes() {
        bytes if !bytes.is_empty() && bytes.iter().all(plain) => {
            word.to_string_lossy().into_owned()
        }
        _ => String::from_utf8_lossy(&quote(&word)).into_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{line, quote};

    #[test]
    fn a_line_quotes_only_the_words_that_need_it() {
        let words = ["policy", "set", "order=fair", "a b", ""];
        assert_eq!(
            line(words.iter().map(Into::into)),
            "policy set order=fair 'a b' ''"
        );
    }

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
