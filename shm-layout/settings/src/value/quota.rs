//! Memory quotas: the values set, the values in force, and their text: one amount for every device, or one for each.

use super::{DEVICES_PER_PROCESS, Source};
use crate::grammar::{INHERIT, TextError, format_size, parse_integer, parse_size_or_percent};
use crate::row::Grammar;

/// A memory quota the operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaValue {
    /// Not set here: the value of the launch, group or default applies.
    #[default]
    Inherit,
    /// No limit.
    Unlimited,
    /// A number of bytes.
    Bytes(u64),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
}

impl QuotaValue {
    /// Converts to bytes on a device of `total_bytes`: `None` is "not set here", `Some(None)` is unlimited.
    pub fn of_device(self, total_bytes: u64) -> Option<Option<u64>> {
        match self {
            QuotaValue::Inherit => None,
            QuotaValue::Unlimited => Some(None),
            QuotaValue::Bytes(bytes) => Some(Some(bytes)),
            QuotaValue::Percent(percent) => {
                let bytes = u128::from(total_bytes) * u128::from(percent.min(100)) / 100;
                Some(Some(bytes as u64))
            }
        }
    }
}

/// The number of an unlimited quota, of bytes and of a share, below the amount.
const UNLIMITED: u128 = 1;
const BYTES: u128 = 2;
const PERCENT: u128 = 3;

impl QuotaValue {
    /// The encoding and the text of values. A number has the kind in its lowest byte, and the amount above it.
    pub const GRAMMAR: Grammar<Self> = Grammar {
        read: str::parse,
        none: Some(QuotaValue::Unlimited),
        show: |value| value.to_string(),
        refuse: |value| match value {
            QuotaValue::Percent(percent) if !(1..=100).contains(&percent) => {
                Some(format!("must be between 1% and 100%, not {percent}%"))
            }
            QuotaValue::Bytes(bytes) if bytes > 1 << 60 => Some("must be at most 1 EiB".to_owned()),
            _ => None,
        },
        bits: |value| match value {
            QuotaValue::Inherit => 0,
            QuotaValue::Unlimited => UNLIMITED,
            QuotaValue::Bytes(bytes) => BYTES | u128::from(bytes) << 8,
            QuotaValue::Percent(percent) => PERCENT | u128::from(percent) << 8,
        },
        of_bits: |bits| match (bits & 0xff, (bits >> 8) as u64) {
            (UNLIMITED, _) => Some(QuotaValue::Unlimited),
            (BYTES, amount) => Some(QuotaValue::Bytes(amount)),
            (PERCENT, amount @ 1..=100) => Some(QuotaValue::Percent(amount as u8)),
            _ => None,
        },
    };
}

/// A quota in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Quota {
    /// Bytes; `None` is unlimited.
    #[cfg_attr(feature = "serde", serde(rename = "quota_bytes"))]
    pub bytes: Option<u64>,
    /// Source of the quota.
    #[cfg_attr(feature = "serde", serde(rename = "quota_source"))]
    pub source: Source,
}

/// The values that a quota may be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// No quota at all, said on purpose.
    Unlimited,
    /// A number of bytes.
    Bytes(u64),
    /// A share of the device, 1 to 100.
    Percent(u8),
}

impl Amount {
    /// The bytes this is on a device of `total` bytes; `None` is without limit.
    pub fn of_device(self, total: u64) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => {
                let share = u128::from(total) * u128::from(percent) / 100;
                Some(u64::try_from(share).unwrap_or(u64::MAX))
            }
        }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.write_str("none"),
            Self::Bytes(bytes) => f.write_str(&format_size(*bytes)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl std::fmt::Display for QuotaValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let amount = match *self {
            Self::Inherit => return f.write_str(INHERIT),
            Self::Unlimited => Amount::Unlimited,
            Self::Bytes(bytes) => Amount::Bytes(bytes),
            Self::Percent(percent) => Amount::Percent(percent),
        };
        amount.fmt(f)
    }
}

impl std::str::FromStr for QuotaValue {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        if text == INHERIT {
            return Ok(Self::Inherit);
        }
        Ok(match parse_amount(text)? {
            Amount::Unlimited => Self::Unlimited,
            Amount::Bytes(bytes) => Self::Bytes(bytes),
            Amount::Percent(percent) => Self::Percent(percent),
        })
    }
}

/// Quotas for the devices of one process, by the ordinal it sees them under.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryList {
    /// For every device not named below.
    pub everywhere: Option<Amount>,
    /// For one device each, in the order written.
    pub devices: Vec<(u8, Amount)>,
}

