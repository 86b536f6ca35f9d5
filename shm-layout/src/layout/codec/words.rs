//! Text, names and UUIDs as words.

use crate::value::Uuid;

/// A group's name as words: up to 31 bytes and a zero.
pub(crate) type NameWords = [u64; 4];

pub(crate) fn uuid_words(uuid: &Uuid) -> (u64, u64) {
    let bits = u128::from_le_bytes(*uuid);
    (bits as u64, (bits >> 64) as u64)
}

pub(crate) fn uuid_of(low: u64, high: u64) -> Uuid {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

/// Packs text into words, cut at a character so that a zero byte always ends it.
pub(crate) fn text_words(text: &str, words: &mut [u64]) {
    let room = (words.len() * 8).saturating_sub(1);
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    words.fill(0);
    for (index, byte) in text.as_bytes()[..end].iter().enumerate() {
        words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
    }
}

/// Decodes text, up to the first zero. Bytes that are not UTF-8 become the replacement character. All other characters, also
/// control characters, are returned as written: a program that prints the text must escape it.
pub(crate) fn text_of(words: &[u64]) -> String {
    let mut text = String::new();
    text_into(words, &mut text);
    text
}

/// Decodes into the memory of another text.
pub(crate) fn text_into(words: &[u64], text: &mut String) {
    let mut bytes = std::mem::take(text).into_bytes();
    bytes.clear();
    for word in words {
        let word = word.to_le_bytes();
        let end = word.iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&word[..end.unwrap_or(word.len())]);
        if end.is_some() {
            break;
        }
    }
    *text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
}

/// A group's name as words; `None` if it is empty, too long or has characters that do not show.
pub(crate) fn name_words(name: &str) -> Option<NameWords> {
    let fits = !name.is_empty() && name.len() <= 31 && !name.chars().any(crate::text::is_hidden);
    fits.then(|| {
        let mut words = [0; 4];
        text_words(name, &mut words);
        words
    })
}

/// A hash that is never zero: FNV-1a with a final mix.
pub(crate) fn key_of(words: &[u64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in words.iter().flat_map(|word| word.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (hash ^ hash >> 29).max(1)
}
