//! Sizes, times, percentages and policies as the tools read and write them.
//!
//! The grammar itself is shared with the preloaded library (`shm_layout::text`). This module adds the forms for a screen,
//! which have a fixed width and one unit.

use std::fmt::Display;

pub use shm_layout::text::{
    Amount, PolicyEdit, TextError, format_duration, format_size, human_size, parse_amount,
    parse_duration, parse_integer, parse_memory_list, parse_percent, parse_policy, parse_size,
};

/// Units of a short size, largest first.
const UNITS: [(u64, char); 5] = [
    (1 << 40, 'T'),
    (1 << 30, 'G'),
    (1 << 20, 'M'),
    (1 << 10, 'K'),
    (1, 'B'),
];

/// Formats a size in at most seven columns: `6.0G`, `512M`, `37B`.
pub fn short_size(bytes: u64) -> String {
    in_unit(bytes, bytes)
}

/// Formats a size in the unit of another, so that the two compare at a glance: `1024M` beside `1000M`. One that is many
/// times as large keeps its own unit.
pub fn short_size_like(bytes: u64, other: u64) -> String {
    match other < bytes / 8 {
        true => short_size(bytes),
        false => in_unit(bytes, other),
    }
}

/// Formats a size in the unit that fits another.
fn in_unit(bytes: u64, other: u64) -> String {
    let fits = UNITS.iter().find(|(worth, _)| other >= *worth);
    let (worth, unit) = fits.unwrap_or(&(1, 'B'));
    let tenths = u128::from(bytes) * 10 / u128::from(*worth);
    if tenths >= 1000 || tenths.is_multiple_of(10) && *unit != 'G' && *unit != 'T' {
        format!("{}{unit}", tenths / 10)
    } else {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }
}

/// Formats a time in at most six columns: `350ms`, `1.1s`, `4m12s`, `3h07m`, `2d04h`.
pub fn short_time(ns: u64) -> String {
    let us = ns / 1_000;
    let (ms, s) = (us / 1_000, us / 1_000_000);
    match () {
        () if ns == 0 => "0".into(),
        () if us < 1 => format!("{ns}ns"),
        () if ms < 1 => format!("{us}us"),
        () if ms < 10 => format!("{ms}.{}ms", us / 100 % 10),
        () if s < 1 => format!("{ms}ms"),
        () if s < 60 => format!("{s}.{}s", ms / 100 % 10),
        () if s < 3_600 => format!("{}m{:02}s", s / 60, s % 60),
        () if s < 86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        () => format!("{}d{:02}h", s / 86_400, s / 3_600 % 24),
    }
}

/// Formats a count in at most five columns: `940`, `18.4k`, `2.1M`.
pub fn short_count(count: u64) -> String {
    for (worth, unit) in [(1_000_000_000, 'G'), (1_000_000, 'M'), (1_000, 'k')] {
        if count >= worth {
            let tenths = u128::from(count) * 10 / worth as u128;
            return if tenths >= 1000 {
                format!("{}{unit}", tenths / 10)
            } else {
                format!("{}.{}{unit}", tenths / 10, tenths % 10)
            };
        }
    }
    count.to_string()
}

/// Writes a count with its noun: `1 time`, `3 times`.
pub fn some<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let end = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_keep_their_width() {
        for shift in 0..64 {
            let value = (1_u64 << shift) | ((1_u64 << shift).wrapping_sub(1) / 3);
            assert!(short_size(value).len() <= 9, "{}", short_size(value));
            assert!(short_time(value).len() <= 10, "{}", short_time(value));
        }
        assert_eq!(short_size(6 << 30), "6.0G");
        assert_eq!(short_size(512 << 20), "512M");
        assert_eq!(short_size(37), "37B");
        assert_eq!(short_size(0), "0B");
        assert_eq!(short_size_like(1 << 30, 1000 << 20), "1024M");
        assert_eq!(short_size_like(512 << 20, 3 << 29), "0.5G");
        assert_eq!(short_size_like(8 << 30, 600 << 20), "8.0G");
        assert_eq!(short_size_like(1 << 30, 0), "1.0G");
        assert_eq!(short_time(350_000_000), "350ms");
        assert_eq!(short_time(1_100_000_000), "1.1s");
        assert_eq!(short_time(252_000_000_000), "4m12s");
        assert_eq!(short_time(5_200_000), "5.2ms");
        assert_eq!(short_count(18_400), "18.4k");
        assert_eq!(short_count(940), "940");
    }
}
