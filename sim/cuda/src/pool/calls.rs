//! The calls on memory pools.

use std::sync::Arc;

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror, CUresult};
use gpushare_abi::types::{
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CUdevice, CUmemAccessDesc,
    CUmemLocation, CUmemPoolProps, CUmemoryPool,
};

use super::{OF_DEVICE, POOLS, Pool, Settings, by_handle, current, of_device};
use crate::c::{In, Out};
use crate::driver::driver;
use crate::faces::faces;
use crate::handles::lock;

/// `CUmemPool_attribute`.
mod attribute {
    pub const REUSE: std::ops::RangeInclusive<u32> = 1..=3;
    pub const RELEASE_THRESHOLD: u32 = 4;
    pub const RESERVED: u32 = 5;
    pub const RESERVED_HIGH: u32 = 6;
    pub const USED: u32 = 7;
    pub const USED_HIGH: u32 = 8;
    pub const ALLOCATION_TYPE: u32 = 9;
    pub const HANDLE_TYPES: u32 = 10;
    pub const LOCATION_ID: u32 = 11;
    pub const LOCATION_TYPE: u32 = 12;
    pub const MAX_SIZE: u32 = 13;
    pub const HW_DECOMPRESS: u32 = 14;
}

/// Read and write: `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

fn get(pool: &Pool, which: u32, out: Out<u64>) -> CUresult {
    let small = Out::<i32>(out.0.cast());
    let (books, settings) = (lock(&pool.books), lock(&pool.settings));
    match which {
        one if attribute::REUSE.contains(&one) => {
            small.set((!settings.no_reuse[one as usize - 1]).into())
        }
        attribute::RELEASE_THRESHOLD => out.set(settings.threshold),
        attribute::RESERVED => out.set(books.reserved()),
        attribute::RESERVED_HIGH => out.set(books.reserved_high()),
        attribute::USED => out.set(books.used()),
        attribute::USED_HIGH => out.set(books.used_high()),
        attribute::ALLOCATION_TYPE => small.set(CU_MEM_ALLOCATION_TYPE_PINNED as i32),
        attribute::HANDLE_TYPES => small.set(settings.handle_types as i32),
        attribute::LOCATION_ID => small.set(pool.device),
        attribute::LOCATION_TYPE => small.set(CU_MEM_LOCATION_TYPE_DEVICE as i32),
        attribute::MAX_SIZE => out.set(settings.max_size),
        attribute::HW_DECOMPRESS => small.set(0),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn set(pool: &Pool, which: u32, value: In<u64>) -> CUresult {
    let (mut books, mut settings) = (lock(&pool.books), lock(&pool.settings));
    match which {
        one if attribute::REUSE.contains(&one) => {
            settings.no_reuse[one as usize - 1] = In::<i32>(value.0.cast()).get()? == 0;
        }
        attribute::RELEASE_THRESHOLD => settings.threshold = value.get()?,
        attribute::RESERVED_HIGH if value.get()? == 0 => books.reset_reserved_high(),
        attribute::USED_HIGH if value.get()? == 0 => books.reset_used_high(),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

/// Of a location only a device of this process has pools.
fn device_of(location: In<CUmemLocation>, kind: u32) -> Result<i32, CUerror> {
    let location = location.get()?;
    if location.type_ != CU_MEM_LOCATION_TYPE_DEVICE || kind != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(location.id)
}

fn set_current(ordinal: i32, pool: CUmemoryPool) -> CUresult {
    let pool = by_handle(pool)?;
    let mut pools = of_device(ordinal)?;
    if pool.device != ordinal {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    pools.current = pool;
    lock(&OF_DEVICE).insert(ordinal, pools);
    Ok(())
}

/// Makes a device's default pool current again if this one is.
fn leave_current(pool: &Pool) {
    if let Some(pools) = lock(&OF_DEVICE).get_mut(&pool.device)
        && pools.current.handle == pool.handle
    {
        pools.current = Arc::clone(&pools.default);
    }
}

faces! {
    "cuDeviceGetDefaultMemPool" 11020 cuDeviceGetDefaultMemPool (out: Out<CUmemoryPool>, device: CUdevice) {
        driver()?;
        out.check()?;
        out.set(of_device(device)?.default.handle as CUmemoryPool)
    }
    "cuDeviceGetMemPool" 11020 cuDeviceGetMemPool (out: Out<CUmemoryPool>, device: CUdevice) {
        driver()?;
        out.check()?;
        out.set(current(device)?.handle as CUmemoryPool)
    }
    "cuDeviceSetMemPool" 11020 cuDeviceSetMemPool (device: CUdevice, pool: CUmemoryPool) { set_current(device, pool) }
    "cuMemGetDefaultMemPool" 13000 cuMemGetDefaultMemPool (out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) {
        driver()?;
        out.check()?;
        out.set(of_device(device_of(location, kind)?)?.default.handle as CUmemoryPool)
    }
    "cuMemGetMemPool" 13000 cuMemGetMemPool (out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) {
        driver()?;
        out.check()?;
        out.set(current(device_of(location, kind)?)?.handle as CUmemoryPool)
    }
    "cuMemSetMemPool" 13000 cuMemSetMemPool (location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool) {
        driver()?;
        set_current(device_of(location, kind)?, pool)
    }
    "cuMemPoolCreate" 11020 cuMemPoolCreate (out: Out<CUmemoryPool>, props: In<CUmemPoolProps>) {
        let driver = driver()?;
        out.check()?;
        let props = props.get()?;
        if props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if props.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        driver.device(props.location.id)?;
        let settings = Settings {
            max_size: props.maxSize as u64,
            handle_types: props.handleTypes,
            ..Settings::default()
        };
        out.set(Pool::keep(props.location.id, false, settings).handle as CUmemoryPool)
    }
    "cuMemPoolDestroy" 11020 cuMemPoolDestroy (pool: CUmemoryPool) {
        let pool = by_handle(pool)?;
        if pool.is_default {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        leave_current(&pool);
        // What is still allocated from it keeps it alive.
        POOLS.remove(pool.handle);
        Ok(())
    }
    "cuMemPoolTrimTo" 11020 cuMemPoolTrimTo (pool: CUmemoryPool, keep: usize) {
        by_handle(pool)?.trim(keep as u64);
        Ok(())
    }
    "cuMemPoolGetAttribute" 11020 cuMemPoolGetAttribute (pool: CUmemoryPool, which: u32, out: Out<u64>) {
        let pool = by_handle(pool)?;
        out.check()?;
        get(&pool, which, out)
    }
    "cuMemPoolSetAttribute" 11020 cuMemPoolSetAttribute (pool: CUmemoryPool, which: u32, value: In<u64>) {
        let pool = by_handle(pool)?;
        if value.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        set(&pool, which, value)
    }
    "cuMemPoolSetAccess" 11020 cuMemPoolSetAccess (pool: CUmemoryPool, list: In<CUmemAccessDesc>, count: usize) {
        let pool = by_handle(pool)?;
        let list = list.all(count)?;
        for one in &list {
            driver()?.device(one.location.id)?;
            let own_taken = one.location.id == pool.device && one.flags != READ_WRITE;
            if one.location.type_ != CU_MEM_LOCATION_TYPE_DEVICE || own_taken {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        let mut settings = lock(&pool.settings);
        settings.access.extend(list.iter().map(|one| (one.location.id, one.flags)));
        Ok(())
    }
    "cuMemPoolGetAccess" 11020 cuMemPoolGetAccess (out: Out<u32>, pool: CUmemoryPool, location: In<CUmemLocation>) {
        let pool = by_handle(pool)?;
        out.check()?;
        let location = location.get()?;
        driver()?.device(location.id)?;
        let own = if location.id == pool.device { READ_WRITE } else { 0 };
        let given = lock(&pool.settings).access.get(&location.id).copied();
        out.set(given.unwrap_or(own))
    }
}
