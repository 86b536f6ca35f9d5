//! Tracking: the tables of a managed process about its memory. Each table is plain data with its own lock. No lock is
//! held over a driver call, except those of the swap buffer, of the pending frees and of sealed streams.
//!
//! The hooks of the memory calls ([`hooks::memory`](crate::hooks::memory)) write and read these tables.

pub mod allocation_map;
pub mod capture;
pub mod graph;
pub mod host_swap_buffer;
pub mod nvml;
pub mod pending_frees;
pub mod physical;
pub mod pool;
pub mod record;
pub mod sparse;
pub mod swappable;
pub mod untracked_frees;

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use gpushare_abi::types::CUdevice;
use shm_layout::DEVICES_PER_PROCESS;

/// The tables of a managed process about its memory.
#[derive(Default)]
pub struct Tracking {
    /// The current allocations.
    pub allocations: allocation_map::AllocationMap,
    /// The frees while records are out of that map.
    pub untracked_frees: untracked_frees::UntrackedFrees,
    /// Physical memory, and its references.
    pub physical: physical::PhysicalTable,
    /// The physical memory to which tiles of sparse arrays are mapped.
    pub sparse: sparse::SparseMappings,
    /// The parts of large allocations that can be evicted without the driver's checkpoint.
    pub swappable: swappable::SwappableAllocations,
    /// The host memory to which such allocations are copied.
    pub swap_buffer: host_swap_buffer::SharedSwapBuffer,
    /// The location of each pool's memory.
    pub pools: pool::Homes,
    /// The pools that may keep freed memory.
    pub caching: pool::Caching,
    /// The frees in stream order that their streams may not have reached.
    pub pending_frees: pending_frees::PendingFrees,
    /// The open stream captures.
    pub captures: capture::Captures,
    /// The last refusals that threads received so that they empty their caches.
    pub caches: CacheRefusals,
    /// The allocations of each graph.
    pub graphs: graph::GraphAllocations,
    /// Number of allocations of managed memory.
    pub managed: AtomicU64,
    /// Memory or an event was exported to other processes.
    pub shown: AtomicBool,
    /// Bytes imported from other processes and interfaces. Other processes may overwrite the value in the segment.
    pub imported: AtomicU64,
    /// Memory or an event of another process was imported.
    pub taken: AtomicBool,
    /// The streams and events.
    pub handles: Handles,
    /// The devices of NVML handles.
    pub nvml: nvml::NvmlHandles,
    /// The devices' primary contexts, by ordinal.
    primaries: [Primary; DEVICES_PER_PROCESS],
    /// The contexts of green contexts, with their devices.
    greens: Mutex<Vec<(CUdevice, u64)>>,
    /// The contexts that the application has created, including those of green contexts.
    created: Mutex<Vec<usize>>,
    /// An entry per additional reference to a context.
    attached: Mutex<Vec<usize>>,
}

/// A device's primary context.
#[derive(Default)]
pub struct Primary {
    /// The context, once retained; 0 before that.
    context: AtomicUsize,
    /// Number of retains without a release.
    retained: AtomicU32,
}

impl Primary {
    /// Returns the context, or 0 if it was never retained.
    pub fn context(&self) -> usize {
        self.context.load(Relaxed)
    }

    /// Records a retain of the context.
    pub fn retained(&self, context: usize) {
        self.context.store(context, Relaxed);
        self.retained.fetch_add(1, Relaxed);
    }

    /// Records a release that is about to be made. Returns the number of retains before it, or `None` if the shim has
    /// seen none.
    pub fn releases(&self) -> Option<u32> {
        let one_less = |count: u32| count.checked_sub(1);
        self.retained.fetch_update(Relaxed, Relaxed, one_less).ok()
    }

    /// Undoes [`releases`](Self::releases) because the driver has refused the release.
    pub fn stays(&self) {
        self.retained.fetch_add(1, Relaxed);
    }
}

impl Tracking {
    /// Returns a device's primary context, or `None` if the ordinal is out of range.
    pub fn primary(&self, device: CUdevice) -> Option<&Primary> {
        self.primaries.get(usize::try_from(device).ok()?)
    }

    /// Returns the contexts whose memory is freed with a device's primary context, including itself.
    pub fn primary_and_greens(&self, device: CUdevice) -> Vec<u64> {
        let primary = self.primary(device);
        let primary = primary.map_or(0, |primary| primary.context() as u64);
        let greens = self.greens();
        let greens = greens.iter().filter(|(on, _)| *on == device);
        let all = std::iter::once(primary).chain(greens.map(|(_, context)| *context));
        all.filter(|context| *context != 0).collect()
    }

