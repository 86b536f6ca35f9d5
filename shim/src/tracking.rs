//! What a managed process keeps of its memory: plain data, each with its own lock, and no lock is held over a driver call.
//!
//! The hooks on the memory calls ([`hooks::memory`](crate::hooks::memory)) fill these tables and read them.

pub mod allocation_map;
pub mod cache;
pub mod capture;
pub mod graph;
pub mod host_swap_buffer;
pub mod nvml;
pub mod physical;
pub mod pool;
pub mod record;
pub mod sparse;
pub mod swappable;

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use gpushare_abi::types::CUdevice;
use shm_layout::DEVICES_PER_PROCESS;

/// What the memory side keeps for a managed process.
#[derive(Default)]
pub struct Tracking {
    /// What is allocated right now.
    pub allocations: allocation_map::AllocationMap,
    /// Physical memory, and who keeps it alive.
    pub physical: physical::PhysicalTable,
    /// What tiles of sparse arrays are mapped to.
    pub sparse: sparse::SparseMappings,
    /// What large allocations are made of, where they can be evicted without the driver's checkpoint.
    pub swappable: swappable::SwappableAllocations,
    /// The host memory that such allocations are copied to.
    pub swap_buffer: host_swap_buffer::SharedSwapBuffer,
    /// Where the pools' memory is.
    pub pools: pool::Homes,
    /// The pools that may keep freed memory.
    pub caching: pool::Caching,
    /// Which thread captures what.
    pub captures: capture::Captures,
    /// Who was refused memory to empty its cache.
    pub caches: cache::CacheRefusals,
    /// Which graph allocates what.
    pub graphs: graph::GraphAllocations,
    /// Allocations of managed memory.
    pub managed: AtomicU64,
    /// Memory or an event was shown to other processes.
    pub shown: AtomicBool,
    /// Bytes imported from other processes and interfaces. What the segments show of them others may write over.
    pub imported: AtomicU64,
    /// Another process's was taken.
    pub taken: AtomicBool,
    /// Which of our devices an NVML handle is.
    pub nvml: nvml::NvmlHandles,
    /// The devices' primary contexts, by ordinal.
    primaries: [Primary; DEVICES_PER_PROCESS],
    /// The contexts of green contexts, and their devices.
    greens: Mutex<Vec<(CUdevice, u64)>>,
    /// The contexts that the application has created, those of green contexts among them.
    created: Mutex<Vec<usize>>,
    /// A context for each reference that it has beyond the first.
    attached: Mutex<Vec<usize>>,
}

/// A device's primary context.
#[derive(Default)]
pub struct Primary {
    /// The context, once retained; 0 before that.
    context: AtomicUsize,
    /// How often it was retained and not released.
    retained: AtomicU32,
}

impl Primary {
    /// The context, once retained; 0 before that.
    pub fn context(&self) -> usize {
        self.context.load(Relaxed)
    }

    /// It was retained once more.
    pub fn retained(&self, context: usize) {
        self.context.store(context, Relaxed);
        self.retained.fetch_add(1, Relaxed);
    }

    /// It is about to be released: how often it was retained until now, as far as we have seen.
    pub fn releases(&self) -> Option<u32> {
        let one_less = |count: u32| count.checked_sub(1);
        self.retained.fetch_update(Relaxed, Relaxed, one_less).ok()
    }

    /// The driver has refused a release that was counted.
    pub fn stays(&self) {
        self.retained.fetch_add(1, Relaxed);
    }
}

impl Tracking {
    /// A device's primary context.
    pub fn primary(&self, device: CUdevice) -> Option<&Primary> {
        self.primaries.get(usize::try_from(device).ok()?)
    }

    /// The contexts whose memory goes with a device's primary one, itself included.
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

    /// The application has created a context.
    pub fn add_context(&self, context: usize) {
        self.created_now().push(context);
    }

    /// A context has gone.
    pub fn remove_context(&self, context: usize) {
        self.created_now().retain(|other| *other != context);
        self.attached().retain(|other| *other != context);
        self.swap_buffer.context_gone(context as u64);
    }

    /// The contexts that the application has created and not destroyed.
    pub fn created(&self) -> Vec<usize> {
        self.created_now().clone()
    }

    /// Whether a stream may belong to another context of its device than the current one.
    pub fn has_created_contexts(&self) -> bool {
        !self.created_now().is_empty()
    }

    fn attached(&self) -> MutexGuard<'_, Vec<usize>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A context has one more reference.
    pub fn attach(&self, context: usize) {
        self.attached().push(context);
    }

    /// A context has one less; false if that was the last.
    pub fn detach(&self, context: usize) -> bool {
        let mut attached = self.attached();
        let at = attached.iter().position(|other| *other == context);
        at.inspect(|at| _ = attached.swap_remove(*at)).is_some()
    }

    fn greens(&self) -> MutexGuard<'_, Vec<(CUdevice, u64)>> {
        self.greens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is allocated in this context, a green one, goes with the device's primary context.
    pub fn add_green(&self, device: CUdevice, context: u64) {
        let mut greens = self.greens();
        if !greens.contains(&(device, context)) {
            greens.push((device, context));
        }
    }

    /// The device's primary context has gone, and the green ones with it.
    pub fn forget_greens(&self, device: CUdevice) {
        self.greens().retain(|(on, _)| *on != device);
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
}
