//! A process's share of a device.

use super::{OnFull, Source};

/// A process's share of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Share {
    /// 1 to 1000.
    pub weight: u32,
    /// -20 to 19, higher first; a boost is included while it lasts.
    pub priority: i32,
    /// Most of the device's time, per cent.
    #[cfg_attr(feature = "serde", serde(rename = "cap_percent"))]
    pub cap: Option<u32>,
    /// Not eligible until resumed.
    pub paused: bool,
    /// A boost is in force until then.
    pub boost_until_ns: Option<u64>,
    /// When the first of its settings that end by themselves does so.
    #[cfg_attr(feature = "serde", serde(rename = "share_until_ns"))]
    pub until_ns: Option<u64>,
    /// What it does when memory is refused.
    pub on_full: OnFull,
    /// While it is paused its memory is to leave its devices.
    pub evict: bool,
    /// Nanoseconds of idleness after which it is evicted.
    #[cfg_attr(feature = "serde", serde(rename = "evict_after_ns"))]
    pub evict_after: Option<u64>,
    /// Who set it.
    #[cfg_attr(feature = "serde", serde(rename = "share_source"))]
    pub source: Source,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 100,
            priority: 0,
            cap: None,
            paused: false,
            boost_until_ns: None,
            until_ns: None,
            on_full: OnFull::Fail,
            evict: false,
            evict_after: None,
            source: Source::Default,
        }
    }
}

impl Share {
    /// The part that the lock's arithmetic needs.
    pub fn pace(&self) -> Pace {
        Pace {
            weight: self.weight,
            cap: self.cap,
        }
    }
}

/// The part of a share that the lock's arithmetic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Weight under the order `fair`.
    pub weight: u32,
    /// Most of the device's time, per cent.
    pub cap: Option<u32>,
}

/// Reports whether a weight is in range.
pub fn valid_weight(weight: u32) -> bool {
    (1..=1000).contains(&weight)
}

/// Reports whether a priority is in range.
pub fn valid_priority(priority: i32) -> bool {
    (-20..=19).contains(&priority)
}

/// Reports whether a cap is in range.
pub fn valid_cap(cap: u32) -> bool {
    (1..=100).contains(&cap)
}
