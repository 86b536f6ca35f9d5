//! Memory quotas as they are typed into an edit.

use shm_layout::{QuotaValue, clock};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::units::{self, human_size};

/// Word of the quota.
pub const MEMORY: &str = "memory";
/// Message for an empty value.
pub const EMPTY: &str = "write a size, a share, none, max or inherit";

/// Reads a quota: a size, a percentage, `none` or `inherit`.
pub fn parse(text: &str) -> Result<QuotaValue, Failure> {
    text.parse::<QuotaValue>()
        .map_err(|error| Failure::usage(format!("quota: {error}")))
}

/// Reads a quota for one device of `total` bytes whose quota is `now`. Besides a quota it may be `max`, or `+2G` or `-10%`
/// relative to the present value.
pub fn parse_for(text: &str, now: Option<u64>, total: u64) -> Result<QuotaValue, String> {
    if let Some(more) = text.strip_prefix('+') {
        return step(more, now, total, u64::saturating_add);
    }
    if let Some(less) = text.strip_prefix('-') {
        return step(less, now, total, u64::saturating_sub);
    }
    match text {
        "" => Err(EMPTY.into()),
        "default" => Ok(QuotaValue::Inherit),
        "max" => Ok(QuotaValue::Bytes(total)),
        text => match text
            .parse::<QuotaValue>()
            .map_err(|error| error.to_string())?
        {
            QuotaValue::Bytes(bytes) if total > 0 && bytes > total => Err(format!(
                "the device has only {}; write none for no limit",
                human_size(total)
            )),
            value => Ok(value),
        },
    }
}

fn step(
    text: &str,
    now: Option<u64>,
    total: u64,
    apply: fn(u64, u64) -> u64,
) -> Result<QuotaValue, String> {
    let now = now.ok_or("there is no quota yet to start from; write a size")?;
    let by = units::parse_amount(text)
        .map_err(|error| error.to_string())?
        .of_device(now)
        .ok_or("write a size or a share after the sign")?;
    let bytes = apply(now, by);
    if bytes == 0 {
        let now = human_size(now);
        return Err(format!(
            "that leaves nothing of its {now}; write 0 to refuse every allocation"
        ));
    }
    Ok(QuotaValue::Bytes(if total > 0 {
        bytes.min(total)
    } else {
        bytes
    }))
}

/// Reads the value of `--for`. Returns the end of the edit on the segments' clock.
pub fn parse_until(text: &str) -> Result<u64, Failure> {
    match units::parse_duration(text) {
        Ok(0) => Err(Failure::usage(
            "--for: 0 would change nothing; give a time such as 10m",
        )),
        Ok(ns) => Ok(clock::now().saturating_add(ns)),
        Err(_) if text.starts_with('-') => Err(Failure::usage(format!(
            "--for: {text:?} is no time from now; give one such as 10m"
        ))),
        Err(error) => Err(Failure::usage(format!("--for: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_shares_and_steps_are_understood() {
        let read = |text| parse_for(text, Some(8 * GIB), 100 * GIB);
        assert_eq!(read("32G"), Ok(QuotaValue::Bytes(32 * GIB)));
        assert_eq!(read("25%"), Ok(QuotaValue::Percent(25)));
        assert_eq!(read("+2G"), Ok(QuotaValue::Bytes(10 * GIB)));
        assert_eq!(read("-50%"), Ok(QuotaValue::Bytes(4 * GIB)));
        assert_eq!(read("max"), Ok(QuotaValue::Bytes(100 * GIB)));
        assert_eq!(read("none"), Ok(QuotaValue::Unlimited));
        assert_eq!(read("inherit"), Ok(QuotaValue::Inherit));
        assert!(read("200G").unwrap_err().contains("has only"));
        assert!(read("8Q").is_err());
        assert_eq!(
            read("-8G").unwrap_err(),
            "that leaves nothing of its 8.0 GiB; write 0 to refuse every allocation"
        );
        assert_eq!(read("-9G"), read("-8G"));
        assert!(read("").is_err());
        assert!(parse_for("+2G", None, 100 * GIB).is_err());
    }
}
