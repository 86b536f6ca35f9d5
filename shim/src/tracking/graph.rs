//! Which graph allocates what, and what each device keeps for graphs.

pub mod plan;
pub mod pool;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use gpushare_abi::types::{CUdevice, CUgraph, CUgraphExec};
use plan::{Need, Part, Plan};
use pool::{Claim, Pool};
use shm_layout::DEVICES_PER_PROCESS;

use crate::driver_query::memory::is_stream_idle;

/// Which graph allocates what. No lock on it is held over a driver call.
#[derive(Default)]
pub struct GraphAllocations {
    any: AtomicBool,
    inner: Mutex<Inner>,
}

/// The book, opened.
#[derive(Default)]
pub struct Inner {
    /// What the nodes of a graph allocate and free.
    pub graphs: HashMap<usize, Plan>,
    /// What launches of an executable need.
    pub execs: HashMap<usize, Arc<Need>>,
    pools: [Pool; DEVICES_PER_PROCESS],
}

impl GraphAllocations {
    /// Whether any graph has ever allocated or freed.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// The book, opened.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what a graph allocates and frees.
    pub fn plan(&self, graph: CUgraph, add: impl FnOnce(&mut Plan)) {
        self.any.store(true, Relaxed);
        add(self.lock().graphs.entry(graph as usize).or_default());
    }

    /// What a launch needs on a device. Before that is more than what is there, the other streams are asked whether they
    /// are done with theirs.
    pub fn claim(&self, stream: usize, part: &Part, launches: bool) -> Claim {
        let mut table = self.lock();
        let pool = table.pool(part.ordinal);
        let claim = pool.claim(stream, part, launches);
        let others = pool.others(stream);
        if claim.more == 0 || others.is_empty() {
            return claim;
        }
        pool.give_up(&claim);
        drop(table);
        let idle: Vec<_> = others
            .into_iter()
            .filter(|(other, _)| is_stream_idle(*other))
            .collect();
        let mut table = self.lock();
        let pool = table.pool(part.ordinal);
        for (other, launches) in idle {
            pool.is_idle_after(other, launches);
        }
        pool.claim(stream, part, launches)
    }

    /// What launches of an executable need, if they need anything.
    pub fn need_of(&self, exec: CUgraphExec) -> Option<Arc<Need>> {
        self.lock().execs.get(&(exec as usize)).cloned()
    }

    /// Whether a device keeps memory for graphs that are all gone. As long as there is an executable its launches may
    /// count on it.
    pub fn is_idle(&self, ordinal: u8) -> bool {
        let needs = |need: &Arc<Need>| need.parts.iter().any(|part| part.ordinal == ordinal);
        let mut table = self.lock();
        !table.execs.values().any(needs) && table.pool(ordinal).is_idle()
    }

    /// A stream is about to be destroyed.
    pub fn stream_gone(&self, stream: usize) {
        if self.any() {
            let mut table = self.lock();
            let pools = table.pools.iter_mut();
            pools.for_each(|pool| pool.forget(|other| other == stream));
        }
    }

    /// A context on this device has ended, and its streams with it.
    pub fn context_gone(&self, device: CUdevice) {
        if let Some(ordinal) = u8::try_from(device).ok().filter(|_| self.any()) {
            self.lock().pool(ordinal).forget(|_| true);
        }
    }

    /// An allocation of a graph is about to be freed outside of one: where it was, and its bytes.
    pub fn take(&self, address: u64) -> Option<(usize, u64)> {
        self.lock().free(address)
    }

    /// The driver did not free it.
    pub fn put_back(&self, address: u64, (place, bytes): (usize, u64)) {
        self.lock().pools[place].put_back(address, bytes);
    }
}

impl Inner {
    /// What a device keeps for graphs.
    pub fn pool(&mut self, ordinal: u8) -> &mut Pool {
        &mut self.pools[usize::from(ordinal) % DEVICES_PER_PROCESS]
    }

    fn free(&mut self, address: u64) -> Option<(usize, u64)> {
        let mut pools = self.pools.iter_mut().enumerate();
        pools.find_map(|(place, pool)| Some((place, pool.free(address)?)))
    }
}
