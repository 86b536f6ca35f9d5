//! The reasons for stepping aside. Each passes the call to the driver untouched; most are counted.

/// Why a call was not managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// `GPUSHARE_DISABLE` is set, the segments could not be opened, or every slot is taken.
    Unmanaged,
    /// The call came from within a hook, or from the driver itself.
    Reentrant,
    /// The process is ending.
    Leaving,
    /// The process is evicted: the call waits until it is back.
    Away,
    /// No context is current: the driver will say so itself.
    NoContext,
    /// The device has no entry in our slot.
    UnknownDevice,
    /// The stream is capturing: the graph's launch is what counts.
    Capturing,
    /// A launch on several devices lost the lock of one of them each time it had waited for the next.
    Crowded,
}
