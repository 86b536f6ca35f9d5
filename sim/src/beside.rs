//! Kernels of MPS's clients run side by side: who has how many multiprocessors just now.
//!
//! A device gives its multiprocessors to the kernels that run, in the order in which they began; what is left goes to those
//! that wait, first by the client's priority and then by arrival. So a kernel that fills the device makes all that come after
//! it wait for its end, and a priority lets one pass the others that wait but takes nothing from blocks that run. That is what
//! an H100 does (580.159.04). A kernel with more blocks than multiprocessors gives way to a more urgent one whenever some of
//! its blocks end: here at once.
//!
//! Nothing decides for all: each kernel's process looks at the table, and takes by this rule what is its own. The kernel of a
//! process that is stopped ends when it would have ended, and that of a dead one when its slot is swept.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{Beside, Layout};

/// An entry whose process has not looked for so long counts no more while it waits.
const STALE: u64 = 100_000_000;

/// In an owner: the rest of the entry is not written yet.
const FILLING: u64 = 1 << 32;
/// In what it wants: see [`Wants::in_waves`].
const IN_WAVES: u64 = 1 << 40;

/// What a kernel wants.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    /// Multiprocessors, at least one.
    pub multiprocessors: u32,
    /// Lower is more urgent.
    pub priority: u8,
    /// It has more blocks than it has at once, so what it has comes free all the time.
    pub in_waves: bool,
    /// When it could begin.
    pub arrived: u64,
}

/// Takes an entry; `None` while there is none.
pub(crate) fn enter(
    layout: &Layout,
    device: usize,
    slot: usize,
    wants: Wants,
    now: u64,
) -> Option<usize> {
    let kernels = &layout.devices[device].beside;
    let owner = slot as u64 + 1;
    let free = |kernel: &Beside| {
        // ORDER: who left the entry is done with it; pairs with the Release in `leave`.
        kernel
            .owner
            .compare_exchange(0, owner | FILLING, AcqRel, Relaxed)
            .is_ok()
    };
    let at = kernels.iter().position(free)?;
    let kernel = &kernels[at];
    kernel.arrived.store(wants.arrived, Relaxed);
    let waves = if wants.in_waves { IN_WAVES } else { 0 };
    let word = u64::from(wants.multiprocessors) | u64::from(wants.priority) << 32 | waves;
    kernel.wants.store(word, Relaxed);
    kernel.began.store(0, Relaxed);
    kernel.looked.store(now, Relaxed);
    kernel.until.store(u64::MAX, Relaxed);
    // ORDER: publishes the words above; pairs with the Acquire in `share`.
    kernel.owner.store(owner, Release);
    Some(at)
}

/// How many of `all` multiprocessors the kernel at `own` has now.
pub(crate) fn share(layout: &Layout, device: usize, own: usize, all: u32, now: u64) -> u32 {
    let kernels = &layout.devices[device].beside;
    kernels[own].looked.store(now, Relaxed);
    // Those that run keep what they have; then come those that wait, and last what those that run could use beyond it.
    let mut queue: Vec<(u8, u64, u64, usize, u32)> = Vec::new();
    for (at, kernel) in kernels.iter().enumerate() {
        // ORDER: pairs with the Release in `enter`; what it wants is there.
        let owner = kernel.owner.load(Acquire);
        if owner == 0 || owner & FILLING != 0 || at != own && is_over(kernel, now) {
            continue;
        }
        let wants = kernel.wants.load(Relaxed);
        let (arrived, all) = (kernel.arrived.load(Relaxed), wants as u32);
        let priority = wants >> 32 & 0xff;
        match kernel.began.load(Relaxed) {
            0 => queue.push((1, priority, arrived, at, all)),
            _ if wants & IN_WAVES != 0 => queue.push((1, priority, arrived, at, all)),
            began => {
                let has = (kernel.has.load(Relaxed) as u32).min(all);
                queue.push((0, began, arrived, at, has));
                queue.push((2, began, arrived, at, all - has));
            }
        }
    }
    queue.sort_unstable();
    let (mut left, mut given) = (all, 0);
    for (.., at, wants) in queue {
        let part = wants.min(left);
        left -= part;
        given += if at == own { part } else { 0 };
    }
    given
}

/// Whether it has ended by now, though its process has not noticed.
fn is_over(kernel: &Beside, now: u64) -> bool {
    match kernel.until.load(Relaxed) {
        u64::MAX => kernel.looked.load(Relaxed).saturating_add(STALE) < now,
        until => until <= now,
    }
}

/// Says what it has, when it ends if nothing changes, and so that it has begun.
pub(crate) fn says(
    layout: &Layout,
    device: usize,
    own: usize,
    now: u64,
    (has, until): (u32, Option<u64>),
) {
    let kernel = &layout.devices[device].beside[own];
    kernel.has.store(has.into(), Relaxed);
    if until.is_some() && kernel.began.load(Relaxed) == 0 {
        kernel.began.store(now, Relaxed);
    }
    kernel.until.store(until.unwrap_or(u64::MAX), Relaxed);
}

/// Gives the entry back.
pub(crate) fn leave(layout: &Layout, device: usize, own: usize) {
    // ORDER: pairs with the compare-exchange in `enter`.
    layout.devices[device].beside[own].owner.store(0, Release);
}

/// Gives back what a dead process's slot has on all devices. Called under the world's lock.
pub(crate) fn cancel(layout: &Layout, slot: usize) {
    let owner = slot as u64 + 1;
    for kernel in layout.devices.iter().flat_map(|device| &device.beside) {
        if kernel.owner.load(Relaxed) & !FILLING == owner {
            // ORDER: as in `leave`.
            kernel.owner.store(0, Release);
        }
    }
}
