//! A process's settings as they are typed: `weight=200`, `priority=5`, `cap=30%`, `on-full=wait`,
//! `evict-after=15m`.

use shm_layout::{SettingEdit, ShareEdit};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::nearest::nearest;

/// Returns the words of an edit that are typed as `word=value`.
pub fn words<E: SettingEdit>() -> impl Iterator<Item = &'static str> {
    let typed = E::ROWS.iter().filter(|about| about.is_typed());
    typed.map(|about| about.word)
}

/// Returns the settings of a process with their values, for a help.
pub fn help() -> String {
    let typed = ShareEdit::ROWS.iter().filter(|about| about.is_typed());
    let words = typed.map(|about| format!("{}={}", about.word, about.values));
    format!(
        "{}; the value inherit unsets one",
        words.collect::<Vec<_>>().join(", ")
    )
}

/// Limits the edit to a time. Afterwards the permanent settings are back. A priority becomes a boost.
pub fn until(share: ShareEdit, ns: u64) -> Result<ShareEdit, Failure> {
    share.until(ns).ok_or_else(|| {
        Failure::usage("--for makes a boost of priority=N; give it a number from -20 to 19")
    })
}

/// Reads one `KEY=VALUE`; a key given twice is refused.
pub fn read<E: SettingEdit>(edit: &mut E, text: &str) -> Result<(), Failure> {
    let known = E::known_words();
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("{text:?} has no value; use {known}")))?;
    if edit.changes(key) {
        return Err(Failure::usage(format!("{key}= is given twice")));
    }
    if !words::<E>().any(|word| word == key) {
        let meant = nearest(key, words::<E>());
        let meant = meant.map_or_else(String::new, |near| format!("did you mean {near}={value}? "));
        return Err(Failure::usage(format!(
            "{meant}{key:?} is unknown; use {known}"
        )));
    }
    set(edit, key, value).map_err(Failure::usage)
}

/// Sets one value by its word; `inherit` unsets it.
pub fn set<E: SettingEdit>(edit: &mut E, word: &str, text: &str) -> Result<(), String> {
    edit.read(word, text)
        .map_err(|error| format!("{word}: {error}"))
}

#[cfg(test)]
mod tests {
    use shm_layout::{OnFull, Set};

    use super::*;

    fn read(texts: &[&str]) -> Result<ShareEdit, Failure> {
        let mut share = ShareEdit::default();
        texts
            .iter()
            .try_for_each(|text| super::read(&mut share, text))?;
        Ok(share)
    }

    #[test]
    fn only_what_is_said_changes() {
        let share = read(&["weight=200", "cap=inherit"]).expect("well formed");
        assert_eq!(
            share,
            ShareEdit {
                weight: Set::To(200),
                cap: Set::Inherit,
                ..ShareEdit::default()
            }
        );
        let on_full = read(&["on-full=wait=10m"]).expect("well formed").on_full;
        assert_eq!(on_full, Set::To(OnFull::WaitFor(600_000_000_000)));
        assert_eq!(read(&["cap=none"]).expect("well formed").cap, Set::To(100));
    }

    #[test]
    fn values_out_of_range_and_unknown_keys_are_refused() {
        for text in [
            "weight=0",
            "weight=1001",
            "priority=20",
            "cap=0",
            "cap=101%",
            "speed=1",
            "on-full=later",
            "on-full=wait=5",
            "evict-after=soon",
            "evict-after=1ms",
            "weight",
        ] {
            assert!(read(&[text]).is_err(), "{text}");
        }
        assert!(read(&["weight=1", "weight=2"]).is_err());
        assert!(read(&["on-full=wait", "on-full=fail"]).is_err());
    }
}
