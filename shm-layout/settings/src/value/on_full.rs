//! What a process does when it is refused memory.

/// What happens to an allocation that a quota, a group's quota or the device would refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It fails at once.
    #[default]
    Fail,
    /// It waits in line until there is room.
    Wait,
    /// It waits in line so many nanoseconds at most, and then fails.
    WaitFor(u64),
}

impl OnFull {
    /// The shortest and the longest wait.
    pub const SPANS: std::ops::RangeInclusive<u64> = 1_000_000..=30 * 24 * 3_600_000_000_000;

    /// Whether it waits at all.
    pub fn waits(self) -> bool {
        self != OnFull::Fail
    }

    /// When a wait that begins now ends at the latest; `None` is never.
    pub fn until(self, now_ns: u64) -> Option<u64> {
        match self {
            OnFull::Fail => Some(now_ns),
            OnFull::Wait => None,
            OnFull::WaitFor(ns) => Some(now_ns.saturating_add(ns)),
        }
    }

    /// Whether it makes sense.
    pub fn is_valid(self) -> bool {
        !matches!(self, OnFull::WaitFor(ns) if !Self::SPANS.contains(&ns))
    }
}
