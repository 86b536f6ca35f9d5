//! What a process asked for at launch, as words.

use super::{source_byte, source_of};
use crate::{
    layout::state::Slot,
    protocol::primitive::Ordering,
    value::{EvictAfter, OnFull, Source, valid_cap, valid_priority, valid_weight},
};

/// What a process asked for at launch, as its slot says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchShare {
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<i32>,
    pub(crate) cap: Option<u32>,
    pub(crate) source: Source,
    pub(crate) on_full: Option<OnFull>,
    pub(crate) evict_after: Option<EvictAfter>,
}

const FAIL: u64 = 1;
const WAIT: u64 = 2;
const WAIT_FOR: u64 = 3;

/// What to do when memory is refused, as a word; zero is not set.
pub(crate) fn on_full_word(on_full: Option<OnFull>) -> u64 {
    match on_full {
        None => 0,
        Some(OnFull::Fail) => FAIL,
        Some(OnFull::Wait) => WAIT,
        Some(OnFull::WaitFor(ns)) => WAIT_FOR | ns << 8,
    }
}

pub(crate) fn on_full_of(word: u64) -> Option<OnFull> {
    let on_full = match word & 0xff {
        FAIL => OnFull::Fail,
        WAIT => OnFull::Wait,
        WAIT_FOR => OnFull::WaitFor(word >> 8),
        _ => return None,
    };
    on_full.is_valid().then_some(on_full)
}

/// An idle time as a word; zero is not set, all ones is never.
pub(crate) fn evict_after_word(after: Option<EvictAfter>) -> u64 {
    match after {
        None => 0,
        Some(EvictAfter::Never) => u64::MAX,
        Some(EvictAfter::Idle(ns)) => ns,
    }
}

pub(crate) fn evict_after_of(word: u64) -> Option<EvictAfter> {
    let after = match word {
        0 => return None,
        u64::MAX => EvictAfter::Never,
        ns => EvictAfter::Idle(ns),
    };
    after.is_valid().then_some(after)
}

impl LaunchShare {
    /// The slot's words.
    pub(crate) fn encode(&self) -> [u64; 4] {
        let share = u64::from(self.weight.unwrap_or(0)) | u64::from(self.cap.unwrap_or(0)) << 32;
        let priority =
            u64::from(self.priority.unwrap_or(0) as u32) | u64::from(self.priority.is_some()) << 32;
        let on_full = on_full_word(self.on_full);
        [
            share,
            priority | source_byte(self.source) << 40,
            on_full,
            evict_after_word(self.evict_after),
        ]
    }

    pub(crate) fn decode(words: [u64; 4]) -> LaunchShare {
        LaunchShare {
            weight: Some(words[0] as u32).filter(|w| valid_weight(*w)),
            cap: Some((words[0] >> 32) as u32).filter(|c| valid_cap(*c)),
            priority: Some(words[1] as u32 as i32)
                .filter(|p| words[1] >> 32 & 1 == 1 && valid_priority(*p)),
            source: source_of(words[1] >> 40),
            on_full: on_full_of(words[2]),
            evict_after: evict_after_of(words[3]),
        }
    }

    /// Writes it into its slot where another process wrote over it; true if one did.
    pub(crate) fn restore(&self, slot: &Slot) -> bool {
        let words = [
            &slot.launch_share,
            &slot.launch_priority,
            &slot.launch_on_full,
            &slot.launch_evict_after,
        ];
        words
            .into_iter()
            .zip(self.encode())
            .fold(false, |restored, (word, ours)| {
                restored | (word.swap(ours, Ordering::Relaxed) != ours)
            })
    }
}
