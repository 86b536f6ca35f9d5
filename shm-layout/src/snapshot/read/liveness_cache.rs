//! Who was seen to live.

use crate::value::SlotId;

/// For how long it is believed that a process lives, at least, as long as the kernel has not marked its death.
const LIVES_NS: u64 = 2_000_000_000;

/// Who was seen to live, and when: a reader asks the kernel for each process seldom. A reader that looks once has an empty one.
#[derive(Clone, Debug, Default)]
pub struct LivenessCache(Vec<(SlotId, u64)>);

impl LivenessCache {
    /// Whether this process was seen to live so short a time ago that it need not be asked for again.
    pub(super) fn is_fresh(&self, id: SlotId, now_ns: u64) -> bool {
        let seen = self.0.get(usize::from(id.index));
        // Not all at once.
        let lasts_ns = LIVES_NS + u64::from(id.index % 8) * LIVES_NS / 8;
        seen.is_some_and(|(of, at)| *of == id && now_ns.saturating_sub(*at) < lasts_ns)
    }

    /// It lives.
    pub(super) fn note(&mut self, id: SlotId, now_ns: u64) {
        let index = usize::from(id.index);
        if self.0.len() <= index {
            self.0.resize(index + 1, (SlotId::default(), 0));
        }
        self.0[index] = (id, now_ns);
    }

    /// It was not seen to live.
    pub(super) fn forget(&mut self, id: SlotId) {
        if let Some(seen) = self.0.get_mut(usize::from(id.index)) {
            *seen = (SlotId::default(), 0);
        }
    }
}
