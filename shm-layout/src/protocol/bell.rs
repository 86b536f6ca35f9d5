//! A bell that is rung by a system call only if a listener sleeps, on one futex word.
//!
//! ```text
//!   who sleeps                          who strikes
//!   seen = word |= LISTENING            what there is to see
//!   look whether there is anything      old = word; word = (old + COUNT) & !LISTENING
//!   sleep while word == seen            old had LISTENING? wake
//! ```
//!
//! Both change the word by one atomic step, so one comes first. If the striker does, the listener sees its news when it looks.
//! If the listener does, the striker sees that it has to wake, and the word differs from the value that the sleeper saw. A
//! listener that died leaves its mark, which costs one needless wake-up. A striker that is killed between its stroke and the
//! wake-up leaves the listener asleep until its own next poll, at most one keeper's tick later.

use crate::protocol::primitive::{AtomicU32, Ordering};

/// A listener may be asleep on the word.
const LISTENING: u32 = 1;
/// The increment of one stroke, above [`LISTENING`].
const COUNT: u32 = 2;

/// Starts to listen: from here on strokes wake this process. Returns the value to sleep on; look *after* this call and before
/// the sleep.
pub fn listen(word: &AtomicU32) -> u32 {
    // ORDER: Acquire pairs with the Release in strike: what was done before a stroke that we were too late for is seen.
    word.fetch_or(LISTENING, Ordering::Acquire) | LISTENING
}

/// Returns true if a process began to listen since the last stroke.
pub fn has_listener(word: &AtomicU32) -> bool {
    word.load(Ordering::Relaxed) & LISTENING != 0
}

/// Returns true if a process began to listen since the last stroke. The caller has just changed the watched word by a
/// [`Ordering::SeqCst`] read-modify-write.
#[inline(always)]
pub fn has_listener_now(word: &AtomicU32) -> bool {
    // ORDER: SeqCst, behind that change; pairs with the fence in line::listen.
    word.load(Ordering::SeqCst) & LISTENING != 0
}

/// Strikes the bell after a change. Returns true if the sleepers on the word have to be woken.
#[must_use = "a sleeper that is not woken sleeps on"]
pub fn strike(word: &AtomicU32) -> bool {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let new = old.wrapping_add(COUNT) & !LISTENING;
        // ORDER: Release publishes what there is to see.
        match word.compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return old & LISTENING != 0,
            Err(now) => old = now,
        }
    }
}
