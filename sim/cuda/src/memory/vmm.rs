//! The virtual memory calls: physical allocations, reserved addresses, and mappings of the one to the other.
//!
//! A physical allocation is an unnamed file of host memory. Two mappings of it have the same bytes, and its
//! descriptor gives them to another process. It uses the device's capacity as long as it has a handle or a mapping.
//! [`space`] tracks the addresses; `pages` maps the pages. Exported memory stays charged to the process that created
//! it.

pub mod calls;
pub mod multicast;
mod pages;
pub mod space;

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, Mutex},
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUerror,
        CUresult,
    },
    types::{
        CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST, CUmemAllocationProp,
    },
};
use gpushare_sim::scenario::Swap;
use space::{HOST, Mapping, NO_ACCESS, Place, READ, Refused, Space};

use crate::{
    c::Plain,
    context,
    driver::{driver, mishap},
    handles::{Table, fresh, lock},
    memory::{
        capacity,
        heap::{self, Kind},
    },
};

/// Every size and address is a multiple of this.
pub const GRANULARITY: u64 = 2 << 20;

/// A physical allocation.
#[derive(Debug)]
pub struct Physical {
    /// The identifier of the physical allocation, which differs from its handles.
    id: u64,
    bytes: u64,
    props: Plain<CUmemAllocationProp>,
    file: OwnedFd,
    /// The device's ordinal, if its capacity is taken by this process.
    charged: Option<i32>,
    /// Another process made it.
    imported: bool,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let (true, Ok(driver)) = (self.imported, driver()) {
            driver.member.imported(false);
        }
        multicast::forget(self.id);
        if let Some(ordinal) = self.charged {
            capacity::give(ordinal, self.bytes);
        }
    }
}

/// A handle of a physical allocation, with its references.
#[derive(Debug)]
struct Handle {
    physical: Arc<Physical>,
    references: Mutex<u32>,
}

static HANDLES: Table<Handle> = Table::new();
/// The physical allocation of each mapping, by the mapping's start; the entry keeps it alive.
static MAPPED: Table<Physical> = Table::new();
static SPACE: Mutex<Space> = Mutex::new(Space::new());

impl From<Refused> for CUerror {
    fn from(_: Refused) -> Self {
        CUDA_ERROR_INVALID_VALUE
    }
}

fn physical(handle: u64) -> Result<Arc<Physical>, CUerror> {
    driver()?;
    Ok(Arc::clone(
        &HANDLES
            .get(handle)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?
            .physical,
    ))
}

/// Creates a handle with one reference.
fn keep(physical: Arc<Physical>) -> u64 {
    let handle = fresh();
    let references = Mutex::new(1);
    HANDLES.insert(
        handle,
        Arc::new(Handle {
            physical,
            references,
        }),
    );
    handle
}

