//! Removal of what dead processes held in a world: their slots, their memory and their work.

use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::layout::Layout;
use crate::locks::Lives;
use crate::slots::{FREE, LEAVING, clear, forget_memory, is_gone, taken_slots};
use crate::{concurrency, engine};

/// Frees the slots of dead processes and completes an interrupted sweep. The caller holds the world's lock.
pub(crate) fn sweep(layout: &'static Layout, path: &Path) {
    let lives = Lives::of(path);
    for (slot, process) in taken_slots(layout) {
        let state = process.state.load(Relaxed);
        let gone = state & 0xff == LEAVING || is_gone(process, &lives, slot);
        if !gone {
            continue;
        }
        // ORDER: from here on the process is not counted; readers of `state` pair by Acquire.
        process.state.store(state & !0xff | LEAVING, Release);
        engine::cancel(layout, slot);
        concurrency::cancel(layout, slot);
        if lives.has(slot) {
            // The kernel still tears down the address space. Its memory no longer counts, but the slot stays taken until its
            // byte is free.
            forget_memory(process);
            continue;
        }
        clear(process);
        // ORDER: publishes the cleared words to the next claimant.
        process.state.store(state & !0xff | FREE, Release);
    }
}

/// Returns true if the world has a living member. The caller holds the world's lock.
pub(crate) fn anyone_alive(layout: &'static Layout, path: &Path) -> bool {
    sweep(layout, path);
    taken_slots(layout).next().is_some()
}
