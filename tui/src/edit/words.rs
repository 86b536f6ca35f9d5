//! Values of an edit as the words a person would type: `32GiB`, `25%`, `none`; `inherit` unsets.

use shm_layout::Set;

use crate::text::quota::INHERIT;

/// What an edit does to one setting, in a word; `None` leaves it alone.
pub(super) fn word<T>(set: &Set<T>, write: impl Fn(&T) -> String) -> Option<String> {
    match set {
        Set::Keep => None,
        Set::Inherit => Some(INHERIT.into()),
        Set::To(value) => Some(write(value)),
    }
}

/// The same, read back; the outer `None` is a word that cannot be read.
pub(super) fn read<T>(word: &Option<String>, read: impl Fn(&str) -> Option<T>) -> Option<Set<T>> {
    Some(match word.as_deref() {
        None => Set::Keep,
        Some(INHERIT) => Set::Inherit,
        Some(text) => Set::To(read(text)?),
    })
}
