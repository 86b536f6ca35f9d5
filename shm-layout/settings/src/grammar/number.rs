//! Plain and decimal numbers, read exactly: no floating point, so `0.1GiB` is the same on every machine.

use super::TextError;

/// A decimal number split from the unit that follows it: `1.5GiB` is 1, 5 over 10, `GiB`.
pub(super) struct Quantity<'t> {
    whole: u128,
    part: u128,
    part_of: u128,
    pub(super) unit: &'t str,
}

impl<'t> Quantity<'t> {
    /// Splits `text`; the error names the `wanted` form.
    pub(super) fn split(text: &'t str, wanted: &'static str) -> Result<Self, TextError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TextError::Empty { wanted });
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let not_a_number = || TextError::NotANumber {
            text: text.to_owned(),
            wanted,
        };
        // 18 digits keep every product below within u128; no valid value is longer.
        if whole.is_empty() || part.is_empty() || part.len() > 18 || part.contains('.') {
            return Err(not_a_number());
        }
        Ok(Self {
            // A longer number exceeds every limit, whatever its unit; the caller, which has the unit, reports the limit.
            whole: match whole.len() {
                ..=20 => whole.parse().map_err(|_| not_a_number())?,
                _ => 1 << 64,
            },
            part: part.parse().map_err(|_| not_a_number())?,
            part_of: 10_u128.pow(u32::try_from(part.len()).unwrap_or(18)),
            unit: unit.trim_start(),
        })
    }

    /// Returns true if the number is 0.
    pub(super) fn is_zero(&self) -> bool {
        self.whole == 0 && self.part == 0
    }

    /// The number times the worth of its unit, rounded down; `None` past `u64`.
    pub(super) fn times(&self, worth: u64) -> Option<u64> {
        let worth = u128::from(worth);
        let whole = self.whole.checked_mul(worth)?;
        let part = self.part.checked_mul(worth)? / self.part_of;
        u64::try_from(whole.checked_add(part)?).ok()
    }
}

/// `value` units with up to three exact decimals, or `None` when more would be needed.
pub(super) fn exact(value: u64, worth: u64) -> Option<String> {
    let (whole, rest) = (value / worth, value % worth);
    if rest == 0 {
        return Some(whole.to_string());
    }
    let thousandths = u128::from(rest) * 1000;
    if !thousandths.is_multiple_of(u128::from(worth)) {
        return None;
    }
    let decimals = format!("{:03}", thousandths / u128::from(worth));
    Some(format!("{whole}.{}", decimals.trim_end_matches('0')))
}

/// Reads a whole number between `least` and `most`, a sign allowed.
pub fn parse_integer(text: &str, least: i64, most: i64) -> Result<i64, TextError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(TextError::Empty {
            wanted: "a whole number",
        });
    }
    let out_of_range = || TextError::OutOfRange {
        text: text.to_owned(),
        least: least.to_string(),
        most: most.to_string(),
    };
    match text.parse::<i64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        Ok(_) => Err(out_of_range()),
        Err(_)
            if text
                .strip_prefix('-')
                .unwrap_or(text)
                .bytes()
                .all(|b| b.is_ascii_digit()) =>
        {
            Err(out_of_range())
        }
        Err(_) => Err(TextError::NotANumber {
            text: text.to_owned(),
            wanted: "a whole number",
        }),
    }
}

/// Reads a percentage from 1 to 100, its `%` optional: `30%`, `30`.
pub fn parse_percent(text: &str) -> Result<u32, TextError> {
    let number = text.trim().strip_suffix('%').unwrap_or(text);
    match parse_integer(number, 1, 100) {
        Ok(value) => Ok(u32::try_from(value).unwrap_or(100)),
        Err(TextError::OutOfRange { .. }) => Err(TextError::OutOfRange {
            text: text.trim().to_owned(),
            least: "1%".into(),
            most: "100%".into(),
        }),
        Err(TextError::Empty { .. }) => Err(TextError::Empty {
            wanted: "a percentage such as 30%",
        }),
        Err(_) => Err(TextError::NotANumber {
            text: text.trim().to_owned(),
            wanted: "a percentage such as 30%",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_may_leave_its_sign_out() {
        assert_eq!(parse_percent("30%"), Ok(30));
        assert_eq!(parse_percent(" 100 "), Ok(100));
        assert_eq!(
            parse_percent("0%").unwrap_err().to_string(),
            "\"0%\" is out of range; must be between 1% and 100%"
        );
        assert!(matches!(
            parse_percent("many"),
            Err(TextError::NotANumber { .. })
        ));
    }

    #[test]
    fn integers_keep_their_range() {
        assert_eq!(parse_integer("-20", -20, 19), Ok(-20));
        assert!(matches!(
            parse_integer("20", -20, 19),
            Err(TextError::OutOfRange { .. })
        ));
        assert!(matches!(
            parse_integer("99999999999999999999", 0, 9),
            Err(TextError::OutOfRange { .. })
        ));
        assert!(matches!(
            parse_integer("1.5", 0, 9),
            Err(TextError::NotANumber { .. })
        ));
        assert!(matches!(
            parse_integer("", 0, 9),
            Err(TextError::Empty { .. })
        ));
    }
}
