//! A memory quota in bytes. `QuotaValue` itself is read and written in shm-layout.

use shm_layout::QuotaValue;

/// Unsets a setting.
pub const INHERIT: &str = "inherit";

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
    fn a_percentage_is_the_number_of_bytes_that_the_ledger_enforces() {
        assert_eq!(bytes(QuotaValue::Percent(50), 199), Some(99));
        assert_eq!(bytes(QuotaValue::Percent(100), u64::MAX), Some(u64::MAX));
        assert_eq!(bytes(QuotaValue::Unlimited, 199), None);
    }
}
