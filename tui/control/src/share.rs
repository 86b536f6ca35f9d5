//! A process's settings as they are typed: `weight=200`, `priority=5`, `cap=30%`, `on-full=wait`,
//! `evict-after=15m`.

use shm_layout::{Boost, Set, ShareEdit};

use super::quota::INHERIT;
use gpushare_base::text::exit::Failure;
use gpushare_base::text::units::{TextError, parse_integer, parse_percent};

/// Keys, for a message.
const KEYS: &str = "weight=, priority=, cap=, on-full=, evict-after= or name=";

/// Limits the edit to a time. Afterwards the permanent settings are back. A priority becomes a boost.
pub fn until(share: ShareEdit, ns: u64) -> Result<ShareEdit, Failure> {
    let boost = match share.priority {
        Set::Keep => share.boost,
        Set::To(priority) => Set::To(Boost {
            priority,
            until_ns: ns,
        }),
        Set::Inherit | Set::For(..) => {
            return Err(Failure::usage(
                "--for makes a boost of priority=N; give it a number from -20 to 19",
            ));
        }
    };
    Ok(ShareEdit {
        weight: share.weight.until(ns),
        priority: Set::Keep,
        cap: share.cap.until(ns),
        paused: share.paused.until(ns),
        boost,
        on_full: share.on_full.until(ns),
        evict: share.evict.until(ns),
        evict_after: share.evict_after.until(ns),
    })
}

/// Reads one `KEY=VALUE`; a key given twice is refused.
pub fn read(share: &mut ShareEdit, text: &str) -> Result<(), Failure> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("{text:?} has no value; use {KEYS}")))?;
    let before = *share;
    set(share, key, value).map_err(Failure::usage)?;
    let twice = match key {
        "weight" => before.weight != Set::Keep,
        "priority" => before.priority != Set::Keep,
        "on-full" => before.on_full != Set::Keep,
        "evict-after" => before.evict_after != Set::Keep,
        _ => before.cap != Set::Keep,
    };
    if twice {
        return Err(Failure::usage(format!("{key}= is given twice")));
    }
    Ok(())
}

/// Sets one value by its key; `inherit` unsets it, and a cap of `none` allows the whole device.
pub fn set(share: &mut ShareEdit, key: &str, text: &str) -> Result<(), String> {
    match key {
        "weight" => {
            share.weight = value(key, text, |text| {
                Ok(u32::try_from(parse_integer(text, 1, 1000)?).unwrap_or(u32::MAX))
            })?;
        }
        "priority" => {
            share.priority = value(key, text, |text| {
                Ok(i32::try_from(parse_integer(text, -20, 19)?).unwrap_or(0))
            })?;
        }
        "cap" if text == "none" => share.cap = Set::To(100),
        "cap" => share.cap = value(key, text, parse_percent)?,
        "on-full" => share.on_full = value(key, text, str::parse)?,
        "evict-after" => share.evict_after = value(key, text, str::parse)?,
        _ => return Err(format!("{key:?} is unknown; use {KEYS}")),
    }
    Ok(())
}

fn value<T>(
    key: &str,
    text: &str,
    read: impl Fn(&str) -> Result<T, TextError>,
) -> Result<Set<T>, String> {
    match text {
        INHERIT | "none" => Ok(Set::Inherit),
        text => read(text)
            .map(Set::To)
            .map_err(|error| format!("{key}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::OnFull;

    use super::*;

    fn read(texts: &[&str]) -> Result<ShareEdit, Failure> {
        let mut share = ShareEdit::default();
        texts
            .iter()
            .try_for_each(|text| super::read(&mut share, text))?;
        Ok(share)
    }

    #[test]
    fn only_what_is_said_changes() {
        let share = read(&["weight=200", "cap=inherit"]).expect("well formed");
        assert_eq!(
            share,
            ShareEdit {
                weight: Set::To(200),
                cap: Set::Inherit,
                ..ShareEdit::default()
            }
        );
        let on_full = read(&["on-full=wait=10m"]).expect("well formed").on_full;
        assert_eq!(on_full, Set::To(OnFull::WaitFor(600_000_000_000)));
        assert_eq!(read(&["cap=none"]).expect("well formed").cap, Set::To(100));
    }

    #[test]
    fn values_out_of_range_and_unknown_keys_are_refused() {
        for text in [
            "weight=0",
            "weight=1001",
            "priority=20",
            "cap=0",
            "cap=101%",
            "speed=1",
            "on-full=later",
            "on-full=wait=5",
            "evict-after=soon",
            "evict-after=1ms",
            "weight",
        ] {
            assert!(read(&[text]).is_err(), "{text}");
        }
        assert!(read(&["weight=1", "weight=2"]).is_err());
        assert!(read(&["on-full=wait", "on-full=fail"]).is_err());
    }
}
