//! The calls on contexts: making, ending, choosing them, and the devices' primary ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNSUPPORTED_LIMIT,
        CUerror, CUresult,
    },
    types::{CUcontext, CUctxCreateParams, CUdevice, CUevent, CUexecAffinityParam},
};
use gpushare_sim::scenario::Swap;

use crate::{
    c::{In, Out},
    calls::event as event_calls,
    capture,
    code::module,
    context::{
        Context, by_handle, by_handle_or_current, current, here, pop, push, to_make_current, top,
    },
    driver::{driver, mishap},
    event,
    faces::faces,
    handles::lock,
    memory::{array, capacity, heap, pool},
    submit,
};

/// A device's primary context.
#[derive(Debug, Default)]
struct Primary {
    retained: u32,
    flags: u32,
    context: Option<Arc<Context>>,
}

/// Each device's primary context, by ordinal.
static PRIMARIES: Mutex<BTreeMap<i32, Primary>> = Mutex::new(BTreeMap::new());

faces! {
    "cuCtxCreate" 2000 cuCtxCreate (out: Out<CUcontext>, flags: u32, device: CUdevice) { create(out, flags, device) }
    "cuCtxCreate" 3020 cuCtxCreate_v2 (out: Out<CUcontext>, flags: u32, device: CUdevice) { create(out, flags, device) }
    "cuCtxCreate" 11040 cuCtxCreate_v3 (out: Out<CUcontext>, affinity: In<CUexecAffinityParam>, count: i32, flags: u32, device: CUdevice) {
        let _ = (affinity, count);
        create(out, flags, device)
    }
    "cuCtxCreate" 12050 cuCtxCreate_v4 (out: Out<CUcontext>, params: In<CUctxCreateParams>, flags: u32, device: CUdevice) {
        let _ = params;
        create(out, flags, device)
    }
    "cuCtxDestroy" 2000 cuCtxDestroy (context: CUcontext) { destroy(context) }
    "cuCtxDestroy" 4000 cuCtxDestroy_v2 (context: CUcontext) { destroy(context) }
    "cuCtxPushCurrent" 2000 cuCtxPushCurrent (context: CUcontext) {
        push(to_make_current(context)?);
        Ok(())
    }
    "cuCtxPushCurrent" 4000 cuCtxPushCurrent_v2 (context: CUcontext) {
        push(to_make_current(context)?);
        Ok(())
    }
    "cuCtxPopCurrent" 2000 cuCtxPopCurrent (out: Out<CUcontext>) { pop_into(out) }
    "cuCtxPopCurrent" 4000 cuCtxPopCurrent_v2 (out: Out<CUcontext>) { pop_into(out) }
    "cuCtxSetCurrent" 4000 cuCtxSetCurrent (context: CUcontext) {
        driver()?;
        if context.is_null() {
            pop();
            return Ok(());
        }
        let context = to_make_current(context)?;
        pop();
        push(context);
        Ok(())
    }
    "cuCtxGetCurrent" 4000 cuCtxGetCurrent (out: Out<CUcontext>) {
        driver()?;
        out.set(top().map_or(std::ptr::null_mut(), |context| context.handle as CUcontext))
    }
    "cuCtxGetDevice" 2000 cuCtxGetDevice (out: Out<CUdevice>) {
        let context = here()?;
        out.set(context.device)
    }
    "cuCtxGetDevice" 13000 cuCtxGetDevice_v2 (out: Out<CUdevice>, context: CUcontext) {
        let context = by_handle_or_current(context)?;
        out.set(context.device)
    }
    "cuCtxGetFlags" 7000 cuCtxGetFlags (out: Out<u32>) {
        let context = current()?;
        out.set(context.flags.load(Relaxed))
    }
    "cuCtxSetFlags" 12010 cuCtxSetFlags (flags: u32) {
        current()?.flags.store(flags, Relaxed);
        Ok(())
    }
    "cuCtxGetId" 12000 cuCtxGetId (context: CUcontext, out: Out<u64>) {
        let context = by_handle_or_current(context)?;
        out.set(context.handle)
    }
    "cuCtxSynchronize" 2000 cuCtxSynchronize () {
        synchronize(&*current()?)
    }
    "cuCtxSynchronize" 13000 cuCtxSynchronize_v2 (context: CUcontext) {
        synchronize(&*by_handle_or_current(context)?)
    }
    "cuCtxRecordEvent" 12050 cuCtxRecordEvent (context: CUcontext, event: CUevent) {
        mishap(Swap::Record)?;
        event_calls::record_all(&*by_handle_or_current(context)?, &event::by_handle(event)?)
    }
    "cuCtxWaitEvent" 12050 cuCtxWaitEvent (context: CUcontext, event: CUevent) {
        event_calls::await_in_all(&*by_handle_or_current(context)?, &event::by_handle(event)?)
    }
    "cuCtxGetApiVersion" 3020 cuCtxGetApiVersion (context: CUcontext, out: Out<u32>) {
        by_handle_or_current(context)?;
        out.set(3020)
    }
    "cuCtxAttach" 2000 cuCtxAttach (out: Out<CUcontext>, flags: u32) {
        let context = current()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(context.handle as CUcontext)
    }
    "cuCtxDetach" 2000 cuCtxDetach (context: CUcontext) { destroy(context) }
    "cuCtxSetLimit" 3010 cuCtxSetLimit (limit: u32, value: usize) {
        let context = current()?;
        let default = default_limit(limit)?;
        let mut limits = lock(&context.limits);
        let (old, new) = (limits.get(&limit).copied().unwrap_or(default), value);
        if limit == STACK {
            move_stacks(context.device, stack_memory(context.device, old)?, stack_memory(context.device, new)?)?;
        }
        limits.insert(limit, value);
        Ok(())
    }
    "cuCtxGetLimit" 3010 cuCtxGetLimit (out: Out<usize>, limit: u32) {
        let context = current()?;
        let default = default_limit(limit)?;
        let value = lock(&context.limits).get(&limit).copied();
        out.set(value.unwrap_or(default))
    }
    "cuCtxGetCacheConfig" 3020 cuCtxGetCacheConfig (out: Out<u32>) {
        let context = current()?;
        out.set(context.cache.load(Relaxed))
    }
    "cuCtxSetCacheConfig" 3020 cuCtxSetCacheConfig (config: u32) {
        if config > CACHE_CONFIGS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        current()?.cache.store(config, Relaxed);
        Ok(())
    }
    "cuCtxGetSharedMemConfig" 4020 cuCtxGetSharedMemConfig (out: Out<u32>) {
        let context = current()?;
        out.set(context.shared_banks.load(Relaxed))
    }
    "cuCtxSetSharedMemConfig" 4020 cuCtxSetSharedMemConfig (config: u32) {
        current()?.shared_banks.store(config, Relaxed);
        Ok(())
    }
    "cuCtxGetStreamPriorityRange" 5050 cuCtxGetStreamPriorityRange (least: Out<i32>, greatest: Out<i32>) {
        current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }
    "cuCtxResetPersistingL2Cache" 11000 cuCtxResetPersistingL2Cache () {
        current().map(|_| ())
    }
    "cuCtxGetExecAffinity" 11040 cuCtxGetExecAffinity (out: Out<CUexecAffinityParam>, kind: u32) {
        let context = current()?;
        if kind != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let multiprocessors = driver()?.device(context.device)?.multiprocessors;
        out.set(CUexecAffinityParam { type_: 0, smCount: multiprocessors })
    }
    "cuDevicePrimaryCtxRetain" 7000 cuDevicePrimaryCtxRetain (out: Out<CUcontext>, device: CUdevice) {
        driver()?.device(device)?;
        out.check()?;
        out.set(retain_primary(device)?.handle as CUcontext)
    }
    "cuDevicePrimaryCtxRelease" 7000 cuDevicePrimaryCtxRelease (device: CUdevice) { release_primary(device) }
    "cuDevicePrimaryCtxRelease" 11000 cuDevicePrimaryCtxRelease_v2 (device: CUdevice) { release_primary(device) }
    "cuDevicePrimaryCtxReset" 7000 cuDevicePrimaryCtxReset (device: CUdevice) {
        driver()?.device(device)?;
        reset_primary(device);
        Ok(())
    }
    "cuDevicePrimaryCtxReset" 11000 cuDevicePrimaryCtxReset_v2 (device: CUdevice) {
        driver()?.device(device)?;
        reset_primary(device);
        Ok(())
    }
    "cuDevicePrimaryCtxGetState" 7000 cuDevicePrimaryCtxGetState (device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        driver()?.device(device)?;
        let mut primaries = lock(&PRIMARIES);
        let primary = primaries.entry(device).or_default();
        flags.set(primary.flags)?;
        active.set(i32::from(primary.context.is_some()))
    }
    "cuDevicePrimaryCtxSetFlags" 7000 cuDevicePrimaryCtxSetFlags (device: CUdevice, flags: u32) { set_primary_flags(device, flags) }
    "cuDevicePrimaryCtxSetFlags" 11000 cuDevicePrimaryCtxSetFlags_v2 (device: CUdevice, flags: u32) { set_primary_flags(device, flags) }
}

