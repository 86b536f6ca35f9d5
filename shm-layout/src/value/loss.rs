//! The loss of a process's context on a device.

/// The first answer of the driver after which nothing works any more in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Loss {
    /// The driver's error code.
    pub code: u16,
    /// The driver call that got it, by the shim's own numbering.
    pub call: Option<u16>,
    /// Time of the loss.
    pub time_ns: u64,
    /// For how long the process had submitted nothing to the device by then, in milliseconds.
    pub idle_ms: u32,
}
