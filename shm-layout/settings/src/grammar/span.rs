//! Spans of time, in nanoseconds.

use super::TextError;
use super::number::{Quantity, exact};

const WANTED: &str = "a time such as 5ms, 100us or 2s";
const KNOWN: &str = "ns, us, ms, s, m (minutes), h";

/// Units, largest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a span of time: `100us`, `5ms`, `1.5s`, `10m`. Only `0` needs no unit.
pub fn parse_duration(text: &str) -> Result<u64, TextError> {
    let quantity = Quantity::split(text, WANTED)?;
    let unit = match quantity.unit {
        "µs" | "μs" => "us",
        "" if quantity.times(1) == Some(0) => "ns",
        "" => {
            let text = text.trim().to_owned();
            return Err(TextError::NoTimeUnit { text });
        }
        unit => unit,
    };
    let Some((_, worth)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(TextError::UnknownUnit {
            text: text.trim().to_owned(),
            known: KNOWN,
        });
    };
    quantity.times(*worth).ok_or_else(|| TextError::OutOfRange {
        text: text.trim().to_owned(),
        least: "0".into(),
        most: format!("{}h", u64::MAX / UNITS[0].1),
    })
}

/// The shortest exact text of a span: `5ms`, `1.5s`, `100us`.
pub fn format_duration(ns: u64) -> String {
    if ns == 0 {
        return "0".into();
    }
    UNITS
        .iter()
        .filter(|(_, worth)| ns >= *worth)
        .find_map(|(unit, worth)| exact(ns, *worth).map(|number| format!("{number}{unit}")))
        .unwrap_or_else(|| format!("{ns}ns"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_with_their_unit() {
        assert_eq!(parse_duration("5ms"), Ok(5_000_000));
        assert_eq!(parse_duration("100us"), Ok(100_000));
        assert_eq!(parse_duration("100µs"), Ok(100_000));
        assert_eq!(parse_duration("1.5s"), Ok(1_500_000_000));
        assert_eq!(parse_duration("10m"), Ok(600_000_000_000));
        assert_eq!(parse_duration("0"), Ok(0));
    }

    #[test]
    fn a_span_without_a_unit_is_refused() {
        assert_eq!(
            parse_duration("5").unwrap_err().to_string(),
            "\"5\" has no unit; write 5ms, 5s or 5m (minutes)"
        );
        assert_eq!(
            parse_duration("5 min").unwrap_err().to_string(),
            format!("\"5 min\" has an unknown unit; use {KNOWN}")
        );
        for text in ["", "ms", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["99999999999h", "999999999999999999999999s"] {
            assert_eq!(
                parse_duration(text).unwrap_err().to_string(),
                format!("{text:?} is out of range; must be between 0 and 5124095h")
            );
        }
    }

    #[test]
    fn a_written_span_reads_back_to_the_same_time() {
        for ns in [
            0,
            1,
            999,
            100_000,
            5_000_000,
            1_234_567,
            1_500_000_000,
            90_000_000_000,
            u64::MAX,
        ] {
            assert_eq!(
                parse_duration(&format_duration(ns)),
                Ok(ns),
                "{}",
                format_duration(ns)
            );
        }
        assert_eq!(format_duration(5_000_000), "5ms");
    }
}
