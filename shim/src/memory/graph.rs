//! Memory that graphs allocate: nodes added by hand, and allocations captured into a graph.
//!
//! The driver backs such memory when an executable graph is launched and keeps it for the next launch, so it is charged
//! from the moment the node exists until the graph and every executable made from it are gone. A node that is destroyed
//! before the graph was instantiated is given back at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_abi::Out;
use gpushare_abi::errors::CUresult;
use gpushare_abi::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUmemLocation,
};

use crate::guest::{Guest, guest};
use crate::real::Real;

use super::account::{self, Account};
use super::live::Record;
use super::record::Kind;

/// `CUgraphNodeParams::type_` of an allocation.
const NODE_TYPE_MEM_ALLOC: u32 = 10;

/// Which graph holds what. No lock on it is held over a driver call.
#[derive(Default)]
pub struct Book {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: u64,
    /// Graphs and executables, by handle, and the sets of allocations they keep alive.
    keepers: HashMap<usize, u64>,
    sets: HashMap<u64, Set>,
}

#[derive(Default)]
struct Set {
    kept_by: u32,
    /// Each with its node's handle, 0 for a captured one.
    allocations: Vec<(usize, Record)>,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn add(&mut self, graph: usize, node: usize, record: Record) {
        let next = self.last + 1;
        let set = *self.keepers.entry(graph).or_insert(next);
        if set == next {
            self.last = next;
            self.sets.insert(
                set,
                Set {
                    kept_by: 1,
                    ..Set::default()
                },
            );
        }
        if let Some(set) = self.sets.get_mut(&set) {
            set.allocations.push((node, record));
        }
    }

    fn instantiate(&mut self, exec: usize, graph: usize) {
        if let Some(set) = self.keepers.get(&graph).copied() {
            self.keepers.insert(exec, set);
            if let Some(set) = self.sets.get_mut(&set) {
                set.kept_by += 1;
            }
        }
    }

    fn take_keeper(&mut self, keeper: usize) -> Option<u64> {
        self.keepers.remove(&keeper)
    }

    fn let_go(&mut self, set: u64) -> Vec<Record> {
        let Some(found) = self.sets.get_mut(&set) else {
            return Vec::new();
        };
        found.kept_by -= 1;
        if found.kept_by > 0 {
            return Vec::new();
        }
        let gone = self.sets.remove(&set).unwrap_or_default();
        gone.allocations
            .into_iter()
            .map(|(_, record)| record)
            .collect()
    }

    fn take_node(&mut self, node: usize) -> Option<(u64, Record)> {
        let of_one_graph = self.sets.iter_mut().filter(|(_, set)| set.kept_by == 1);
        for (id, set) in of_one_graph {
            if let Some(at) = set.allocations.iter().position(|(of, _)| *of == node) {
                return Some((*id, set.allocations.swap_remove(at).1));
            }
        }
        None
    }
}

/// The road of a graph's allocation: reserve, the driver once, remember under the graph.
pub fn charge(
    real: Real<'_, impl FnOnce() -> CUresult>,
    account: Account,
    graph: CUgraph,
    bytes: u64,
    node: impl FnOnce() -> usize,
) -> CUresult {
    let reservation = account.reserve(bytes, real.symbol())?;
    real.call()?;
    let record = account.enter(reservation.commit(), Kind::Linear);
    account
        .guest()
        .memory
        .graphs
        .lock()
        .add(graph as usize, node(), record);
    Ok(())
}

fn add(
    real: Real<'_, impl FnOnce() -> CUresult>,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    location: CUmemLocation,
    bytes: usize,
) -> CUresult {
    let Some(account) = location.device().and_then(account::of_device) else {
        return real.call();
    };
    let node = || node.get().map_or(0, |node| node as usize);
    charge(real, account, graph, bytes as u64, node)
}

/// `cuGraphAddMemAllocNode`.
pub fn add_alloc(
    real: Real<'_, impl FnOnce() -> CUresult>,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> CUresult {
    match params.get() {
        Some(params) => add(
            real,
            node,
            graph,
            params.poolProps.location,
            params.bytesize,
        ),
        None => real.call(),
    }
}

