//! Managed memory and the advice about its location. The simulator has one copy of it, so a prefetch moves nothing;
//! advice and prefetches are checked, kept for the whole allocation, and returned by queries.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::{
        CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_INVALID,
        CUdevice, CUdeviceptr, CUmemLocation, CUstream,
    },
};

use crate::{
    c::{In, Out},
    context::{self, current},
    driver::driver,
    faces::{DefaultStream, faces},
    graph::node::Node,
    handles::lock,
    memory::heap::{self, Block},
    submit,
};

/// The host as a device: `CU_DEVICE_CPU`.
const HOST: i32 = -1;
/// No device: `CU_DEVICE_INVALID`.
const NOWHERE: i32 = -2;

/// The advice that the application has given about an allocation.
#[derive(Debug, Default)]
struct Wishes {
    /// The allocation's own number: another one may get its address.
    id: u64,
    read_mostly: bool,
    preferred: Option<i32>,
    accessed_by: BTreeSet<i32>,
    prefetched: Option<i32>,
}

static WISHES: Mutex<BTreeMap<u64, Wishes>> = Mutex::new(BTreeMap::new());

/// Returns the managed allocation that contains a range.
fn managed(address: CUdeviceptr, bytes: usize) -> Result<Block, CUerror> {
    current()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let block = heap::check(address, bytes as u64)?;
    if block.kind.is_managed() {
        Ok(block)
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

fn with<T>(block: &Block, act: impl FnOnce(&mut Wishes) -> T) -> T {
    let mut all = lock(&WISHES);
    let wishes = all.entry(block.base).or_default();
    if wishes.id != block.id {
        *wishes = Wishes {
            id: block.id,
            ..Wishes::default()
        };
    }
    act(wishes)
}

/// Returns a device's ordinal, or the number of the host.
fn place(device: CUdevice) -> Result<i32, CUerror> {
    if device != HOST {
        driver()?.device(device)?;
    }
    Ok(device)
}

/// Returns the device of a location. NUMA nodes of the host count as the host.
fn place_of(location: CUmemLocation) -> Result<i32, CUerror> {
    const HOST_NODES: std::ops::RangeInclusive<u32> = CU_MEM_LOCATION_TYPE_HOST..=4;
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => place(location.id),
        host if HOST_NODES.contains(&host) => Ok(HOST),
        _ => Err(CUDA_ERROR_INVALID_DEVICE),
    }
}

fn prefetch(
    default: DefaultStream,
    address: CUdeviceptr,
    bytes: usize,
    to: i32,
    stream: CUstream,
) -> CUresult {
    let block = managed(address, bytes)?;
    submit::submit(&context::stream(default, stream)?, Node::Empty)?;
    with(&block, |wishes| wishes.prefetched = Some(to));
    Ok(())
}

/// Prefetches ranges of a list, each to the location of the last index that is not past it.
fn prefetch_all(
    default: DefaultStream,
    (addresses, sizes, count): (In<CUdeviceptr>, In<usize>, usize),
    (locations, firsts, groups): (In<CUmemLocation>, In<usize>, usize),
    stream: CUstream,
) -> CUresult {
    let (addresses, sizes) = (addresses.all(count)?, sizes.all(count)?);
    let (locations, firsts) = (locations.all(groups)?, firsts.all(groups)?);
    if count == 0 || firsts.first() != Some(&0) || !firsts.is_sorted() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for (index, (address, size)) in addresses.into_iter().zip(sizes).enumerate() {
        let group = firsts.iter().rposition(|first| *first <= index);
        let to = place_of(locations[group.ok_or(CUDA_ERROR_INVALID_VALUE)?])?;
        prefetch(default, address, size, to, stream)?;
    }
    Ok(())
}

fn advise(
    address: CUdeviceptr,
    bytes: usize,
    advice: u32,
    place: Result<i32, CUerror>,
) -> CUresult {
    let block = managed(address, bytes)?;
    // Advice of reading mostly, and the end of a preference, have no place.
    let place = match advice {
        1 | 2 | 4 => NOWHERE,
        3 | 5 | 6 => place?,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    with(&block, |wishes| match advice {
        1 | 2 => wishes.read_mostly = advice == 1,
        3 => wishes.preferred = Some(place),
        4 => wishes.preferred = None,
        5 => drop(wishes.accessed_by.insert(place)),
        _ => drop(wishes.accessed_by.remove(&place)),
    });
    Ok(())
}

/// Returns the kind and number of the location of a place.
fn location(place: Option<i32>) -> [i32; 2] {
    match place {
        None => [CU_MEM_LOCATION_TYPE_INVALID as i32, 0],
        Some(HOST) => [CU_MEM_LOCATION_TYPE_HOST as i32, 0],
        Some(device) => [CU_MEM_LOCATION_TYPE_DEVICE as i32, device],
    }
}

/// Writes an attribute's words; only the list of devices may have any length.
fn tell(out: Out<i32>, size: usize, attribute: u32, block: &Block) -> CUresult {
    const ACCESSED_BY: u32 = 3;
    let room = size / 4;
    if room == 0 || !size.is_multiple_of(4) || (room > 1 && attribute != ACCESSED_BY) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    with(block, |wishes| match attribute {
        1 => out.set(wishes.read_mostly.into()),
        2 => out.set(wishes.preferred.unwrap_or(NOWHERE)),
        ACCESSED_BY => {
            // The devices by their numbers, then the host.
            let all = wishes.accessed_by.iter().copied();
            let devices = all.clone().filter(|place| *place != HOST);
            let host = all.filter(|place| *place == HOST);
            let padded = devices
                .chain(host)
                .chain(std::iter::repeat(NOWHERE))
                .take(room);
            padded
                .enumerate()
                .try_for_each(|(index, device)| out.set_at(index, device))
        }
        4 => out.set(wishes.prefetched.unwrap_or(NOWHERE)),
        5 | 6 => out.set(location(wishes.preferred)[attribute as usize - 5]),
        7 | 8 => out.set(location(wishes.prefetched)[attribute as usize - 7]),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    })
}

faces! {
    "cuMemPrefetchAsync" 8000 cuMemPrefetchAsync (address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) / cuMemPrefetchAsync_ptsz 8000 |default| {
        prefetch(default, address, bytes, place(device)?, stream)
    }
    "cuMemPrefetchAsync" 12020 cuMemPrefetchAsync_v2 (address: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream) / cuMemPrefetchAsync_v2_ptsz 12020 |default| {
        driver()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        prefetch(default, address, bytes, place_of(location)?, stream)
    }
    "cuMemPrefetchBatchAsync" 13000 cuMemPrefetchBatchAsync
        (addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<CUmemLocation>, firsts: In<usize>, groups: usize, flags: u64, stream: CUstream) / cuMemPrefetchBatchAsync_ptsz 13000 |default| {
        driver()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        prefetch_all(default, (addresses, sizes, count), (locations, firsts, groups), stream)
    }
    "cuMemDiscardAndPrefetchBatchAsync" 13000 cuMemDiscardAndPrefetchBatchAsync
        (addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<CUmemLocation>, firsts: In<usize>, groups: usize, flags: u64, stream: CUstream) / cuMemDiscardAndPrefetchBatchAsync_ptsz 13000 |default| {
        driver()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        prefetch_all(default, (addresses, sizes, count), (locations, firsts, groups), stream)
    }
    "cuMemDiscardBatchAsync" 13000 cuMemDiscardBatchAsync
        (addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, flags: u64, stream: CUstream) / cuMemDiscardBatchAsync_ptsz 13000 |default| {
        current()?;
        if count == 0 || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (address, size) in addresses.all(count)?.into_iter().zip(sizes.all(count)?) {
            managed(address, size)?;
        }
        submit::submit(&context::stream(default, stream)?, Node::Empty)
    }
    "cuMemAdvise" 8000 cuMemAdvise (address: CUdeviceptr, bytes: usize, advice: u32, device: CUdevice) {
        advise(address, bytes, advice, place(device))
    }
    "cuMemAdvise" 12020 cuMemAdvise_v2 (address: CUdeviceptr, bytes: usize, advice: u32, location: CUmemLocation) {
        advise(address, bytes, advice, place_of(location))
    }
    "cuMemRangeGetAttribute" 8000 cuMemRangeGetAttribute (out: Out<i32>, size: usize, attribute: u32, address: CUdeviceptr, bytes: usize) {
        let block = managed(address, bytes)?;
        out.check()?;
        tell(out, size, attribute, &block)
    }
    "cuMemRangeGetAttributes" 8000 cuMemRangeGetAttributes (out: In<*mut i32>, sizes: In<usize>, attributes: In<u32>, count: usize, address: CUdeviceptr, bytes: usize) {
        let block = managed(address, bytes)?;
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for index in 0..count {
            tell(Out(out.at(index)?), sizes.at(index)?, attributes.at(index)?, &block)?;
        }
        Ok(())
    }
    "cuStreamAttachMemAsync" 6000 cuStreamAttachMemAsync (stream: CUstream, address: CUdeviceptr, length: usize, flags: u32) / cuStreamAttachMemAsync_ptsz 7000 |default| {
        managed(address, length.max(1))?;
        if !matches!(flags, 1 | 2 | 4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        submit::submit(&context::stream(default, stream)?, Node::Empty)
    }
}
