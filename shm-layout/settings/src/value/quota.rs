//! Memory quotas: what is set, and what is in force.

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
