//! Physical memory and its mappings (`cuMemCreate`, `cuMemMap`, …).
//!
//! Physical memory lives as long as a handle to it or a mapping of it does, so that is how long it is charged: releasing
//! the handle of mapped memory gives nothing back, unmapping it last does. A handle's number may be used again while a
//! mapping of what it named lives on, so memory has a number of our own here.
//!
//! Memory on the host is counted as pinned. An imported handle is not in this book: its maker is charged.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_abi::errors::CUresult;
use gpushare_abi::types::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use gpushare_abi::{In, Out};

use crate::guest::{Guest, guest};
use crate::real::Real;

use super::account;
use super::record::Kind;

/// What physical memory is known by here.
pub type Id = u64;

/// What there is and who keeps it alive. No lock on it is held over a driver call.
#[derive(Default)]
pub struct Book {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: Id,
    memory: HashMap<Id, Memory>,
    /// A handle, what it names, and how often it must be released.
    handles: HashMap<CUmemGenericAllocationHandle, (Id, u32)>,
    /// Where a mapping begins, how long it is, and of what.
    mappings: BTreeMap<CUdeviceptr, (u64, Id)>,
}

struct Memory {
    /// Handles and mappings that keep it alive.
    kept_by: u32,
    record: super::live::Record,
}

impl Book {
    /// One mapping more of what a handle names keeps it alive.
    pub fn hold(&self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        let mut book = self.lock();
        let id = book.handles.get(&handle)?.0;
        book.hold(id);
        Some(id)
    }

