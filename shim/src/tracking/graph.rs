//! The allocations of graphs, and the memory that each device keeps for graphs.

pub mod plan;
pub mod pool;
pub mod sealed;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use gpushare_abi::types::{CU_STREAM_PER_THREAD, CUdevice, CUgraph, CUgraphExec};
use plan::{Need, Part, Plan};
use pool::{Claim, Pool};
use sealed::SealedStreams;
use shm_layout::DEVICES_PER_PROCESS;

use crate::{
    driver_query::memory::{graph_bytes, is_stream_idle},
    thread::Used,
    turn::context_end::ContextEnd,
};

/// Number of times that the driver is asked for what it keeps, while launches in other threads change it.
const LOOKS: usize = 8;

/// The allocations of graphs. The lock on them is not held over a driver call.
#[derive(Default)]
pub struct GraphAllocations {
    any: AtomicBool,
    inner: Mutex<Inner>,
    sealed: SealedStreams,
    look: Mutex<()>,
}

/// The tables of [`GraphAllocations`], locked.
#[derive(Default)]
pub struct Inner {
    /// The allocations and frees of each graph's nodes.
    pub graphs: HashMap<usize, Plan>,
    /// The memory that launches of each executable graph need.
    pub execs: HashMap<usize, Arc<Need>>,
    pools: [Pool; DEVICES_PER_PROCESS],
}

impl GraphAllocations {
    /// Returns true if any graph has ever allocated or freed memory.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Locks the tables.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread queries streams, and keeps others from it while a capture begins: a query would break it.
    pub fn look(&self) -> MutexGuard<'_, ()> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the plan of a graph with `add`.
    pub fn plan(&self, graph: CUgraph, add: impl FnOnce(&mut Plan)) {
        self.any.store(true, Relaxed);
        add(self.lock().graphs.entry(graph as usize).or_default());
    }

    /// Removes the plans of graphs that are lost: the driver reuses their handles.
    pub fn lost(&self, graphs: &[usize]) {
        if self.any() && !graphs.is_empty() {
            let mut table = self.lock();
            table.graphs.retain(|graph, _| !graphs.contains(graph));
        }
    }

    /// Claims the memory that a launch needs on a device. If that exceeds the memory present, the other streams are
    /// queried first, because an idle stream's memory can be reused.
    pub fn claim(&self, stream: usize, part: &Part, launches: bool) -> Claim {
        let mut table = self.lock();
        let pool = table.pool(part.ordinal);
        let claim = pool.claim(stream, part, launches);
        let others = pool.others(stream);
        if claim.more == 0 || others.is_empty() && !pool.any_sealed() {
            return claim;
        }
        pool.give_up(&claim);
        drop(table);
        let look = self.look();
        self.forget_done();
        // Again, because a stream may have ended since.
        let mut idle = self.lock().pool(part.ordinal).others(stream);
        idle.retain(|(other, _)| is_stream_idle(*other));
        drop(look);
        let mut table = self.lock();
        let pool = table.pool(part.ordinal);
        for (other, launches) in idle {
            pool.is_idle_after(other, launches);
        }
        pool.claim(stream, part, launches)
    }

    /// Returns the memory that launches of an executable graph need, or `None` if they need none.
    pub fn need_of(&self, exec: CUgraphExec) -> Option<Arc<Need>> {
        self.lock().execs.get(&(exec as usize)).cloned()
    }

    /// Returns true if a device keeps memory that no executable graph needs. While an executable graph exists, its
    /// launches may rely on the memory.
    pub fn is_idle(&self, ordinal: u8) -> bool {
        let needs = |need: &Arc<Need>| need.parts.iter().any(|part| part.ordinal == ordinal);
        let mut table = self.lock();
        !table.execs.values().any(needs) && table.pool(ordinal).is_idle()
    }

    /// Records that the driver has released the unused memory of a device. Returns the released bytes.
    pub fn trimmed(&self, ordinal: u8) -> u64 {
        let mut seen = self.lock().pool(ordinal).completed();
        for _ in 0..LOOKS {
            let reserved = graph_bytes(ordinal.into());
            let mut table = self.lock();
            let pool = table.pool(ordinal);
            // The answer may be from before a launch that is complete by now.
            if pool.completed() == seen {
                return pool.trim(reserved);
            }
            seen = pool.completed();
        }
        self.lock().pool(ordinal).trim(u64::MAX)
    }

    /// Has events stand for the launches in streams that are about to end with `end`, or alone. `used_of` returns the stream of a
    /// handle if it ends.
    pub fn seal(&self, used_of: impl Fn(usize) -> Option<Used>, end: Option<&ContextEnd>) {
        if !self.any() {
            return;
        }
        let streams: HashSet<_> = self.lock().pools.iter().flat_map(Pool::streams).collect();
        for used in streams.into_iter().filter_map(used_of) {
            let is_busy = |pool: &Pool| pool.is_used_by(used.stream);
            let is_busy = self.lock().pools.iter().any(is_busy);
            let key = is_busy.then(|| self.sealed.add(used, end));
            let mut table = self.lock();
            let pools = table.pools.iter_mut();
            pools.for_each(|pool| pool.seal(used.stream, key));
        }
        drop(self.look());
    }

    /// Keeps the memory of such launches in contexts that are about to end until the driver has decided.
    pub fn end_with(&self, end: &ContextEnd, which: impl Fn(&Used) -> bool) {
        self.sealed.end_with(end, which);
    }

    /// Releases the memory of such launches that are done.
    fn forget_done(&self) {
        let done = self.sealed.take_done();
        let mut table = self.lock();
        let pools = table.pools.iter_mut();
        pools.for_each(|pool| pool.forget(|stream| done.contains(&stream)));
    }

    /// Releases the memory of launches in the default streams of a device after all its contexts have ended. These streams have no
    /// handle to seal.
    pub fn default_streams_gone(&self, device: CUdevice) {
        self.forget(device, |stream| stream <= CU_STREAM_PER_THREAD as usize);
    }

    /// Releases the memory of a device's streams after its primary context has ended unseen.
    pub fn primary_gone(&self, device: CUdevice) {
        self.forget(device, |_| true);
    }

    fn forget(&self, device: CUdevice, which: impl Fn(usize) -> bool) {
        if let Some(ordinal) = u8::try_from(device).ok().filter(|_| self.any()) {
            self.lock().pool(ordinal).forget(which);
        }
    }

    /// Removes an allocation of a graph that is about to be freed outside of a graph. Returns its device and its
    /// bytes.
    pub fn take(&self, address: u64) -> Option<(usize, u64)> {
        self.lock().free(address)
    }

    /// Undoes [`take`](Self::take) because the driver did not free the allocation.
    pub fn put_back(&self, address: u64, (place, bytes): (usize, u64)) {
        self.lock().pools[place].put_back(address, bytes);
    }
}

impl Inner {
    /// Returns the pool of a device.
    pub fn pool(&mut self, ordinal: u8) -> &mut Pool {
        &mut self.pools[usize::from(ordinal) % DEVICES_PER_PROCESS]
    }

    fn free(&mut self, address: u64) -> Option<(usize, u64)> {
        let mut pools = self.pools.iter_mut().enumerate();
        pools.find_map(|(place, pool)| Some((place, pool.free(address)?)))
    }
}