fn synchronize(context: &Context) -> CUresult {
    capture::forbid_in_context(context.handle)?;
    context.synchronize();
    pool::after_synchronisation();
    driver()?.works_on(context.device)
}

/// Ends a context: its work is waited for, its memory given back.
fn end(context: &Context) {
    if !context.retire() {
        return;
    }
    context.synchronize();
    let captures = capture::context_gone(context.handle);
    captures.into_iter().for_each(submit::discard);
    for green in context.greens() {
        green.retire();
        green.streams.close();
    }
    context.streams.close();
    module::unload_all(context.handle);
    array::forget_all(context.handle);
    heap::free_all(context.handle);
    if context.primary {
        pool::primary_gone(context.handle);
    }
    if let Some(stack) = lock(&context.limits).remove(&STACK) {
        capacity::give(
            context.device,
            stack_memory(context.device, stack).unwrap_or(0),
        );
    }
    context.give_back();
}

/// Returns the primary context of a device, created if necessary, and retains it for the caller.
pub fn retain_primary(ordinal: i32) -> Result<Arc<Context>, CUerror> {
    let driver = driver()?;
    driver.device(ordinal)?;
    let mut primaries = lock(&PRIMARIES);
    let primary = primaries.entry(ordinal).or_default();
    let context = match &primary.context {
        Some(context) => Arc::clone(context),
        None => Context::make(driver, ordinal, primary.flags, true)?,
    };
    primary.context = Some(Arc::clone(&context));
    primary.retained += 1;
    Ok(context)
}