    /// One mapping less; gives the memory back once nothing keeps it alive.
    pub fn let_go(&self, guest: &Guest, id: Id) {
        // The lock is gone before the ledger is touched.
        let gone = self.lock().let_go(id);
        if let Some(record) = gone {
            account::settle(guest, &record);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn enter(&mut self, handle: CUmemGenericAllocationHandle, record: super::live::Record) {
        self.last += 1;
        self.memory.insert(self.last, Memory { kept_by: 1, record });
        self.handles.insert(handle, (self.last, 1));
    }

    /// One handle or mapping more keeps it alive.
    fn hold(&mut self, id: Id) {
        if let Some(memory) = self.memory.get_mut(&id) {
            memory.kept_by += 1;
        }
    }

    /// One less; the record once nothing does.
    fn let_go(&mut self, id: Id) -> Option<super::live::Record> {
        let memory = self.memory.get_mut(&id)?;
        memory.kept_by -= 1;
        if memory.kept_by > 0 {
            return None;
        }
        Some(self.memory.remove(&id)?.record)
    }

    /// One release of a handle less to come.
    fn drop_handle(&mut self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        let (id, times) = self.handles.get_mut(&handle)?;
        let id = *id;
        *times -= 1;
        if *times == 0 {
            self.handles.remove(&handle);
        }
        Some(id)
    }

    fn name(&mut self, handle: CUmemGenericAllocationHandle, id: Id) {
        let (named, times) = self.handles.entry(handle).or_insert((id, 0));
        *named = id;
        *times += 1;
    }

    fn mapping_at(&self, address: CUdeviceptr) -> Option<Id> {
        let (start, (bytes, id)) = self.mappings.range(..=address).next_back()?;
        (address - start < *bytes).then_some(*id)
    }

    fn take_mappings(&mut self, start: CUdeviceptr, bytes: u64) -> Vec<(CUdeviceptr, (u64, Id))> {
        let end = start.saturating_add(bytes);
        let starts: Vec<_> = self
            .mappings
            .range(start..end)
            .map(|(start, _)| *start)
            .collect();
        starts
            .into_iter()
            .filter_map(|start| self.mappings.remove_entry(&start))
            .collect()
    }
}

/// `cuMemCreate`.
pub fn create(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: Out<CUmemGenericAllocationHandle>,
    bytes: usize,
    prop: In<CUmemAllocationProp>,
) -> CUresult {
    let location = prop.get().map(|prop| prop.location);
    let on_device = location.is_none_or(|location| location.type_ == CU_MEM_LOCATION_TYPE_DEVICE);
    let account = match location {
        Some(location) if on_device => account::of_device(location.id),
        _ => account::here(),
    };
    let Some(account) = account else {
        return real.call();
    };
    let bytes = bytes as u64;
    real.moves(bytes);
    let kind = if on_device { Kind::Linear } else { Kind::Host };
    let reservation = if on_device {
        Some(account.reserve(bytes, real.symbol())?)
    } else {
        None
    };
    real.call()?;
    if let Some(reservation) = reservation {
        reservation.commit();
    }
    let record = account.enter(bytes, kind);
    if let Some(handle) = handle.get() {
        account.guest().memory.physical.lock().enter(handle, record);
    }
    Ok(())
}

/// `cuMemRelease`.
pub fn release(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let Some(guest) = guest() else {
        return real.call();
    };
    let book = &guest.memory.physical;
    // Before the driver lets the number be used again.
    let Some(id) = book.lock().drop_handle(handle) else {
        return real.call();
    };
    match real.call() {
        Ok(()) => {
            book.let_go(guest, id);
            Ok(())
        }
        Err(error) => {
            book.lock().name(handle, id);
            Err(error)
        }
    }
}

/// `cuMemRetainAllocationHandle`: one more handle to what is mapped at an address.
pub fn retain(
    real: Real<'_, impl FnOnce() -> CUresult>,
    handle: Out<CUmemGenericAllocationHandle>,
    addr: *mut c_void,
) -> CUresult {
    real.call()?;
    if let (Some(guest), Some(handle)) = (guest(), handle.get()) {
        let mut book = guest.memory.physical.lock();
        if let Some(id) = book.mapping_at(addr as CUdeviceptr) {
            book.hold(id);
            book.name(handle, id);
        }
    }
    Ok(())
}

/// `cuMemMap`.
pub fn map(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: CUdeviceptr,
    bytes: usize,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let Some(guest) = guest() else {
        return real.call();
    };
    let book = &guest.memory.physical;
    let Some(id) = book.hold(handle) else {
        return real.call();
    };
    let result = real.call();
    match result {
        Ok(()) => {
            book.lock().mappings.insert(ptr, (bytes as u64, id));
        }
        Err(_) => book.let_go(guest, id),
    }
    result
}

/// `cuMemUnmap`: of every mapping in the range.
pub fn unmap(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ptr: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let Some(guest) = guest() else {
        return real.call();
    };
    let book = &guest.memory.physical;
    let taken = book.lock().take_mappings(ptr, bytes as u64);
    let result = real.call();
    match result {
        Ok(()) => taken
            .into_iter()
            .for_each(|(_, (_, id))| book.let_go(guest, id)),
        Err(_) => book.lock().mappings.extend(taken),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: super::super::live::Record = [4096, 0, 0];

    #[test]
    fn released_memory_is_kept_by_its_mapping() {
        let mut book = Inner::default();
        book.enter(7, RECORD);
        let id = book.handles[&7].0;
        book.hold(id);
        book.mappings.insert(0x1000, (4096, id));
        assert_eq!(book.drop_handle(7), Some(id));
        assert_eq!(book.let_go(id), None, "the mapping keeps it");
        book.enter(7, RECORD);
        assert_ne!(
            book.handles[&7].0, id,
            "the same number names other memory now"
        );
        let taken = book.take_mappings(0x1000, 4096);
        assert_eq!(taken, [(0x1000, (4096, id))]);
        assert_eq!(book.let_go(id), Some(RECORD));
    }

    #[test]
    fn a_retained_handle_wants_one_release_more() {
        let mut book = Inner::default();
        book.enter(7, RECORD);
        let id = book.handles[&7].0;
        book.mappings.insert(0x1000, (8192, id));
        assert_eq!(
            book.mapping_at(0x2fff),
            Some(id),
            "anywhere within the mapping"
        );
        assert_eq!(book.mapping_at(0x3000), None);
        book.hold(id);
        book.name(7, id);
        assert_eq!(book.drop_handle(7).and_then(|id| book.let_go(id)), None);
        assert_eq!(
            book.drop_handle(7).and_then(|id| book.let_go(id)),
            Some(RECORD)
        );
        assert_eq!(
            book.drop_handle(7),
            None,
            "a double release is the driver's to refuse"
        );
    }
}
