//! Memory that a graph allocates: an address fixed when the node is made, memory behind it from a launch on.
//!
//! Memory stays with the device's graph pool after it is freed, until it is trimmed or no graph knows
//! the allocation any more. An allocation that is in use when its graph is launched again is an error,
//! unless the graph was instantiated to free it by itself.
//!
//! A driver (580.159.04) is coarser: it takes 32 MiB for 4 MiB, calls it used after the free until it is
//! trimmed, keeps it when the graph is destroyed, and refuses a node that frees what a launch has
//! allocated before. By what rule is not known; here all of it is exact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};
use gpushare_abi::types::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUmemLocation,
    CUmemPoolProps,
};

use super::node::Node;
use crate::c::{In, Out};
use crate::driver::driver;
use crate::faces::faces;
use crate::handles::{Table, lock};
use crate::heap::{self, Kind};

/// An allocation of a graph.
#[derive(Debug)]
pub struct Allocation {
    address: u64,
    /// Bytes asked for.
    asked: usize,
    /// Bytes it takes.
    bytes: u64,
    device: i32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The device's memory is taken.
    backed: bool,
    /// It has been allocated by a launch, and not freed since.
    live: bool,
}

/// What `cuDeviceGetGraphMemAttribute` tells: bytes in use, bytes held, and the most of each.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

static NUMBERS: Mutex<BTreeMap<i32, Numbers>> = Mutex::new(BTreeMap::new());
/// All allocations, by address.
static ALLOCATIONS: Table<Weak<Allocation>> = Table::new();
/// Those in use: they outlive their graphs.
static LIVE: Table<Allocation> = Table::new();

fn count(device: i32, change: impl FnOnce(&mut Numbers)) {
    let mut all = lock(&NUMBERS);
    let numbers = all.entry(device).or_default();
    change(numbers);
    numbers.used_high = numbers.used_high.max(numbers.used);
    numbers.reserved_high = numbers.reserved_high.max(numbers.reserved);
}

/// A node that frees an allocation of a graph, or of a pool.
pub fn free_node(address: u64) -> Result<Node, CUerror> {
    let block = heap::find(address).filter(|block| block.base == address);
    match block.map(|block| block.kind) {
        Some(Kind::Graph | Kind::Ordered) => Ok(Node::Free(address)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Frees an allocation that is in use.
pub fn free(address: u64) -> CUresult {
    let allocation = LIVE.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    lock(&allocation.state).live = false;
    count(allocation.device, |numbers| {
        numbers.used -= allocation.bytes
    });
    Ok(())
}

impl Allocation {
    /// Fixes an address.
    pub fn new(params: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Arc<Self>, CUerror> {
        let location = params.poolProps.location;
        let driver = driver()?;
        driver.device(location.id)?;
        if params.bytesize == 0 || location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let asked = params.bytesize;
        let bytes = heap::rounded(asked as u64).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let place = heap::place(asked as u64, 0, heap::STEP, location.id, 0, Kind::Graph);
        let block = place?;
        let allocation = Arc::new(Self {
            address: block.base,
            asked,
            bytes,
            device: location.id,
            state: Mutex::default(),
        });
        ALLOCATIONS.insert(block.base, Arc::new(Arc::downgrade(&allocation)));
        Ok(allocation)
    }

    /// One for `cuMemAllocAsync` in a capturing stream.
    pub fn captured(bytes: usize, device: i32) -> Result<Arc<Self>, CUerror> {
        Self::new(&params(bytes, device, 0))
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What it was made of.
    pub fn params(&self) -> CUDA_MEM_ALLOC_NODE_PARAMS {
        params(self.asked, self.device, self.address)
    }

    /// A launch has allocated it, and nobody has freed it since.
    pub fn is_live(&self) -> bool {
        lock(&self.state).live
    }

    /// Takes the device's memory for it, if it has none yet.
    pub fn back(&self) -> CUresult {
        let mut state = lock(&self.state);
        if state.backed {
            return Ok(());
        }
        let driver = driver()?;
        let index = driver.device(self.device)?.index;
        let take = || driver.member.take_memory(index, self.bytes);
        let taken = take().or_else(|_| {
            crate::pool::trim_device(self.device);
            take()
        });
        taken.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        count(self.device, |numbers| numbers.reserved += self.bytes);
        state.backed = true;
        Ok(())
    }

    /// A launch allocates it, and frees it again before it ends if `within`.
    pub fn begin(self: &Arc<Self>, within: bool) {
        if within {
            let bytes = self.bytes;
            count(self.device, |n| {
                n.used_high = n.used_high.max(n.used + bytes)
            });
            return;
        }
        let mut state = lock(&self.state);
        if !state.live {
            state.live = true;
            count(self.device, |numbers| numbers.used += self.bytes);
            LIVE.insert(self.address, Arc::clone(self));
        }
    }

    /// Gives the memory behind it back if it is not in use.
    fn trim(&self) {
        let mut state = lock(&self.state);
        if state.backed && !state.live {
            state.backed = false;
            count(self.device, |numbers| numbers.reserved -= self.bytes);
            if let Ok(driver) = driver()
                && let Ok(device) = driver.device(self.device)
            {
                driver.member.give_memory(device.index, self.bytes);
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.trim();
        ALLOCATIONS.remove(self.address);
        // It was placed when it was made.
        let _ = heap::free(self.address, Kind::Graph);
    }
}

fn params(bytes: usize, device: i32, address: u64) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    let location = CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    };
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: gpushare_abi::types::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: 0,
            location,
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        },
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        bytesize: bytes,
        dptr: address,
    }
}

faces! {
    "cuDeviceGraphMemTrim" 11040 cuDeviceGraphMemTrim (device: CUdevice) {
        driver()?.device(device)?;
        for weak in ALLOCATIONS.all() {
            if let Some(allocation) = weak.upgrade().filter(|one| one.device == device) {
                allocation.trim();
            }
        }
        Ok(())
    }
    "cuDeviceGetGraphMemAttribute" 11040 cuDeviceGetGraphMemAttribute (device: CUdevice, attribute: u32, out: Out<u64>) {
        driver()?.device(device)?;
        let numbers = lock(&NUMBERS).get(&device).copied().unwrap_or_default();
        out.set(match attribute {
            0 => numbers.used,
            1 => numbers.used_high,
            2 => numbers.reserved,
            3 => numbers.reserved_high,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        })
    }
    "cuDeviceSetGraphMemAttribute" 11040 cuDeviceSetGraphMemAttribute (device: CUdevice, attribute: u32, value: In<u64>) {
        driver()?.device(device)?;
        if value.get()? != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match attribute {
            1 => count(device, |numbers| numbers.used_high = numbers.used),
            3 => count(device, |numbers| numbers.reserved_high = numbers.reserved),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}
