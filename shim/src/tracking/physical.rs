//! The physical memory of a process, and the references that keep it alive.
//!
//! A handle's number may be reused while a mapping of its old memory still exists, so memory has an identifier of the
//! shim's own.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use gpushare_abi::types::{CUdevice, CUdeviceptr, CUmemGenericAllocationHandle, FabricHandle};

use shm_layout::clock;

use crate::{
    sys::futex,
    tracking::record::{self, Record},
};

/// An identifier of physical memory.
pub type Id = u64;

/// The longest wait for the turn, in nanoseconds, and the time between two looks. The driver's call takes microseconds, unless it waits
/// for something that only the waiting thread can do.
const TURN_NS: u64 = 100_000_000;
const LOOK: Duration = Duration::from_micros(20);

/// The physical memory of a process and its references.
#[derive(Default)]
pub struct PhysicalTable {
    /// Not held over a driver call.
    inner: Mutex<Inner>,
    turn: Mutex<()>,
}

/// The tables of [`PhysicalTable`], locked.
#[derive(Default)]
pub struct Inner {
    last: Id,
    memory: HashMap<Id, Memory>,
    /// The identifier for each handle, and the number of releases still to come.
    handles: HashMap<CUmemGenericAllocationHandle, (Id, u32)>,
    /// The length and the identifier for each mapping, by its start.
    mappings: BTreeMap<CUdeviceptr, (u64, Id)>,
    /// The identifier for each exported fabric handle.
    fabric: HashMap<FabricHandle, Id>,
}

/// An object that a handle can name: physical memory, or a multicast object to which other memory is bound.
#[derive(Default)]
struct Memory {
    /// Number of handles, mappings and bindings that keep it alive.
    kept_by: u32,
    /// The record of its charge. A multicast object is not charged.
    record: Option<Record>,
    bound: Vec<Bound>,
}

/// Memory that is bound to a multicast object.
struct Bound {
    device: CUdevice,
    offset: u64,
    bytes: u64,
    id: Id,
}

impl PhysicalTable {
    /// Adds a reference to the object that a handle names. Returns its identifier.
    pub fn hold(&self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        self.hold_what(|table| table.named(handle))
    }

    /// Adds a reference to the memory that is mapped at an address. Returns its identifier.
    pub fn hold_at(&self, address: CUdeviceptr) -> Option<Id> {
        self.hold_what(|table| table.mapping_at(address))
    }

    fn hold_what(&self, find: impl Fn(&Inner) -> Option<Id>) -> Option<Id> {
        let _turn = self.turn();
        let mut table = self.lock();
        let id = find(&table)?;
        table.hold(id);
        Some(id)
    }

    /// Removes a reference. Returns the records that must be uncharged, because nothing keeps their memory alive.
    pub fn let_go(&self, id: Id) -> Vec<Record> {
        self.lock().let_go(id)
    }

