//! Multicast objects: memory of several devices bound to one handle.
//!
//! An object has a handle like memory, so the same calls map, retain and release it; it uses no device's capacity.
//! Bound memory lives at least as long as the binding. Only kernels can send through an object, and simulated kernels
//! compute nothing, so a mapping of it has bytes of its own.

use std::sync::{Arc, Mutex};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult,
    },
    types::{
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUdevice, CUdeviceptr,
        CUmemGenericAllocationHandle, CUmulticastObjectProp,
    },
};

use crate::{
    c::{In, Out, Plain},
    driver::driver,
    faces::faces,
    handles::{Table, fresh, lock},
    memory::vmm::{
        GRANULARITY, MAPPED, Physical, SPACE, aligned, calls::properties, keep, pages, physical,
        space::HOST,
    },
};

/// The objects, by the identifier that their handles name.
static TEAMS: Table<Mutex<Team>> = Table::new();

/// A multicast object.
#[derive(Debug)]
struct Team {
    /// Number of devices of the object.
    wanted: usize,
    bytes: u64,
    devices: Vec<CUdevice>,
    bound: Vec<Bound>,
}

/// Memory bound to it.
#[derive(Debug)]
struct Bound {
    device: CUdevice,
    offset: u64,
    bytes: u64,
    /// Keeps it alive.
    _memory: Arc<Physical>,
}

/// Removes an object without references, and releases all memory bound to it.
pub(super) fn forget(id: u64) {
    drop(TEAMS.remove(id));
}

fn checked(prop: &CUmulticastObjectProp) -> CUresult {
    let devices = driver()?.devices.len();
    if devices < 2 || prop.handleTypes & !u64::from(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if prop.numDevices == 0 || prop.numDevices as usize > devices || prop.flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn create(prop: &CUmulticastObjectProp) -> Result<u64, CUerror> {
    checked(prop)?;
    let bytes = prop.size as u64;
    aligned(&[bytes])?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = fresh();
    let file = pages::create(bytes, HOST).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let team = Team {
        wanted: prop.numDevices as usize,
        bytes,
        devices: Vec::new(),
        bound: Vec::new(),
    };
    TEAMS.insert(id, Arc::new(Mutex::new(team)));
    Ok(keep(Arc::new(Physical {
        id,
        bytes,
        props: Plain(properties(HOST, prop.handleTypes as u32)),
        file,
        charged: None,
        imported: false,
    })))
}

fn team(handle: u64) -> Result<Arc<Mutex<Team>>, CUerror> {
    TEAMS
        .get(physical(handle)?.id)
        .ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn add(handle: u64, device: CUdevice) -> CUresult {
    driver()?.device(device)?;
    let team = team(handle)?;
    let mut team = lock(&team);
    if team.devices.contains(&device) || team.devices.len() == team.wanted {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    team.devices.push(device);
    Ok(())
}

fn bind(handle: u64, offset: u64, memory: Arc<Physical>, from: u64, bytes: u64) -> CUresult {
    let team = team(handle)?;
    let mut team = lock(&team);
    if team.devices.len() < team.wanted {
        return Err(CUDA_ERROR_ILLEGAL_STATE);
    }
    aligned(&[offset, from, bytes])?;
    let Plain(props) = memory.props;
    let device = props.location.device().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let fits = |start: u64, all: u64| start.checked_add(bytes).is_some_and(|end| end <= all);
    let overlaps = team.bound.iter().any(|other| {
        other.device == device
            && other.offset < offset + bytes
            && offset < other.offset + other.bytes
    });
    let known = team.devices.contains(&device);
    if bytes == 0 || !known || !fits(offset, team.bytes) || !fits(from, memory.bytes) || overlaps {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    team.bound.push(Bound {
        device,
        offset,
        bytes,
        _memory: memory,
    });
    Ok(())
}

/// Removes exactly one binding, which the documentation requires of the caller.
fn unbind(handle: u64, device: CUdevice, offset: u64, bytes: u64) -> CUresult {
    let team = team(handle)?;
    let mut team = lock(&team);
    let this = |bound: &Bound| (bound.device, bound.offset, bound.bytes) == (device, offset, bytes);
    let at = team.bound.iter().position(this);
    team.bound.swap_remove(at.ok_or(CUDA_ERROR_INVALID_VALUE)?);
    Ok(())
}

/// Returns the physical allocation mapped at an address, and the offset of the address in it.
fn mapped_at(address: CUdeviceptr) -> Result<(Arc<Physical>, u64), CUerror> {
    let space = lock(&SPACE);
    let (start, mapping) = space.at(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let memory = MAPPED.get(start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok((memory, mapping.offset + (address - start)))
}

faces! {
    "cuMulticastGetGranularity" 12010 cuMulticastGetGranularity (out: Out<usize>, prop: In<CUmulticastObjectProp>, option: u32) {
        out.check()?;
        checked(&prop.get()?)?;
        if option > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(GRANULARITY as usize)
    }
    "cuMulticastCreate" 12010 cuMulticastCreate (out: Out<CUmemGenericAllocationHandle>, prop: In<CUmulticastObjectProp>) {
        out.check()?;
        out.set(create(&prop.get()?)?)
    }
    "cuMulticastAddDevice" 12010 cuMulticastAddDevice (handle: CUmemGenericAllocationHandle, device: CUdevice) { add(handle, device) }
    "cuMulticastBindMem" 12010 cuMulticastBindMem (handle: CUmemGenericAllocationHandle, offset: usize, memory: CUmemGenericAllocationHandle, from: usize, bytes: usize, flags: u64) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        bind(handle, offset as u64, physical(memory)?, from as u64, bytes as u64)
    }
    "cuMulticastBindAddr" 12010 cuMulticastBindAddr (handle: CUmemGenericAllocationHandle, offset: usize, address: CUdeviceptr, bytes: usize, flags: u64) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (memory, from) = mapped_at(address)?;
        bind(handle, offset as u64, memory, from, bytes as u64)
    }
    "cuMulticastUnbind" 12010 cuMulticastUnbind (handle: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, bytes: usize) {
        unbind(handle, device, offset as u64, bytes as u64)
    }
}
