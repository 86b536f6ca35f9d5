//! Memory that a graph allocates: the address is fixed when the node is made, and the memory is allocated by a
//! launch.
//!
//! A device keeps one amount of memory for all graphs of a process. An upload or a launch adds what it needs beyond
//! the unused part. A free, the destruction of the executable and the destruction of the graph change nothing; a trim
//! releases the unused part. If an allocation is in use when its graph is launched again, that is an error, unless
//! the graph was instantiated to free it by itself.
//!
//! A driver (580.159.04) was measured to do all of that. It allocates blocks of 32 MiB and counts all reserved memory
//! as used until a trim; the simulator counts exact bytes, and the two numbers are one. After a launch that was too
//! large the driver keeps what it had allocated, and no trim releases it; the simulator releases it at once. While a
//! launch runs, a launch in another stream gets memory of its own, and no trim releases either.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult},
    types::{
        CU_MEM_LOCATION_TYPE_DEVICE, CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUmemLocation,
        CUmemPoolProps,
    },
};

use crate::{
    c::{In, Out},
    driver::{Driver, driver},
    faces::faces,
    handles::{Table, lock},
    memory::{
        capacity,
        heap::{self, Kind},
    },
    stream::Mark,
    work::Work,
};

/// An allocation of a graph.
#[derive(Debug)]
pub struct Allocation {
    address: u64,
    /// The requested bytes.
    asked: usize,
    /// The bytes that the allocation uses.
    bytes: u64,
    device: i32,
    /// True from a launch that has allocated the memory until it is freed.
    live: Mutex<bool>,
}

/// The memory that a device keeps for graphs.
#[derive(Debug, Default)]
struct Kept {
    /// Bytes of allocations that launches have made and that are not freed.
    live: u64,
    /// Bytes taken from the device.
    reserved: u64,
    /// The most, as two counters that are reset apart.
    used_high: u64,
    reserved_high: u64,
    /// The launches that may still run.
    running: Vec<Arc<Running>>,
}

/// The memory of a launch that is free again after it.
#[derive(Debug)]
pub struct Running {
    /// The handle of its stream.
    stream: u64,
    bytes: u64,
    end: OnceLock<Mark>,
}

impl Running {
    /// Records where the launch was queued.
    pub fn until(&self, end: &Mark) {
        let _ = self.end.set(end.clone());
    }

    fn is_done(self: &Arc<Self>) -> bool {
        match self.end.get() {
            Some(end) => end.is_done(),
            // If only the list has it, the launch has failed.
            None => Arc::strong_count(self) == 1,
        }
    }
}

impl Kept {
    /// Returns the bytes that launches still use, except those in this stream, which come one after the other.
    fn in_use(&mut self, except: Option<u64>) -> u64 {
        self.running.retain(|one| !one.is_done());
        let mut of_stream = BTreeMap::new();
        for one in &self.running {
            if Some(one.stream) != except {
                let bytes = of_stream.entry(one.stream).or_insert(0);
                *bytes = one.bytes.max(*bytes);
            }
        }
        of_stream.values().sum()
    }
}

static KEPT: Mutex<BTreeMap<i32, Kept>> = Mutex::new(BTreeMap::new());
/// The allocations in use; they outlive their graphs.
static LIVE: Table<Allocation> = Table::new();

fn kept<T>(device: i32, act: impl FnOnce(&mut Kept) -> T) -> T {
    act(lock(&KEPT).entry(device).or_default())
}

/// The memory that a launch or an upload needs on a device.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// Bytes beside those in use.
    bytes: u64,
    /// The part of these bytes that is in use from now on.
    live: u64,
}

/// Makes a device keep as many bytes, and marks them as in use in the same step, so that a trim in another thread
/// does not release them in between.
fn supply(
    device: i32,
    wanted: Wanted,
    stream: Option<u64>,
) -> Result<Option<Arc<Running>>, CUerror> {
    let take = || {
        kept(device, |kept| {
            let beside = kept.in_use(stream);
            let more = (kept.live + beside + wanted.bytes).saturating_sub(kept.reserved);
            if more > 0 {
                capacity::take_free(device, more)?;
            }
            kept.reserved += more;
            kept.live += wanted.live;
            kept.used_high = kept.used_high.max(kept.reserved);
            kept.reserved_high = kept.reserved_high.max(kept.reserved);
            let running = stream.map(|stream| {
                Arc::new(Running {
                    stream,
                    bytes: wanted.bytes - wanted.live,
                    end: OnceLock::new(),
                })
            });
            kept.running.extend(running.clone());
            Ok(running)
        })
    };
    take().or_else(|_: CUerror| {
        capacity::reclaim(device);
        take()
    })
}

