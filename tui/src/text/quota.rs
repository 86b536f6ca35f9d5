//! A memory quota as the operator types it: `8GiB`, `25%`, `none`; `inherit` unsets it.

use shm_layout::QuotaValue;

use super::units::{self, Amount, TextError};

/// Unsets a setting.
pub const INHERIT: &str = "inherit";

/// Reads a quota.
pub fn parse(text: &str) -> Result<QuotaValue, TextError> {
    if text == INHERIT {
        return Ok(QuotaValue::Inherit);
    }
    Ok(match units::parse_amount(text)? {
        Amount::Unlimited => QuotaValue::Unlimited,
        Amount::Bytes(bytes) => QuotaValue::Bytes(bytes),
        Amount::Percent(percent) => QuotaValue::Percent(percent),
    })
}

/// Writes a quota so that [`parse`] reads it back.
pub fn format(value: QuotaValue) -> String {
    match value {
        QuotaValue::Inherit => INHERIT.into(),
        QuotaValue::Unlimited => "none".into(),
        QuotaValue::Bytes(bytes) => units::format_size(bytes),
        QuotaValue::Percent(percent) => format!("{percent}%"),
    }
}

/// The quota in bytes on a device of `total` bytes, rounded down as the ledger does; `None` where it sets no limit.
pub fn bytes(value: QuotaValue, total: u64) -> Option<u64> {
    match value {
        QuotaValue::Inherit | QuotaValue::Unlimited => None,
        QuotaValue::Bytes(bytes) => Some(bytes),
        QuotaValue::Percent(percent) => Some(share(total, percent)),
    }
}

/// So many per cent of `total`, rounded down.
pub fn share(total: u64, percent: u8) -> u64 {
    let share = u128::from(total) * u128::from(percent.min(100)) / 100;
    u64::try_from(share).unwrap_or(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_written_as_it_is_read() {
        for text in ["8GiB", "25%", "none", "inherit"] {
            assert_eq!(parse(text).map(format).as_deref(), Ok(text));
        }
        assert!(parse("8Q").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn a_percentage_is_the_number_of_bytes_that_the_ledger_enforces() {
        assert_eq!(bytes(QuotaValue::Percent(50), 199), Some(99));
        assert_eq!(bytes(QuotaValue::Percent(100), u64::MAX), Some(u64::MAX));
        assert_eq!(bytes(QuotaValue::Unlimited, 199), None);
    }
}
