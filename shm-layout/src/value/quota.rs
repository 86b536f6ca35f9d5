//! Refusals of memory, and the room that is left on a device.

/// The limit that refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The process's quota.
    Process,
    /// The limit of the process's group.
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

/// A device's memory as a process under limits sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Bytes that still may be reserved.
    pub room: u64,
    /// Bytes in all: the process's quota, or under a shared limit the bytes that it holds and the room that the limit leaves.
    pub whole: u64,
}
