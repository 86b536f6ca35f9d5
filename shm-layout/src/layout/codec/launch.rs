//! The settings of a launch as the words of its slot.

use crate::{
    layout::state::Slot,
    protocol::primitive::{AtomicU64, Ordering},
    value::{LAUNCH_WORDS, LaunchShare},
};

impl Slot {
    /// The words of a launch, in the order of the table of settings. The last ones are for settings to come.
    pub(crate) fn launch_words(&self) -> [&AtomicU64; LAUNCH_WORDS] {
        let [a, b, c, d] = &self._reserved;
        [
            &self.launch_share,
            &self.launch_priority,
            &self.launch_on_full,
            &self.launch_evict_after,
            a,
            b,
            c,
            d,
        ]
    }
}

/// Writes a launch into its slot where another process wrote over it; true if one did.
pub(crate) fn restore(launch: &LaunchShare, slot: &Slot) -> bool {
    let words = slot.launch_words().into_iter().zip(launch.encode());
    words.fold(false, |restored, (word, ours)| {
        restored | (word.swap(ours, Ordering::Relaxed) != ours)
    })
}
