//! The known word that a mistyped one was probably meant to be.

use crate::text::units::TextError;

/// Returns the known word that differs by a few letters, or that is a prefix or an extension of this one.
pub fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |known: &str| {
        let begins = word.len() >= 3 && (known.starts_with(word) || word.starts_with(known));
        let letters = strsim::damerau_levenshtein(word, known);
        if begins { letters.min(1) } else { letters }
    };
    let (distance, near) = known.map(|known| (distance(known), known)).min()?;
    (distance <= (word.len() / 3).max(1)).then_some(near)
}

/// Returns the message of an error, with the word that was probably meant.
pub fn explained(error: &TextError) -> String {
    let TextError::UnknownWord { text, known } = error else {
        return error.to_string();
    };
    let with_value = || {
        let (name, value) = text.split_once('=')?;
        let names = known
            .split(", ")
            .filter_map(|known| known.strip_suffix('='));
        Some(format!("{}={value}", nearest(name, names)?))
    };
    let meant = with_value().or_else(|| Some(nearest(text, known.split(", "))?.to_owned()));
    match meant {
        Some(meant) => format!("did you mean {meant}? {error}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_of_a_policy_has_the_right_one_before_it() {
        let told = |word: &str| {
            let error = crate::text::units::parse_policy(&[word]).expect_err("no policy");
            let told = explained(&error);
            told.strip_prefix("did you mean ")
                .and_then(|told| Some(told.split_once('?')?.0.to_owned()))
        };
        assert_eq!(told("overlapp").as_deref(), Some("overlap"));
        assert_eq!(told("timeslcie=5ms").as_deref(), Some("timeslice=5ms"));
        assert_eq!(told("order=fiar").as_deref(), Some("order=fair"));
        assert_eq!(told("zebra"), None);
    }
}
