//! A rule as words.

use super::{halves, pair, text_of, text_words};

use crate::{
    layout::control::RULE_WORDS,
    value::{Rule, SettingValues},
};

const PRESENT: u32 = 1;
const UID: u32 = 2;
const GROUP: u32 = 4;
const EXECUTABLE: u32 = 8;
const CONTAINER: u32 = 16;
const LABEL: u32 = 32;

/// The flag and the position of each text. The name is always present.
const NAME_AT: std::ops::Range<usize> = 7..11;
const TEXTS: [(u32, std::ops::Range<usize>); 4] = [
    (GROUP, 11..15),
    (EXECUTABLE, 15..31),
    (CONTAINER, 31..39),
    (LABEL, 39..47),
];
const _: () = assert!(47 <= RULE_WORDS);

/// Maximum length in bytes of each text of a rule: its name, group, executable, container and label.
pub(crate) const RULE_TEXTS: [usize; 5] = [31, 31, 127, 63, 63];

/// The words of a rule; all zero is none.
pub(crate) fn rule_words(rule: Option<&Rule>) -> [u64; RULE_WORDS] {
    let mut words = [0; RULE_WORDS];
    let Some(rule) = rule else { return words };
    let mut flags = PRESENT;
    let mut flag = |set: bool, bit: u32| flags |= if set { bit } else { 0 };
    flag(rule.uid.is_some(), UID);
    text_words(&rule.name, &mut words[NAME_AT]);
    let texts = [&rule.group, &rule.executable, &rule.container, &rule.label];
    for ((bit, at), text) in TEXTS.into_iter().zip(texts) {
        if let Some(text) = text {
            flag(true, bit);
            text_words(text, &mut words[at]);
        }
    }
    words[0] = pair(flags, rule.uid.unwrap_or(0));
    rule.limits.encode(&mut words);
    words
}

/// Decodes a rule, if the words hold one.
pub(crate) fn rule_of(words: &[u64; RULE_WORDS]) -> Option<Rule> {
    let (flags, uid) = halves(words[0]);
    let has = |bit: u32| flags & bit != 0;
    if !has(PRESENT) {
        return None;
    }
    let [group, executable, container, label] =
        TEXTS.map(|(bit, at)| has(bit).then(|| text_of(&words[at])));
    Some(Rule {
        name: text_of(&words[NAME_AT]),
        uid: has(UID).then_some(uid),
        group,
        executable,
        container,
        label,
        limits: SettingValues::decode(words),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_rule_words_decode_to_a_fixed_point(mut words in prop::collection::vec(any::<u64>(), RULE_WORDS), present in any::<bool>()) {
            words[0] = words[0] & !1 | u64::from(present);
            let words: [u64; RULE_WORDS] = words.try_into().expect("the right length");
            // A text that was cut or had bytes that are no text is one after the first reading.
            let once = rule_of(&rule_words(rule_of(&words).as_ref()));
            prop_assert_eq!(rule_of(&rule_words(once.as_ref())), once);
        }
    }
}