    fn created_now(&self) -> MutexGuard<'_, Vec<usize>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a context that the application has created.
    pub fn add_context(&self, context: usize) {
        self.created_now().push(context);
    }

    /// Removes a destroyed context.
    pub fn remove_context(&self, context: usize) {
        self.created_now().retain(|other| *other != context);
        self.attached().retain(|other| *other != context);
        self.swap_buffer.context_gone(context as u64);
    }

    /// Returns the contexts that the application has created and not destroyed.
    pub fn created(&self) -> Vec<usize> {
        self.created_now().clone()
    }

    /// Returns true if a stream may belong to a context other than the current one of its device.
    pub fn has_created_contexts(&self) -> bool {
        !self.created_now().is_empty()
    }

    fn attached(&self) -> MutexGuard<'_, Vec<usize>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reference to a context.
    pub fn attach(&self, context: usize) {
        self.attached().push(context);
    }

    /// Removes a reference to a context. Returns false if that was the last one.
    pub fn detach(&self, context: usize) -> bool {
        let mut attached = self.attached();
        let at = attached.iter().position(|other| *other == context);
        at.inspect(|at| _ = attached.swap_remove(*at)).is_some()
    }

    fn greens(&self) -> MutexGuard<'_, Vec<(CUdevice, u64)>> {
        self.greens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a green context. Its memory is freed with the device's primary context.
    pub fn add_green(&self, device: CUdevice, context: u64) {
        let mut greens = self.greens();
        if !greens.contains(&(device, context)) {
            greens.push((device, context));
        }
    }

    /// Removes the green contexts of a device, whose primary context was destroyed.
    pub fn forget_greens(&self, device: CUdevice) {
        self.greens().retain(|(on, _)| *on != device);
    }
}

/// The handles of streams and events that exist: after a checkpoint a query of one is answered without the driver.
/// The handles of a context that was destroyed stay until they are
/// reused.
#[derive(Default)]
pub struct Handles(Mutex<HashSet<usize>>);

impl Handles {
    /// Adds a handle.
    pub fn add(&self, handle: usize) {
        self.all().insert(handle);
    }

    /// Removes a handle.
    pub fn remove(&self, handle: usize) {
        self.all().remove(&handle);
    }

    /// Returns true if the handle is known.
    pub fn has(&self, handle: usize) -> bool {
        self.all().contains(&handle)
    }

    fn all(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refusal, with the number of allocations granted to the thread before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The address of the thread's record.
    pub thread: usize,
    /// Number of allocations granted to the thread; it changes with a later grant, so that the next refusal is a new
    /// one.
    pub granted: u64,
}

/// The last refusal that each thread received so that it empties its cache.
#[derive(Default)]
pub struct CacheRefusals(Mutex<Vec<Refused>>);

impl CacheRefusals {
    fn lock(&self) -> MutexGuard<'_, Vec<Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a refusal. Returns true if the thread was not refused since its last granted allocation.
    pub fn is_first(&self, this: Refused) -> bool {
        let mut all = self.lock();
        let known = all.contains(&this);
        all.retain(|other| other.thread != this.thread);
        all.push(this);
        !known
    }

    /// Removes a thread, so that its next refusal counts as the first.
    pub fn forget(&self, thread: usize) {
        self.lock().retain(|other| other.thread != thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_knows_how_often_it_was_retained() {
        let primary = Primary::default();
        primary.retained(7);
        primary.retained(7);
        assert_eq!(primary.releases(), Some(2));
        assert_eq!(primary.releases(), Some(1));
        assert_eq!(primary.releases(), None);
        primary.retained(7);
        assert_eq!(primary.releases(), Some(1));
        primary.stays();
        assert_eq!(primary.releases(), Some(1));
    }

    #[test]
    fn a_refusal_is_the_first_until_something_was_granted() {
        let table = CacheRefusals::default();
        let at = |thread, granted| Refused { thread, granted };
        assert!(table.is_first(at(1, 5)));
        assert!(!table.is_first(at(1, 5)));
        assert!(table.is_first(at(2, 5)));
        assert!(table.is_first(at(1, 6)));
        table.forget(1);
        assert!(table.is_first(at(1, 6)));
    }
}
