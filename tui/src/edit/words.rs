//! Values of an edit as the words a person would type: `32GiB`, `25%`, `none`; `inherit` unsets.

use shm_layout::{QuotaValue, Set};

use crate::text::units::{self, Amount};

/// Unsets a setting.
pub(super) const INHERIT: &str = "inherit";

/// What an edit does to one setting, in a word; `None` leaves it alone.
pub(super) fn word<T>(set: &Set<T>, write: impl Fn(&T) -> String) -> Option<String> {
    match set {
        Set::Keep => None,
        Set::Inherit => Some(INHERIT.into()),
        Set::To(value) => Some(write(value)),
    }
}

/// The same, read back; the outer `None` is a word that means nothing.
pub(super) fn read<T>(word: &Option<String>, read: impl Fn(&str) -> Option<T>) -> Option<Set<T>> {
    Some(match word.as_deref() {
        None => Set::Keep,
        Some(INHERIT) => Set::Inherit,
        Some(text) => Set::To(read(text)?),
    })
}

/// A quota as a person would type it.
pub fn quota_word(value: QuotaValue) -> String {
    match value {
        QuotaValue::Inherit => INHERIT.into(),
        QuotaValue::Unlimited => "none".into(),
        QuotaValue::Bytes(bytes) => units::format_size(bytes),
        QuotaValue::Percent(percent) => format!("{percent}%"),
    }
}

/// The same, read back.
pub(super) fn read_quota(text: &str) -> Option<QuotaValue> {
    if text == INHERIT {
        return Some(QuotaValue::Inherit);
    }
    Some(match units::parse_amount(text).ok()? {
        Amount::Unlimited => QuotaValue::Unlimited,
        Amount::Bytes(bytes) => QuotaValue::Bytes(bytes),
        Amount::Percent(percent) => QuotaValue::Percent(percent),
    })
}