impl MemoryList {
    /// Returns the amount for the device `ordinal`.
    pub fn of(&self, ordinal: u8) -> Option<Amount> {
        let named = self.devices.iter().find(|(device, _)| *device == ordinal);
        named.map(|(_, amount)| *amount).or(self.everywhere)
    }
}

/// Reads `8GiB`, `25%` or `none`.
pub fn parse_amount(text: &str) -> Result<Amount, TextError> {
    if matches!(text.trim(), "none" | "unlimited") {
        return Ok(Amount::Unlimited);
    }
    Ok(match parse_size_or_percent(text)? {
        Ok(bytes) => Amount::Bytes(bytes),
        Err(percent) => Amount::Percent(u8::try_from(percent).unwrap_or(100)),
    })
}

/// Reads one amount for every device (`8GiB`), an amount each (`0:8GiB,1:50%`), or both (`4GiB,1:8GiB`).
pub fn parse_memory_list(text: &str) -> Result<MemoryList, TextError> {
    let mut list = MemoryList::default();
    for part in text.split(',') {
        let Some((device, amount)) = part.split_once(':') else {
            if list.everywhere.replace(parse_amount(part)?).is_some() {
                return Err(TextError::Conflict {
                    why: format!("{text:?} gives two amounts for every device"),
                });
            }
            continue;
        };
        let most = DEVICES_PER_PROCESS - 1;
        let ordinal = parse_integer(device, 0, i64::try_from(most).unwrap_or(0))?;
        let ordinal = u8::try_from(ordinal).unwrap_or(0);
        if list.devices.iter().any(|(device, _)| *device == ordinal) {
            return Err(TextError::Conflict {
                why: format!("{text:?} gives two amounts for device {ordinal}"),
            });
        }
        list.devices.push((ordinal, parse_amount(amount)?));
    }
    Ok(list)
}

/// Returns the list with the unit `B` after each number that has no unit: `8,1:50%` as `8B,1:50%`.
pub fn in_bytes(text: &str) -> String {
    let said = |part: &str| match part.trim_end() {
        part if part.ends_with(|last: char| last.is_ascii_digit()) => format!("{part}B"),
        part => part.to_owned(),
    };
    let parts: Vec<String> = text.split(',').map(said).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_amount_holds_for_every_device() {
        let list = parse_memory_list("8GiB").expect("well formed");
        assert_eq!(list.of(0), Some(Amount::Bytes(8 << 30)));
        assert_eq!(list.of(15), Some(Amount::Bytes(8 << 30)));
    }

    #[test]
    fn an_amount_each_leaves_the_other_devices_alone() {
        let list = parse_memory_list("0:8GiB, 1:50%").expect("well formed");
        assert_eq!(list.of(0), Some(Amount::Bytes(8 << 30)));
        assert_eq!(list.of(1), Some(Amount::Percent(50)));
        assert_eq!(list.of(2), None);
        let list = parse_memory_list("4GiB,1:none").expect("well formed");
        assert_eq!(
            (list.of(0), list.of(1)),
            (Some(Amount::Bytes(4 << 30)), Some(Amount::Unlimited))
        );
    }

    #[test]
    fn a_list_that_contradicts_itself_is_refused() {
        for text in [
            "1GiB,2GiB",
            "0:1GiB,0:2GiB",
            "16:1GiB",
            "-1:1GiB",
            "0:",
            ":1GiB",
            "",
            "0:8Q",
            "1GiB,",
        ] {
            assert!(parse_memory_list(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_list_without_units_is_one_of_bytes() {
        let list = parse_memory_list(&in_bytes("8, 1:50%,2:4096 ,3:1G")).expect("well formed");
        let amounts: Vec<_> = (0..4).map(|ordinal| list.of(ordinal)).collect();
        let bytes = |bytes| Some(Amount::Bytes(bytes));
        assert_eq!(
            amounts,
            [
                bytes(8),
                Some(Amount::Percent(50)),
                bytes(4096),
                bytes(1 << 30)
            ]
        );
    }

    #[test]
    fn a_percentage_is_of_the_device_it_is_asked_about() {
        assert_eq!(Amount::Percent(25).of_device(16 << 30), Some(4 << 30));
        assert_eq!(Amount::Percent(100).of_device(u64::MAX), Some(u64::MAX));
        assert_eq!(Amount::Unlimited.of_device(1), None);
        assert_eq!(Amount::Percent(25).to_string(), "25%");
    }
}
