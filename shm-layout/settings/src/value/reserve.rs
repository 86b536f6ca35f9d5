//! The memory that is kept for a process on each device: `20GiB`, `25%`, `none`.

use std::{fmt, str::FromStr};

use super::Amount;
use super::quota::parse_amount;
use crate::grammar::{MIB_BITS, TextError};
use crate::row::Grammar;

/// The memory that no other process can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Nothing is reserved.
    #[default]
    Nothing,
    /// A number of MiB.
    Mib(u32),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
}

/// The most MiB that a record holds: 1 PiB less one.
const MOST: u32 = (1 << 30) - 1;

impl Reserve {
    /// Returns the bytes on a device of `total_bytes`.
    pub fn of_device(self, total_bytes: u64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Mib(mib) => u64::from(mib) << MIB_BITS,
            Self::Percent(percent) => {
                let bytes = u128::from(total_bytes) * u128::from(percent.min(100)) / 100;
                bytes as u64 >> MIB_BITS << MIB_BITS
            }
        }
    }

    fn is_valid(self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Mib(mib) => (1..=MOST).contains(&mib),
            Self::Percent(percent) => (1..=100).contains(&percent),
        }
    }
}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nothing => Amount::Unlimited,
            Self::Mib(_) => Amount::Bytes(self.of_device(0)),
            Self::Percent(percent) => Amount::Percent(percent),
        }
        .fmt(f)
    }
}

impl FromStr for Reserve {
    type Err = TextError;

    /// Reads a size, rounded up to MiB, a share of the device, or `none`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let reserve = match parse_amount(text)? {
            Amount::Unlimited | Amount::Bytes(0) => Self::Nothing,
            Amount::Percent(percent) => Self::Percent(percent),
            Amount::Bytes(bytes) => {
                Self::Mib(u32::try_from(bytes.div_ceil(1 << MIB_BITS)).unwrap_or(u32::MAX))
            }
        };
        reserve
            .is_valid()
            .then_some(reserve)
            .ok_or_else(|| TextError::OutOfRange {
                text: text.trim().to_owned(),
                least: "0".into(),
                most: Self::Mib(MOST).to_string(),
            })
    }
}

/// The number of a reserve of nothing, of MiB and of a share, below the amount.
const NOTHING: u32 = 1;
const AS_MIB: u32 = 2;
const AS_PERCENT: u32 = 3;

impl Reserve {
    /// The encoding and the text of values. A number has the kind in its lowest two bits, and the amount above them.
    pub const GRAMMAR: Grammar<Self> = Grammar {
        read: str::parse,
        none: Some(Self::Nothing),
        show: |value| value.to_string(),
        refuse: |value| (!value.is_valid()).then(|| format!("cannot be {value}")),
        bits: |value| {
            let (kind, amount) = match value {
                Self::Nothing => (NOTHING, 0),
                Self::Mib(mib) => (AS_MIB, mib),
                Self::Percent(percent) => (AS_PERCENT, percent.into()),
            };
            (kind | amount << 2).into()
        },
        of_bits: |bits| {
            let (kind, amount) = (bits as u32 & 3, bits as u32 >> 2);
            let value = match kind {
                NOTHING => Self::Nothing,
                AS_MIB => Self::Mib(amount),
                AS_PERCENT => Self::Percent(u8::try_from(amount).ok()?),
                _ => return None,
            };
            value.is_valid().then_some(value)
        },
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_read_written_and_rounded_up_to_mib() {
        let read = |text: &str| text.parse::<Reserve>();
        for (text, bytes) in [
            ("20GiB", 20 << 30),
            ("25%", 256 << 20),
            ("none", 0),
            ("0", 0),
        ] {
            let reserve = read(text).expect("well formed");
            assert_eq!(reserve.of_device(1 << 30), bytes, "{text}");
            assert_eq!(read(&reserve.to_string()), Ok(reserve));
            let grammar = Reserve::GRAMMAR;
            let bits = (grammar.bits)(reserve);
            assert!(bits <= u32::MAX.into());
            assert_eq!((grammar.of_bits)(bits), Some(reserve));
        }
        assert_eq!(read("1500000B"), Ok(Reserve::Mib(2)));
        for text in ["", "20", "101%", "2048TiB", "all"] {
            assert!(read(text).is_err(), "{text}");
        }
        for bits in [0, 2, 3, 3 | 101 << 2] {
            assert_eq!((Reserve::GRAMMAR.of_bits)(bits), None);
        }
    }
}
