//! Sizes of memory. A bare `K`, `M`, `G`, `T` is the binary unit, as on every GPU's box; `KB`, `MB`, … are decimal.
//!
//! A number without a unit is a number of bytes, as other tools and scripts write it. Below 1 MiB it is refused: no limit of a
//! device is that small, so the writer meant GiB or MiB.

use super::TextError;
use super::number::{Quantity, exact};

const WANTED: &str = "a size such as 8GiB, 512M or a number of bytes";
/// The number of bits by which bytes are shifted to MiB.
pub(crate) const MIB_BITS: u32 = 20;
/// The least number of bytes that needs no unit.
const LEAST_BARE: u64 = 1 << MIB_BITS;
const KNOWN: &str = "B, K/KiB, M/MiB, G/GiB, T/TiB and the decimal KB, MB, GB, TB";

/// Binary units, largest first.
const BINARY: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

fn worth(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Reads a size in bytes: `8GiB`, `8G` (= GiB), `8GB`, `1.5GiB`, `512M`, `4096B`, `4217928960`.
pub fn parse_size(text: &str) -> Result<u64, TextError> {
    let quantity = Quantity::split(text, WANTED)?;
    let Some(worth) = worth(quantity.unit) else {
        return Err(TextError::UnknownUnit {
            text: text.trim().to_owned(),
            known: KNOWN,
        });
    };
    let bytes = quantity.times(worth).ok_or_else(|| TextError::OutOfRange {
        text: text.trim().to_owned(),
        least: "0".into(),
        most: format!("{}TiB", u64::MAX >> 40),
    })?;
    if quantity.unit.is_empty() && !quantity.is_zero() && bytes < LEAST_BARE {
        return Err(TextError::NoUnit {
            text: text.trim().to_owned(),
            bytes,
            // A thousand GiB are more than a device has, and a thousand MiB are not.
            unit: if bytes < 1000 { "GiB" } else { "MiB" },
        });
    }
    Ok(bytes)
}

/// Reads a size, or a share of a device: `Ok(Err(25))` is 25 %.
pub fn parse_size_or_percent(text: &str) -> Result<Result<u64, u32>, TextError> {
    if text.trim().ends_with('%') {
        return super::parse_percent(text).map(Err);
    }
    parse_size(text).map(Ok)
}

/// The shortest exact text of a size: `8GiB`, `1.5GiB`, `1234567B`.
pub fn format_size(bytes: u64) -> String {
    BINARY
        .iter()
        .filter(|(_, worth)| bytes >= *worth)
        .find_map(|(unit, worth)| exact(bytes, *worth).map(|number| format!("{number}{unit}")))
        .unwrap_or_else(|| match bytes {
            0 => "0".to_owned(),
            bytes => format!("{bytes}B"),
        })
}

/// A size for reading, one decimal: `6.0 GiB`, `512.0 MiB`, `37 B`. Rounded down, so it never shows more than there is.
pub fn human_size(bytes: u64) -> String {
    match BINARY.iter().find(|(_, worth)| bytes >= *worth) {
        Some((unit, worth)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*worth);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_letter_is_the_binary_unit() {
        assert_eq!(parse_size("8GiB"), Ok(8 << 30));
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("8g"), Ok(8 << 30));
        assert_eq!(parse_size("8GB"), Ok(8_000_000_000));
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1024B"), Ok(1024));
        assert_eq!(parse_size(" 1.5 GiB "), Ok(3 << 29));
        assert_eq!(parse_size("0"), Ok(0));
    }

    #[test]
    fn a_few_bytes_without_a_unit_are_asked_about() {
        let refused = |text| parse_size(text).unwrap_err().to_string();
        assert_eq!(
            refused("8"),
            "\"8\" means 8 bytes; write 8GiB, or 8B for bytes"
        );
        assert_eq!(
            refused(" 1.5 "),
            "\"1.5\" means 1 byte; write 1.5GiB, or 1B for bytes"
        );
        assert_eq!(
            refused("8192"),
            "\"8192\" means 8192 bytes; write 8192MiB, or 8192B for bytes"
        );
        assert!(refused("1048575").contains("bytes"));
        assert!(refused("0.5").contains("0.5GiB"));
        assert_eq!(parse_size("1048576"), Ok(1 << 20));
        assert_eq!(parse_size("8B"), Ok(8));
        assert_eq!(parse_size("0.0"), Ok(0));
    }

    #[test]
    fn what_is_no_size_says_so() {
        assert_eq!(
            parse_size("8Q").unwrap_err().to_string(),
            format!("\"8Q\" has an unknown unit; use {KNOWN}")
        );
        assert_eq!(
            parse_size("").unwrap_err(),
            TextError::Empty { wanted: WANTED }
        );
        for text in ["G", "-1G", ".5G", "1.G", "1.2.3G", "0x10", "1e9", "٣G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in [
            "99999999999999999999",
            "16777216TiB",
            "999999999999999999999999999G",
        ] {
            assert!(
                matches!(parse_size(text), Err(TextError::OutOfRange { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn a_share_of_a_device_is_a_percentage() {
        assert_eq!(parse_size_or_percent("25%"), Ok(Err(25)));
        assert_eq!(parse_size_or_percent("25M"), Ok(Ok(25 << 20)));
        assert!(parse_size_or_percent("101%").is_err());
    }

    #[test]
    fn a_written_size_reads_back_to_the_same_bytes() {
        for bytes in [
            0,
            1,
            1023,
            1024,
            1025,
            3 << 29,
            8 << 30,
            (8 << 30) + 1,
            999_999_999,
            u64::MAX - 1,
            u64::MAX,
        ] {
            assert_eq!(
                parse_size(&format_size(bytes)),
                Ok(bytes),
                "{}",
                format_size(bytes)
            );
        }
        assert_eq!(format_size(3 << 29), "1.5GiB");
        assert_eq!(human_size(6 << 30), "6.0 GiB");
        assert_eq!(human_size((6 << 30) - 1), "5.9 GiB");
        assert_eq!(human_size(37), "37 B");
    }
}