fn reset_primary(ordinal: i32) {
    // The lock is not held while the context ends: that may wait for work.
    let primary = lock(&PRIMARIES)
        .get_mut(&ordinal)
        .and_then(|primary| primary.context.take());
    if let Some(context) = primary {
        end(&context);
    }
}

fn pop_into(out: Out<CUcontext>) -> CUresult {
    driver()?;
    let context = pop().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    out.set_if_wanted(context.handle as CUcontext);
    Ok(())
}

fn create(out: Out<CUcontext>, flags: u32, ordinal: i32) -> CUresult {
    let driver = driver()?;
    out.check()?;
    if flags & !0x3ff != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let context = Context::make(driver, ordinal, flags, false)?;
    out.set(context.handle as CUcontext)?;
    push(context);
    Ok(())
}

/// Ends the context of a forgotten handle, wherever it is current.
fn destroy(handle: CUcontext) -> CUresult {
    let context = by_handle(handle)?;
    if context.primary || context.is_green() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if top().is_some_and(|current| current.handle == context.handle) {
        pop();
    }
    end(&context);
    Ok(())
}

/// Releases a primary context; the last release resets it.
pub fn release_primary(ordinal: i32) -> CUresult {
    driver()?.device(ordinal)?;
    let last = {
        let mut primaries = lock(&PRIMARIES);
        let primary = primaries.entry(ordinal).or_default();
        primary.retained = primary
            .retained
            .checked_sub(1)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        primary.retained == 0
    };
    if last {
        reset_primary(ordinal);
    }
    Ok(())
}

fn set_primary_flags(ordinal: i32, flags: u32) -> CUresult {
    driver()?.device(ordinal)?;
    if flags & !0x3ff != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut primaries = lock(&PRIMARIES);
    let primary = primaries.entry(ordinal).or_default();
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Relaxed);
    }
    Ok(())
}

/// The index of the stack limit. Limits are: stack, printf buffer, heap, sync depth, pending launches, L2 fetch,
/// persisting L2.
const STACK: u32 = 0;
/// The last of `CUfunc_cache`.
const CACHE_CONFIGS: u32 = 3;

/// Returns the bytes that stacks need beyond the default ones, which are in the context's own memory: one stack per
/// thread that fits.
fn stack_memory(ordinal: i32, stack: usize) -> Result<u64, CUerror> {
    const THREADS_PER_MULTIPROCESSOR: u64 = 2048;
    let threads =
        u64::from(driver()?.device(ordinal)?.multiprocessors) * THREADS_PER_MULTIPROCESSOR;
    let beyond = stack.saturating_sub(default_limit(STACK)?) as u64;
    Ok(beyond.saturating_mul(threads))
}

/// Charges or releases the memory of stacks, as a driver does when the limit is raised or lowered.
fn move_stacks(ordinal: i32, old: u64, new: u64) -> CUresult {
    if new > old {
        return capacity::take(ordinal, new - old);
    }
    capacity::give(ordinal, old - new);
    Ok(())
}

fn default_limit(limit: u32) -> Result<usize, CUerror> {
    match limit {
        0 => Ok(1024),
        1 => Ok(1 << 20),
        2 => Ok(8 << 20),
        3 => Ok(2),
        4 => Ok(2048),
        5 => Ok(64),
        6 => Ok(0),
        7..=9 => Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
