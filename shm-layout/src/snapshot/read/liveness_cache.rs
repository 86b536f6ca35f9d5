//! A cache of processes that were seen alive.

use crate::value::SlotId;

/// For how long it is believed that a process lives, at least, as long as the kernel has not marked its death.
const LIVES_NS: u64 = 2_000_000_000;

/// The processes that were seen alive, and when, so that a reader seldom asks the kernel. A reader that takes one snapshot
/// starts with an empty cache.
#[derive(Clone, Debug, Default)]
pub struct LivenessCache(Vec<(SlotId, u64)>);

impl LivenessCache {
    /// Returns true if this process was seen alive so recently that the kernel need not be asked.
    pub(super) fn is_fresh(&self, id: SlotId, now_ns: u64) -> bool {
        let seen = self.0.get(usize::from(id.index));
        // Not all at once.
        let lasts_ns = LIVES_NS + u64::from(id.index % 8) * LIVES_NS / 8;
        seen.is_some_and(|(of, at)| *of == id && now_ns.saturating_sub(*at) < lasts_ns)
    }

    /// Notes that the process is alive.
    pub(super) fn note(&mut self, id: SlotId, now_ns: u64) {
        let index = usize::from(id.index);
        if self.0.len() <= index {
            self.0.resize(index + 1, (SlotId::default(), 0));
        }
        self.0[index] = (id, now_ns);
    }

    /// Removes a process that was not seen alive.
    pub(super) fn forget(&mut self, id: SlotId) {
        if let Some(seen) = self.0.get_mut(usize::from(id.index)) {
            *seen = (SlotId::default(), 0);
        }
    }
}