    /// Waits until no other thread is in a driver call that removes a reference, at most for a tenth of a second.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let end = clock::now().saturating_add(TURN_NS);
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) if clock::now() >= end => return None,
                Err(TryLockError::WouldBlock) => futex::nap(LOOK),
            }
        }
    }

    /// Locks the tables.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Adds a new object with its first handle.
    pub fn enter(&mut self, handle: CUmemGenericAllocationHandle, record: Option<Record>) -> Id {
        self.last += 1;
        let memory = Memory {
            kept_by: 1,
            record,
            bound: Vec::new(),
        };
        self.memory.insert(self.last, memory);
        self.handles.insert(handle, (self.last, 1));
        self.last
    }

    /// Adds a mapping of memory that another process created.
    pub fn enter_mapping(&mut self, start: CUdeviceptr, bytes: u64, record: Record) {
        self.last += 1;
        let memory = Memory {
            kept_by: 1,
            record: Some(record),
            bound: Vec::new(),
        };
        self.memory.insert(self.last, memory);
        self.mappings.insert(start, (bytes, self.last));
    }

    /// Returns the identifier of the object that a handle names.
    pub fn named(&self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        Some(self.handles.get(&handle)?.0)
    }

    /// Adds a reference to an object.
    pub fn hold(&mut self, id: Id) {
        if let Some(memory) = self.memory.get_mut(&id) {
            memory.kept_by += 1;
        }
    }

    /// Removes a reference. Returns the records to uncharge: that of the object, and with a multicast object those
    /// that only it kept alive.
    pub fn let_go(&mut self, id: Id) -> Vec<Record> {
        let Some(memory) = self.memory.get_mut(&id) else {
            return Vec::new();
        };
        memory.kept_by -= 1;
        if memory.kept_by > 0 {
            return Vec::new();
        }
        let memory = self.memory.remove(&id).unwrap_or_default();
        self.fabric.retain(|_, of| *of != id);
        let mut gone = Vec::from_iter(memory.record);
        for bound in memory.bound {
            gone.extend(self.let_go(bound.id));
        }
        gone
    }

    /// Records one release of a handle. Returns the identifier of its object.
    pub fn drop_handle(&mut self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        let (id, times) = self.handles.get_mut(&handle)?;
        let id = *id;
        *times -= 1;
        if *times == 0 {
            self.handles.remove(&handle);
        }
        Some(id)
    }

    /// Adds one release of a handle that is still to come.
    pub fn name(&mut self, handle: CUmemGenericAllocationHandle, id: Id) {
        let (named, times) = self.handles.entry(handle).or_insert((id, 0));
        *named = id;
        *times += 1;
    }

    /// Returns the object that is mapped at an address.
    pub fn mapping_at(&self, address: CUdeviceptr) -> Option<Id> {
        let (start, (bytes, id)) = self.mappings.range(..=address).next_back()?;
        (address - start < *bytes).then_some(*id)
    }

    /// Adds a mapping that the driver is about to make, unless there is one. The caller has added the reference. Returns true if it
    /// was added.
    pub fn map(&mut self, start: CUdeviceptr, bytes: u64, id: Id) -> bool {
        let is_free = !self.mappings.contains_key(&start);
        if is_free {
            self.map_anew(start, bytes, id);
        }
        is_free
    }

    /// Adds a mapping that the driver has made. The caller has added the reference.
    pub fn map_anew(&mut self, start: CUdeviceptr, bytes: u64, id: Id) {
        self.mappings.insert(start, (bytes, id));
    }

    /// Removes a mapping that the driver did not make.
    pub fn unmap(&mut self, start: CUdeviceptr, id: Id) {
        if self
            .mappings
            .get(&start)
            .is_some_and(|(_, there)| *there == id)
        {
            self.mappings.remove(&start);
        }
    }

    /// Removes and returns all mappings that begin in a range; the range may have holes.
    pub fn take_mappings(
        &mut self,
        start: CUdeviceptr,
        bytes: u64,
    ) -> Vec<(CUdeviceptr, (u64, Id))> {
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

    /// Adds mappings again that the driver did not remove.
    pub fn put_back(&mut self, mappings: Vec<(CUdeviceptr, (u64, Id))>) {
        self.mappings.extend(mappings);
    }

    /// Binds memory to a multicast object. The caller has added the reference. Returns false if there is no such
    /// object.
    pub fn bind(&mut self, team: Id, device: Option<CUdevice>, range: [u64; 2], id: Id) -> bool {
        let own = self.memory.get(&id).and_then(|memory| memory.record);
        let own = own.map(|record| CUdevice::from(record::ordinal(&record)));
        let Some(team) = self.memory.get_mut(&team) else {
            return false;
        };
        team.bound.push(Bound {
            device: device.or(own).unwrap_or_default(),
            offset: range[0],
            bytes: range[1],
            id,
        });
        true
    }

    /// Removes the bindings in a range of a multicast object on a device. Returns the identifiers of the memory.
    pub fn unbind(&mut self, team: Id, device: CUdevice, range: [u64; 2]) -> Vec<Id> {
        let Some(team) = self.memory.get_mut(&team) else {
            return Vec::new();
        };
        let end = range[0].saturating_add(range[1]);
        let within = |bound: &mut Bound| {
            bound.device == device
                && bound.offset >= range[0]
                && bound.offset.saturating_add(bound.bytes) <= end
        };
        let gone = team.bound.extract_if(.., within);
        gone.map(|bound| bound.id).collect()
    }

    /// Records the fabric handle of an exported object.
    pub fn export(&mut self, handle: CUmemGenericAllocationHandle, fabric: FabricHandle) {
        if let Some(id) = self.named(handle) {
            self.fabric.insert(fabric, id);
        }
    }

    /// Records an imported handle. If it names memory of this process, it adds a reference and is not charged again.
    pub fn import(&mut self, handle: CUmemGenericAllocationHandle, fabric: Option<FabricHandle>) {
        let by_name = || self.fabric.get(&fabric?).copied();
        if let Some(id) = self.named(handle).or_else(by_name) {
            self.hold(id);
            self.name(handle, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = [4096, 0, 0];

    #[test]
    fn released_memory_is_kept_by_its_mapping() {
        let mut table = Inner::default();
        table.enter(7, Some(RECORD));
        let id = table.named(7).expect("entered");
        table.hold(id);
        table.map(0x1000, 4096, id);
        assert_eq!(table.drop_handle(7), Some(id));
        assert!(table.let_go(id).is_empty(), "the mapping keeps it");
        table.enter(7, Some(RECORD));
        assert_ne!(
            table.named(7),
            Some(id),
            "the same number names other memory now"
        );
        let taken = table.take_mappings(0x1000, 4096);
        assert_eq!(taken, [(0x1000, (4096, id))]);
        assert_eq!(table.let_go(id), [RECORD]);
    }

    #[test]
    fn a_retained_handle_wants_one_release_more() {
        let mut table = Inner::default();
        table.enter(7, Some(RECORD));
        let id = table.named(7).expect("entered");
        table.map(0x1000, 8192, id);
        assert_eq!(
            table.mapping_at(0x2fff),
            Some(id),
            "anywhere within the mapping"
        );
        assert_eq!(table.mapping_at(0x3000), None);
        table.hold(id);
        table.name(7, id);
        let release = |table: &mut Inner| table.drop_handle(7).map(|id| table.let_go(id));
        assert_eq!(release(&mut table), Some(Vec::new()));
        assert_eq!(release(&mut table), Some(vec![RECORD]));
        assert_eq!(
            table.drop_handle(7),
            None,
            "a double release is the driver's to refuse"
        );
    }

    #[test]
    fn a_multicast_object_keeps_what_is_bound_to_it() {
        let mut table = Inner::default();
        let team = table.enter(9, None);
        let [one, other] = [7, 8].map(|handle| table.enter(handle, Some(RECORD)));
        for (device, id) in [(0, one), (1, other)] {
            table.hold(id);
            assert!(table.bind(team, Some(device), [0, 4096], id));
            assert!(table.let_go(id).is_empty(), "the handle is released");
        }
        assert_eq!(table.unbind(team, 0, [0, 2048]), []);
        assert_eq!(table.unbind(team, 0, [0, 4096]), [one]);
        assert_eq!(table.let_go(one), [RECORD]);
        assert_eq!(table.let_go(team), [RECORD], "the object itself is nothing");
        assert!(table.memory.is_empty());
    }

    #[test]
    fn an_imported_handle_of_our_own_memory_keeps_it_and_is_nothing_new() {
        let mut table = Inner::default();
        let id = table.enter(7, Some(RECORD));
        table.export(7, [3; 8]);
        table.import(11, Some([3; 8]));
        table.import(12, Some([4; 8]));
        assert_eq!((table.named(11), table.named(12)), (Some(id), None));
        assert_eq!(
            table.drop_handle(7).map(|id| table.let_go(id)),
            Some(vec![])
        );
        let last = table.drop_handle(11).map(|id| table.let_go(id));
        assert_eq!(last, Some(vec![RECORD]));
        assert!(table.fabric.is_empty());
    }
}
