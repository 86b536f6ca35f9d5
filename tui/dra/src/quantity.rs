//! Amounts as Kubernetes writes them: `8Gi`, `500M`, `1e9`, `1.5Ti`.

/// Value of each unit in thousandths.
const UNITS: [(&str, u128); 14] = [
    ("Ki", 1000 << 10),
    ("Mi", 1000 << 20),
    ("Gi", 1000 << 30),
    ("Ti", 1000 << 40),
    ("Pi", 1000 << 50),
    ("Ei", 1000 << 60),
    ("m", 1),
    ("", 1000),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
];

/// Parses an amount to whole bytes. Returns `None` if it is no amount or does not fit.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let (number, unit) = text.split_at(text.find(|c| !digits(c)).unwrap_or(text.len()));
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') || part.len() > 9 {
        return None;
    }
    let tens = |power: usize| 10u128.checked_pow(u32::try_from(power).ok()?);
    let (worth, up) = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, worth)) => (*worth, 0),
        None => (1000, unit.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let number: u128 = format!("0{whole}{part}").parse().ok()?;
    let bytes = number.checked_mul(worth)?.checked_mul(tens(up)?)? / 1000 / tens(part.len())?;
    u64::try_from(bytes).ok()
}

/// Formats bytes in whole mebibytes, which divide every GPU's memory.
pub fn mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_read_in_each_way_of_writing_it() {
        for (text, wanted) in [
            ("8Gi", 8 << 30),
            ("8589934592", 8 << 30),
            ("8589934592000m", 8 << 30),
            ("1.5Gi", 3 << 29),
            ("500M", 500_000_000),
            ("2e9", 2_000_000_000),
            ("2E9", 2_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            (".5k", 500),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Some(wanted), "{text}");
        }
        for text in [
            "", "Gi", "-1", "1GiB", "1 Gi", "1..2", "99Ei", "1e99", "1.2.3", "e",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(bytes(&mebibytes(81_559 << 20)), Some(81_559 << 20));
    }
}
