//! Sharing of a device's multiprocessors among the kernels of MPS clients, which run concurrently.
//!
//! A device gives its multiprocessors to the running kernels, in the order in which they began. The rest goes to the waiting
//! kernels, first by their client's priority and then by arrival. A kernel that fills the device therefore delays every later
//! kernel until it ends. A priority lets a kernel overtake other waiting kernels but takes no multiprocessor from running
//! blocks. This is what an H100 does (580.159.04). A kernel with more blocks than multiprocessors frees some of them whenever a
//! block ends, and a more urgent kernel takes those; the simulator lets it take them at once.
//!
//! There is no scheduler process: the process of each kernel reads the table and applies this rule to its own kernel. The
//! kernel of a stopped process ends at its normal time. The kernel of a dead process ends when its slot is swept.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{ConcurrentKernel, Layout};

/// Time after which an entry that its process no longer refreshes stops counting as waiting.
const STALE: u64 = 100_000_000;

/// Flag in `owner`: the rest of the entry is not written yet.
const FILLING: u64 = 1 << 32;
/// Flag in `wants` for [`Wants::in_waves`].
const IN_WAVES: u64 = 1 << 40;

/// The multiprocessors that a kernel asks for.
#[derive(Clone, Copy)]
pub(crate) struct Wants {
    /// Number of multiprocessors, at least one.
    pub multiprocessors: u32,
    /// Priority of the client; lower is more urgent.
    pub priority: u8,
    /// True if the kernel has more blocks than multiprocessors, so that it frees some of them all the time.
    pub in_waves: bool,
    /// Time from which the kernel could run.
    pub arrived: u64,
}

/// Takes an entry. Returns `None` if the table is full.
pub(crate) fn enter(
    layout: &Layout,
    device: usize,
    slot: usize,
    wants: Wants,
    now: u64,
) -> Option<usize> {
    let kernels = &layout.devices[device].concurrent;
    let owner = slot as u64 + 1;
    let free = |kernel: &ConcurrentKernel| {
        // ORDER: pairs with the Release in `leave`: the previous owner is done with the entry.
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

/// Returns how many of `all` multiprocessors the kernel at `own` has now.
pub(crate) fn share(layout: &Layout, device: usize, own: usize, all: u32, now: u64) -> u32 {
    let kernels = &layout.devices[device].concurrent;
    kernels[own].looked.store(now, Relaxed);
    // Running kernels keep what they have. Then come the waiting kernels, and last what running kernels could use in addition.
    let mut queue: Vec<(u8, u64, u64, usize, u32)> = Vec::new();
    for (at, kernel) in kernels.iter().enumerate() {
        // ORDER: pairs with the Release in `enter`, which publishes `wants`.
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

/// Returns true if the kernel has ended although its process has not noticed yet.
fn is_over(kernel: &ConcurrentKernel, now: u64) -> bool {
    match kernel.until.load(Relaxed) {
        u64::MAX => kernel.looked.load(Relaxed).saturating_add(STALE) < now,
        until => until <= now,
    }
}

/// Records how many multiprocessors the kernel has, when it ends at this rate, and when it began.
pub(crate) fn says(
    layout: &Layout,
    device: usize,
    own: usize,
    now: u64,
    (has, until): (u32, Option<u64>),
) {
    let kernel = &layout.devices[device].concurrent[own];
    kernel.has.store(has.into(), Relaxed);
    if until.is_some() && kernel.began.load(Relaxed) == 0 {
        kernel.began.store(now, Relaxed);
    }
    kernel.until.store(until.unwrap_or(u64::MAX), Relaxed);
}

/// Gives the entry back.
pub(crate) fn leave(layout: &Layout, device: usize, own: usize) {
    // ORDER: pairs with the compare-exchange in `enter`.
    layout.devices[device].concurrent[own]
        .owner
        .store(0, Release);
}

/// Frees the entries of a dead process's slot on all devices. The caller holds the world's lock.
pub(crate) fn cancel(layout: &Layout, slot: usize) {
    let owner = slot as u64 + 1;
    for kernel in layout.devices.iter().flat_map(|device| &device.concurrent) {
        if kernel.owner.load(Relaxed) & !FILLING == owner {
            // ORDER: as in `leave`.
            kernel.owner.store(0, Release);
        }
    }
}