fn aligned(values: &[u64]) -> CUresult {
    let all = values.iter().all(|value| value.is_multiple_of(GRANULARITY));
    if all {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Returns the location of memory with these properties; an unsupported location is an error.
fn place(props: &CUmemAllocationProp) -> Result<Place, CUerror> {
    if props.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if props.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    match props.location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            driver()?.device(props.location.id)?;
            Ok(props.location.id)
        }
        CU_MEM_LOCATION_TYPE_HOST => Ok(HOST),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn create(bytes: u64, props: CUmemAllocationProp) -> Result<u64, CUerror> {
    driver()?;
    let place = place(&props)?;
    aligned(&[bytes])?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let charged = (place != HOST).then_some(place);
    if let Some(place) = charged {
        capacity::take(place, bytes)?;
    }
    let made = pages::create(bytes, place);
    let Some(file) = made else {
        charged.inspect(|ordinal| capacity::give(*ordinal, bytes));
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    };
    Ok(keep(Arc::new(Physical {
        id: fresh(),
        bytes,
        props: Plain(props),
        file,
        charged,
        imported: false,
    })))
}

fn release(handle: u64) -> CUresult {
    driver()?;
    let known = HANDLES.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut references = lock(&known.references);
    *references -= 1;
    if *references == 0 {
        HANDLES.remove(handle);
    }
    Ok(())
}

/// Returns a handle of the memory mapped at an address: its present one if it still has one.
fn retain_at(address: u64) -> Result<u64, CUerror> {
    driver()?;
    let space = lock(&SPACE);
    let (start, _) = space.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let physical = MAPPED.get(start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    match HANDLES.find(|handle| handle.physical.id == physical.id) {
        Some((handle, known)) => {
            *lock(&known.references) += 1;
            Ok(handle)
        }
        None => Ok(keep(physical)),
    }
}

fn reserve(bytes: u64, alignment: u64, wanted: u64) -> Result<u64, CUerror> {
    driver()?;
    let alignment = if alignment == 0 {
        GRANULARITY
    } else {
        alignment
    };
    if bytes == 0 || !bytes.is_multiple_of(pages::PAGE) || !alignment.is_power_of_two() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let alignment = alignment.max(GRANULARITY);
    let address = pages::reserve(bytes, alignment, wanted).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    lock(&SPACE).reserve(address, bytes);
    Ok(address)
}

/// Returns true if an address is reserved, mapped or not, so that it is no host memory.
pub fn is_reserved(address: u64) -> bool {
    lock(&SPACE).reservation(address).is_some()
}

fn free_reservation(address: u64, bytes: u64) -> CUresult {
    driver()?;
    lock(&SPACE).free(address, bytes)?;
    pages::unreserve(address, bytes);
    Ok(())
}

fn map(address: u64, bytes: u64, offset: u64, handle: u64) -> CUresult {
    let physical = physical(handle)?;
    aligned(&[address])?;
    // The driver maps all of an allocation or nothing.
    if offset != 0 || bytes != physical.bytes {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut space = lock(&SPACE);
    space.map(address, bytes, physical.id, offset)?;
    note(address, bytes, &physical, Kind::Hidden)
        .inspect_err(|_| drop(space.unmap(address, bytes)))?;
    MAPPED.insert(address, physical);
    Ok(())
}

/// Sets the block of a mapping's addresses, in place of the previous one.
fn note(start: u64, bytes: u64, physical: &Physical, kind: Kind) -> CUresult {
    forget(start);
    let Plain(props) = physical.props;
    let on_device = props.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    let device = if on_device { props.location.id } else { 0 };
    heap::note(start, bytes, device, 0, kind).map(|_| ())
}

fn forget(start: u64) {
    // It may be the first time, and then there is nothing to forget.
    let _ = heap::forget(start, |block| {
        matches!(block.kind, Kind::Mapped | Kind::Hidden)
    });
}

fn unmap(address: u64, bytes: u64) -> CUresult {
    mishap(Swap::Unmap)?;
    context::synchronize_all();
    let mut space = lock(&SPACE);
    for (at, mapping) in space.unmap(address, bytes)? {
        pages::hide(at, mapping.size);
        forget(at);
        MAPPED.remove(at);
    }
    Ok(())
}

fn set_access(address: u64, bytes: u64, grants: &[(Place, u32)]) -> CUresult {
    let driver = driver()?;
    for (place, access) in grants {
        if *place != HOST {
            driver.device(*place)?;
        }
        if !matches!(access, 0 | 1 | 3) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    if grants.iter().any(|(_, access)| *access == NO_ACCESS) {
        context::synchronize_all();
    }
    let mut space = lock(&SPACE);
    for (start, mapping) in space.set_access(address, bytes, grants)? {
        show(start, &mapping)?;
    }
    Ok(())
}

/// Makes a mapping's bytes reachable, as far as access is granted.
fn show(start: u64, mapping: &Mapping) -> CUresult {
    let physical = MAPPED.get(start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if mapping.widest() & READ == 0 {
        note(start, mapping.size, &physical, Kind::Hidden)?;
        pages::hide(start, mapping.size);
        return Ok(());
    }
    let shown = pages::show(
        start,
        mapping.size,
        physical.file.as_raw_fd(),
        mapping.offset,
    );
    shown.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    note(start, mapping.size, &physical, Kind::Mapped)
}

fn access(address: u64, place: Place) -> Result<u32, CUerror> {
    driver()?;
    let space = lock(&SPACE);
    let (_, mapping) = space.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(mapping.access(place))
}

/// Creates a descriptor that gives a physical allocation to another process.
fn export(handle: u64) -> Result<i32, CUerror> {
    let physical = physical(handle)?;
    let Plain(props) = physical.props;
    if props.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    pages::duplicate(&physical.file).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

/// Imports the physical allocation of a descriptor; the exporter stays charged for it.
fn import(descriptor: i32) -> Result<u64, CUerror> {
    let driver = driver()?;
    let found = pages::open(descriptor).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if found.place != HOST {
        driver.device(found.place)?;
    }
    let props = calls::properties(found.place, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    driver.member.imported(true);
    let physical = Physical {
        id: fresh(),
        bytes: found.bytes,
        props: Plain(props),
        file: found.file,
        charged: None,
        imported: true,
    };
    Ok(keep(Arc::new(physical)))
}
