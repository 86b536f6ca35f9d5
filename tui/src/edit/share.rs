//! A process's settings as they are typed: `weight=200`, `priority=5`, `cap=30%`, `on-full=wait`,
//! `evict-after=15m`.

use shm_layout::{Boost, Change, EvictAfter, OnFull, Set, SlotId};

use super::quota::INHERIT;
use crate::text::exit::Failure;
use crate::text::units::{TextError, parse_integer, parse_percent};

/// What an edit changes of a process's share of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShareEdit {
    /// 1 to 1000.
    pub weight: Set<u32>,
    /// -20 to 19.
    pub priority: Set<i32>,
    /// 1 to 100 per cent.
    pub cap: Set<u32>,
    /// Whether it may use the device at all.
    pub paused: Set<bool>,
    /// A priority that ends by itself.
    pub boost: Set<Boost>,
    /// What it does when memory is refused.
    pub on_full: Set<OnFull>,
    /// Whether its memory leaves its devices while it is paused.
    pub evict: Set<bool>,
    /// After which idle time it is evicted.
    pub evict_after: Set<EvictAfter>,
}

/// The keys, as a message names them.
const KEYS: &str = "weight=, priority=, cap=, on-full=, evict-after= or name=";

impl ShareEdit {
    /// The edit for one process.
    pub fn change(self, slot: SlotId) -> Change {
        let Self {
            weight,
            priority,
            cap,
            paused,
            boost,
            on_full,
            evict,
            evict_after,
        } = self;
        Change::ProcessShare {
            slot,
            weight,
            priority,
            cap,
            paused,
            boost,
            on_full,
            evict,
            evict_after,
        }
    }

    /// The same until a time: then the lasting settings below it are back. A priority becomes a boost.
    pub fn until(self, ns: u64) -> Result<Self, Failure> {
        let boost = match self.priority {
            Set::Keep => self.boost,
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
        Ok(Self {
            weight: self.weight.until(ns),
            priority: Set::Keep,
            cap: self.cap.until(ns),
            paused: self.paused.until(ns),
            boost,
            on_full: self.on_full.until(ns),
            evict: self.evict.until(ns),
            evict_after: self.evict_after.until(ns),
        })
    }

    /// Reads one `KEY=VALUE`; a key given twice is refused.
    pub fn read(&mut self, text: &str) -> Result<(), Failure> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{text:?} has no value; use {KEYS}")))?;
        let before = *self;
        self.set(key, value).map_err(Failure::usage)?;
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
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "weight" => {
                self.weight = value(key, text, |text| {
                    Ok(u32::try_from(parse_integer(text, 1, 1000)?).unwrap_or(u32::MAX))
                })?;
            }
            "priority" => {
                self.priority = value(key, text, |text| {
                    Ok(i32::try_from(parse_integer(text, -20, 19)?).unwrap_or(0))
                })?;
            }
            "cap" if text == "none" => self.cap = Set::To(100),
            "cap" => self.cap = value(key, text, parse_percent)?,
            "on-full" => self.on_full = value(key, text, str::parse)?,
            "evict-after" => self.evict_after = value(key, text, str::parse)?,
            _ => return Err(format!("{key:?} is unknown; use {KEYS}")),
        }
        Ok(())
    }
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
    use super::*;

    fn read(texts: &[&str]) -> Result<ShareEdit, Failure> {
        let mut share = ShareEdit::default();
        texts.iter().try_for_each(|text| share.read(text))?;
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
