//! Memory quotas: what is set, what is in force, what a refusal says.

use super::Source;

/// A memory quota the operator sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaValue {
    /// Not set here: what the launch, group or default says.
    #[default]
    Inherit,
    /// No limit.
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
}

impl QuotaValue {
    /// As bytes on a device of so many: `None` is "not set here", `Some(None)` is unlimited.
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

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The process's quota.
    Process,
    /// Its group's.
    Group,
    /// The device's.
    Device,
}

/// An allocation refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// By which limit.
    pub limit: Limit,
    /// Bytes held under that limit.
    pub used: u64,
    /// The limit.
    pub quota: u64,
    /// Bytes asked for.
    pub asked: u64,
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
    /// Who set it.
    #[cfg_attr(feature = "serde", serde(rename = "quota_source"))]
    pub source: Source,
}

/// What a process may believe of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Bytes that still may be reserved.
    pub room: u64,
    /// Bytes in all: the process's quota, else what it holds and what a limit it shares with others leaves it.
    pub whole: u64,
}