/// Returns the memory that the allocations not yet in use need on each device. Those that stay are in use from then
/// on.
fn wanted(
    allocations: &[&Arc<Allocation>],
    stays: impl Fn(&Allocation) -> bool,
) -> BTreeMap<i32, Wanted> {
    let mut wanted: BTreeMap<i32, Wanted> = BTreeMap::new();
    for allocation in allocations.iter().filter(|one| !one.is_live()) {
        let one = wanted.entry(allocation.device).or_default();
        one.bytes += allocation.bytes;
        if stays(allocation) {
            one.live += allocation.bytes;
        }
    }
    wanted
}

fn supply_all(
    wanted: &BTreeMap<i32, Wanted>,
    stream: Option<u64>,
) -> Result<Vec<Arc<Running>>, CUerror> {
    let mut all = Vec::new();
    for (device, one) in wanted {
        let running = supply(*device, *one, stream).inspect_err(|_| {
            for (before, one) in wanted.range(..device) {
                kept(*before, |kept| kept.live -= one.live);
            }
        })?;
        all.extend(running);
    }
    Ok(all)
}

/// Allocates memory for all of these at once, before their launch.
pub fn upload(allocations: &[&Arc<Allocation>]) -> CUresult {
    supply_all(&wanted(allocations, |_| false), None).map(drop)
}

/// Allocates memory for all of these at once; those that the launch does not free are in use from then on, the others until the
/// launch has ended, of which the caller tells.
pub fn launch(
    allocations: &[&Arc<Allocation>],
    frees: impl Fn(u64) -> bool,
    stream: u64,
) -> Result<Vec<Arc<Running>>, CUerror> {
    let stays = |one: &Allocation| !frees(one.address);
    let running = supply_all(&wanted(allocations, stays), Some(stream))?;
    let new = allocations.iter().filter(|one| !one.is_live());
    for allocation in new.filter(|one| stays(one)) {
        *lock(&allocation.live) = true;
        LIVE.insert(allocation.address, Arc::clone(allocation));
    }
    Ok(running)
}

/// Releases the memory that a device keeps and neither an allocation nor a launch uses.
fn trim(device: i32) -> CUresult {
    driver()?.device(device)?;
    kept(device, |kept| {
        let used = kept.live + kept.in_use(None);
        capacity::give(device, kept.reserved.saturating_sub(used));
        kept.reserved = kept.reserved.min(used);
    });
    Ok(())
}

/// Frees an allocation that is in use.
pub fn free(address: u64) -> CUresult {
    let allocation = LIVE.remove(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    *lock(&allocation.live) = false;
    kept(allocation.device, |kept| kept.live -= allocation.bytes);
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
            live: Mutex::default(),
        });
        Ok(allocation)
    }

    /// Creates an allocation for `cuMemAllocAsync` in a capturing stream.
    pub fn captured(bytes: usize, device: i32) -> Result<Arc<Self>, CUerror> {
        Self::new(&params(bytes, device, 0))
    }

    /// Returns the address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the parameters with which it was created.
    pub fn params(&self) -> CUDA_MEM_ALLOC_NODE_PARAMS {
        params(self.asked, self.device, self.address)
    }

    /// Returns true if a launch has allocated it, and it has not been freed since.
    pub fn is_live(&self) -> bool {
        *lock(&self.live)
    }
}

/// Does nothing: the memory was allocated when the graph was launched, and is kept until the work on it is done.
impl Work for Allocation {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        ready
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
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
    "cuDeviceGraphMemTrim" 11040 cuDeviceGraphMemTrim (device: CUdevice) { trim(device) }
    "cuDeviceGetGraphMemAttribute" 11040 cuDeviceGetGraphMemAttribute (device: CUdevice, attribute: u32, out: Out<u64>) {
        driver()?.device(device)?;
        out.set(kept(device, |kept| match attribute {
            0 | 2 => Ok(kept.reserved),
            1 => Ok(kept.used_high),
            3 => Ok(kept.reserved_high),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })?)
    }
    "cuDeviceSetGraphMemAttribute" 11040 cuDeviceSetGraphMemAttribute (device: CUdevice, attribute: u32, value: In<u64>) {
        driver()?.device(device)?;
        if value.get()? != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match attribute {
            1 => kept(device, |kept| kept.used_high = kept.reserved),
            3 => kept(device, |kept| kept.reserved_high = kept.reserved),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}
