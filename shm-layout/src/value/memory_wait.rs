//! Memory that is refused, that is waited for, and that is left on a device.

/// The reason that a request waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Blocked {
    /// The process's own quota.
    Quota,
    /// The limit of the process's group.
    Group,
    /// The operator's limit on all processes of the device together.
    Limit,
    /// The device itself.
    #[default]
    Device,
    /// The requests before it in the queue; whether there is room was not tried yet.
    Behind,
}

const KIND: u32 = 0xff;
const RETURN: u32 = 0x100;

impl Blocked {
    /// In one word, as tables and JSON show it.
    pub fn word(self) -> &'static str {
        match self {
            Blocked::Quota => "quota",
            Blocked::Group => "group",
            Blocked::Limit => "limit",
            Blocked::Device => "device",
            Blocked::Behind => "behind",
        }
    }

    pub(crate) fn by(limit: Limit) -> Self {
        match limit {
            Limit::Process => Blocked::Quota,
            Limit::Group => Blocked::Group,
            Limit::Device => Blocked::Limit,
        }
    }

    pub(crate) fn code(self) -> u32 {
        match self {
            Blocked::Quota => 1,
            Blocked::Group => 2,
            Blocked::Limit => 3,
            Blocked::Device => 4,
            Blocked::Behind => 5,
        }
    }

    pub(crate) fn of_code(code: u32) -> Self {
        match code {
            1 => Blocked::Quota,
            2 => Blocked::Group,
            3 => Blocked::Limit,
            5 => Blocked::Behind,
            _ => Blocked::Device,
        }
    }

    pub(crate) fn to_word(self, is_return: bool) -> u32 {
        self.code() | if is_return { RETURN } else { 0 }
    }

    /// Decodes the limit, and whether the memory is one that returns.
    pub(crate) fn of_word(word: u32) -> (Self, bool) {
        (Self::of_code(word & KIND), word & RETURN != 0)
    }
}

/// The request of a process that waits for memory on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct MemoryWait {
    /// Number of bytes.
    pub bytes: u64,
    /// The reason that it waits.
    pub limit: Blocked,
    /// True if the process had the memory before and restores it.
    pub is_return: bool,
    /// Since when.
    pub since_ns: u64,
    /// End of the wait, if it has one.
    pub until_ns: Option<u64>,
    /// Number of the process's ticket in the queue.
    pub ticket: u64,
}

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