/// `cuGraphAddNode`.
pub fn add_node(
    real: Real<'_, impl FnOnce() -> CUresult>,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    params: Out<CUgraphNodeParams>,
) -> CUresult {
    let Some(params) = params
        .get()
        .filter(|params| params.type_ == NODE_TYPE_MEM_ALLOC)
    else {
        return real.call();
    };
    // CUDA_MEM_ALLOC_NODE_PARAMS_v2 begins with the pool's properties: two enumerations, then the location; its
    // bytesize is the fourteenth word.
    let location = CUmemLocation {
        type_: params.params[1] as u32,
        id: (params.params[1] >> 32) as i32,
    };
    add(real, node, graph, location, params.params[13] as usize)
}

/// `cuGraphDestroyNode`.
pub fn destroy_node(real: Real<'_, impl FnOnce() -> CUresult>, node: CUgraphNode) -> CUresult {
    let Some(guest) = guest() else {
        return real.call();
    };
    let taken = guest.memory.graphs.lock().take_node(node as usize);
    match (real.call(), taken) {
        (Ok(()), Some((_, record))) => account::settle(guest, &record),
        (Err(error), Some((set, record))) => {
            if let Some(set) = guest.memory.graphs.lock().sets.get_mut(&set) {
                set.allocations.push((node as usize, record));
            }
            return Err(error);
        }
        (result, None) => return result,
    }
    Ok(())
}

/// `cuGraphDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, graph: CUgraph) -> CUresult {
    gone(real, graph as usize)
}

/// `cuGraphExecDestroy`.
pub fn destroy_exec(real: Real<'_, impl FnOnce() -> CUresult>, exec: CUgraphExec) -> CUresult {
    gone(real, exec as usize)
}

fn gone(real: Real<'_, impl FnOnce() -> CUresult>, keeper: usize) -> CUresult {
    let Some(guest) = guest() else {
        return real.call();
    };
    // Before the driver lets the handle be used again.
    let Some(set) = guest.memory.graphs.lock().take_keeper(keeper) else {
        return real.call();
    };
    match real.call() {
        Ok(()) => {
            let records = guest.memory.graphs.lock().let_go(set);
            records
                .iter()
                .for_each(|record| account::settle(guest, record));
            Ok(())
        }
        Err(error) => {
            guest.memory.graphs.lock().keepers.insert(keeper, set);
            Err(error)
        }
    }
}

/// `cuGraphInstantiate` in all its forms.
pub fn instantiate(
    real: Real<'_, impl FnOnce() -> CUresult>,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
) -> CUresult {
    real.call()?;
    made(guest(), exec, graph);
    Ok(())
}

fn made(guest: Option<&Guest>, exec: Out<CUgraphExec>, graph: CUgraph) {
    if let (Some(guest), Some(exec)) = (guest, exec.get()) {
        guest
            .memory
            .graphs
            .lock()
            .instantiate(exec as usize, graph as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_keeps_its_graphs_allocations_alive() {
        let mut book = Inner::default();
        book.add(100, 1, [64, 0, 0]);
        book.add(100, 2, [32, 0, 0]);
        book.instantiate(200, 100);
        let set = book.take_keeper(100).expect("the graph");
        assert!(book.let_go(set).is_empty());
        let set = book.take_keeper(200).expect("the executable");
        assert_eq!(book.let_go(set).len(), 2);
        assert!(book.sets.is_empty() && book.keepers.is_empty());
    }

    #[test]
    fn a_destroyed_node_gives_back_only_its_own() {
        let mut book = Inner::default();
        book.add(100, 1, [64, 0, 0]);
        book.add(100, 2, [32, 0, 0]);
        assert_eq!(book.take_node(1).map(|(_, record)| record[0]), Some(64));
        assert_eq!(book.take_node(1), None);
        book.instantiate(200, 100);
        assert_eq!(book.take_node(2), None, "an executable holds it");
    }
}
