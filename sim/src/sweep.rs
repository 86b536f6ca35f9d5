//! What the dead held in a world: their slots, their memory and their work.

use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::layout::Layout;
use crate::slots::{FREE, LEAVING, clear, forget_memory, is_gone, taken_slots};
use crate::{beside, engine, locks};

/// Under the lock: frees the slots of the dead, and finishes what a killed sweeper left.
pub(crate) fn sweep(layout: &'static Layout, path: &Path) {
    for (slot, process) in taken_slots(layout) {
        let state = process.state.load(Relaxed);
        let gone = state & 0xff == LEAVING || is_gone(process, path, slot);
        if !gone {
            continue;
        }
        // ORDER: from here on this process is not counted; readers of `state` pair by Acquire.
        process.state.store(state & !0xff | LEAVING, Release);
        engine::cancel(layout, slot);
        beside::cancel(layout, slot);
        if locks::alive(path, slot) {
            // Its address space is still being torn down; nothing of it counts any more, but the slot
            // stays taken until its byte is free.
            forget_memory(process);
            continue;
        }
        clear(process);
        // ORDER: publishes the cleared words to the next claimant.
        process.state.store(state & !0xff | FREE, Release);
    }
}

/// Under the lock: does anyone live in this world?
pub(crate) fn anyone_alive(layout: &'static Layout, path: &Path) -> bool {
    sweep(layout, path);
    taken_slots(layout).next().is_some()
}
