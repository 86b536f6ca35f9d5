//! The calls on memory pools.

use std::sync::Arc;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUresult},
    types::{CUdevice, CUmemAccessDesc, CUmemLocation, CUmemPoolProps, CUmemoryPool},
};

use crate::{
    c::{In, Out},
    driver::driver,
    faces::faces,
    handles::lock,
    memory::{
        peer,
        pool::{
            AT_HOME, POOLS, Pool, READ_WRITE, Settings, at, by_handle, current, home::Home,
            of_device,
        },
    },
};

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

fn get(pool: &Pool, which: u32, out: Out<u64>) -> CUresult {
    let small = Out::<i32>(out.0.cast());
    let (addresses, settings) = (lock(&pool.addresses), lock(&pool.settings));
    match which {
        one if attribute::REUSE.contains(&one) => {
            small.set((!settings.no_reuse[one as usize - 1]).into())
        }
        attribute::RELEASE_THRESHOLD => out.set(settings.threshold),
        attribute::RESERVED => out.set(addresses.reserved()),
        attribute::RESERVED_HIGH => out.set(addresses.reserved_high()),
        attribute::USED => out.set(addresses.used()),
        attribute::USED_HIGH => out.set(addresses.used_high()),
        attribute::ALLOCATION_TYPE => small.set(pool.home.kind as i32),
        attribute::HANDLE_TYPES => small.set(settings.handle_types as i32),
        // This is the error of a driver (580.159.04).
        attribute::LOCATION_ID | attribute::LOCATION_TYPE if pool.elsewhere.is_some() => {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
        attribute::LOCATION_ID => small.set(pool.home.id),
        attribute::LOCATION_TYPE => small.set(pool.home.place as i32),
        attribute::MAX_SIZE => out.set(settings.max_size),
        attribute::HW_DECOMPRESS => small.set(0),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn set(pool: &Pool, which: u32, value: In<u64>) -> CUresult {
    let (mut addresses, mut settings) = (lock(&pool.addresses), lock(&pool.settings));
    match which {
        one if attribute::REUSE.contains(&one) => {
            settings.no_reuse[one as usize - 1] = In::<i32>(value.0.cast()).get()? == 0;
        }
        attribute::RELEASE_THRESHOLD => settings.threshold = value.get()?,
        attribute::RESERVED_HIGH if value.get()? == 0 => addresses.reset_reserved_high(),
        attribute::USED_HIGH if value.get()? == 0 => addresses.reset_used_high(),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn set_current(home: Home, pool: CUmemoryPool) -> CUresult {
    let pool = by_handle(pool)?;
    if pool.home != home || pool.elsewhere.is_some() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut pools = at(home);
    pools.current = pool;
    lock(&AT_HOME).insert(home, pools);
    Ok(())
}

/// Makes a place's default pool current again if this one is.
fn leave_current(pool: &Pool) {
    if let Some(pools) = lock(&AT_HOME).get_mut(&pool.home)
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
    "cuDeviceSetMemPool" 11020 cuDeviceSetMemPool (device: CUdevice, pool: CUmemoryPool) {
        driver()?.device(device)?;
        set_current(Home::on_device(device), pool)
    }
    "cuMemGetDefaultMemPool" 13000 cuMemGetDefaultMemPool (out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) {
        driver()?;
        out.check()?;
        out.set(at(Home::of(location.get()?, kind)?).default.handle as CUmemoryPool)
    }
    "cuMemGetMemPool" 13000 cuMemGetMemPool (out: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32) {
        driver()?;
        out.check()?;
        out.set(at(Home::of(location.get()?, kind)?).current.handle as CUmemoryPool)
    }
    "cuMemSetMemPool" 13000 cuMemSetMemPool (location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool) {
        driver()?;
        set_current(Home::of(location.get()?, kind)?, pool)
    }
    "cuMemPoolCreate" 11020 cuMemPoolCreate (out: Out<CUmemoryPool>, props: In<CUmemPoolProps>) {
        driver()?;
        out.check()?;
        let props = props.get()?;
        let home = Home::of(props.location, props.allocType)?;
        if !home.is_shareable_by(props.handleTypes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let settings = Settings {
            max_size: props.maxSize as u64,
            handle_types: props.handleTypes,
            ..Settings::default()
        };
        out.set(Pool::keep(home, false, settings, None).handle as CUmemoryPool)
    }
    "cuMemPoolDestroy" 11020 cuMemPoolDestroy (pool: CUmemoryPool) {
        let pool = by_handle(pool)?;
        if pool.is_default {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        leave_current(&pool);
        // Its remaining allocations keep it alive.
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
            let ordinal = one.location.device().ok_or(CUDA_ERROR_INVALID_VALUE)?;
            driver()?.device(ordinal)?;
            let own_taken = pool.home.is_reached_from(one.location) && one.flags != READ_WRITE;
            if !matches!(one.flags, 0 | 1 | READ_WRITE) || own_taken {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if let Some(home) = pool.home.device()
                && !peer::can_reach(ordinal, home)?
            {
                return Err(CUDA_ERROR_INVALID_DEVICE);
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
        if let Some(ordinal) = location.device() {
            driver()?.device(ordinal)?;
        }
        out.set(pool.access_from(location))
    }
}
