//! Contexts: created and primary ones, and each thread's stack of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

use gpushare_abi::errors::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNSUPPORTED_LIMIT, CUerror, CUresult,
};
use gpushare_abi::types::{CUcontext, CUctxCreateParams, CUdevice, CUevent, CUexecAffinityParam};

use crate::c::{In, Out};
use crate::driver::{Driver, driver};
use crate::faces::faces;
use crate::handles::{Table, fresh, lock};
use crate::stream::{Mark, Stream};
use crate::{capture, event, heap};

/// One process's state on one device.
#[derive(Debug)]
pub struct Context {
    /// Its handle.
    pub handle: u64,
    /// The device's ordinal.
    pub device: i32,
    /// It is the device's primary context.
    pub primary: bool,
    flags: AtomicU32,
    alive: AtomicBool,
    limits: Mutex<HashMap<u32, usize>>,
    cache: AtomicU32,
    shared_banks: AtomicU32,
    persisting: AtomicU64,
    /// Its streams.
    pub streams: Mutex<Streams>,
}

/// A context's streams.
#[derive(Debug)]
pub struct Streams {
    /// The legacy default stream.
    pub legacy: Arc<Stream>,
    /// Each thread's default stream.
    pub per_thread: HashMap<ThreadId, Arc<Stream>>,
    /// All streams, default ones too, that may have work.
    pub all: Vec<Weak<Stream>>,
}

/// A device's primary context.
#[derive(Debug, Default)]
pub struct Primary {
    retained: u32,
    flags: u32,
    context: Option<Arc<Context>>,
}

static CONTEXTS: Table<Context> = Table::new();

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// What this thread's stack of contexts holds on top.
fn top() -> Option<Arc<Context>> {
    STACK
        .try_with(|stack| stack.borrow().last().cloned())
        .ok()
        .flatten()
}

/// The context that this thread's calls go to.
pub fn current() -> Result<Arc<Context>, CUerror> {
    driver()?;
    let context = top().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

/// The context behind a handle.
pub fn by_handle(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    driver()?;
    CONTEXTS
        .get(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// The context behind a handle, or the current one for NULL.
pub fn by_handle_or_current(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    if handle.is_null() {
        current()
    } else {
        by_handle(handle)
    }
}

fn push(context: Arc<Context>) {
    STACK.with(|stack| stack.borrow_mut().push(context));
}

fn pop() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

impl Context {
    fn make(
        driver: &Driver,
        ordinal: i32,
        flags: u32,
        primary: bool,
    ) -> Result<Arc<Self>, CUerror> {
        let device = driver.device(ordinal)?;
        if driver.member.add_context(device.index)
            && driver
                .member
                .take_memory(device.index, device.context_memory)
                .is_err()
        {
            driver.member.drop_context(device.index);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let handle = fresh();
        let legacy = Stream::legacy(handle, ordinal);
        let context = Arc::new(Self {
            handle,
            device: ordinal,
            primary,
            flags: AtomicU32::new(flags),
            alive: AtomicBool::new(true),
            limits: Mutex::default(),
            cache: AtomicU32::new(0),
            shared_banks: AtomicU32::new(0),
            persisting: AtomicU64::new(0),
            streams: Mutex::new(Streams {
                all: vec![Arc::downgrade(&legacy)],
                legacy,
                per_thread: HashMap::new(),
            }),
        });
        CONTEXTS.insert(handle, Arc::clone(&context));
        Ok(context)
    }

    fn check(&self) -> CUresult {
        if self.alive.load(Relaxed) {
            Ok(())
        } else {
            Err(CUDA_ERROR_CONTEXT_IS_DESTROYED)
        }
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) {
        for mark in self.tails() {
            mark.wait();
        }
        crate::pool::after_synchronisation();
    }

    /// Marks of all work of the context.
    pub fn tails(&self) -> Vec<Mark> {
        self.live_streams().iter().map(Stream::tail).collect()
    }

    /// All its streams that may have work.
    pub fn live_streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.streams)
            .all
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Ends the context: its work is waited for, its memory given back.
    fn destroy(&self) {
        if !self.alive.swap(false, Relaxed) {
            return;
        }
        self.synchronize();
        CONTEXTS.remove(self.handle);
        crate::stream::close_all(self.handle);
        for stream in self.live_streams() {
            stream.close();
        }
        crate::module::unload_all(self.handle);
        let Ok(driver) = driver() else { return };
        let Ok(device) = driver.device(self.device) else {
            return;
        };
        heap::free_all(self.handle);
        if driver.member.drop_context(device.index) {
            driver
                .member
                .give_memory(device.index, device.context_memory);
        }
    }

    /// Its device's index in the world.
    pub fn world_device(&self) -> Result<usize, CUerror> {
        Ok(driver()?.device(self.device)?.index)
    }
}

/// The primary context of a device, active or not: retained for the caller.
fn retain_primary(ordinal: i32) -> Result<Arc<Context>, CUerror> {
    let driver = driver()?;
    driver.device(ordinal)?;
    let mut primary = lock(&driver.primaries[ordinal as usize]);
    let context = match &primary.context {
        Some(context) => Arc::clone(context),
        None => Context::make(driver, ordinal, primary.flags, true)?,
    };
    primary.context = Some(Arc::clone(&context));
    primary.retained += 1;
    Ok(context)
}

fn reset_primary(driver: &Driver, ordinal: i32) {
    let context = lock(&driver.primaries[ordinal as usize]).context.take();
    if let Some(context) = context {
        context.destroy();
    }
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
    if context.primary {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if top().is_some_and(|current| current.handle == context.handle) {
        pop();
    }
    context.destroy();
    Ok(())
}

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
        push(by_handle(context)?);
        Ok(())
    }
    "cuCtxPushCurrent" 4000 cuCtxPushCurrent_v2 (context: CUcontext) {
        push(by_handle(context)?);
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
        let context = by_handle(context)?;
        pop();
        push(context);
        Ok(())
    }
    "cuCtxGetCurrent" 4000 cuCtxGetCurrent (out: Out<CUcontext>) {
        driver()?;
        out.set(top().map_or(std::ptr::null_mut(), |context| context.handle as CUcontext))
    }
    "cuCtxGetDevice" 2000 cuCtxGetDevice (out: Out<CUdevice>) {
        let context = current()?;
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
        let context = current()?;
        capture::forbid_in_context(&context)?;
        context.synchronize();
        Ok(())
    }
    "cuCtxSynchronize" 13000 cuCtxSynchronize_v2 (context: CUcontext) {
        let context = by_handle_or_current(context)?;
        capture::forbid_in_context(&context)?;
        context.synchronize();
        Ok(())
    }
    "cuCtxRecordEvent" 12050 cuCtxRecordEvent (context: CUcontext, event: CUevent) {
        event::record_all(&*by_handle_or_current(context)?, &event::by_handle(event)?)
    }
    "cuCtxWaitEvent" 12050 cuCtxWaitEvent (context: CUcontext, event: CUevent) {
        event::await_in_all(&*by_handle_or_current(context)?, &*event::by_handle(event)?)
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
        default_limit(limit)?;
        lock(&context.limits).insert(limit, value);
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
        current()?.persisting.store(0, Relaxed);
        Ok(())
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
        let driver = driver()?;
        driver.device(device)?;
        reset_primary(driver, device);
        Ok(())
    }
    "cuDevicePrimaryCtxReset" 11000 cuDevicePrimaryCtxReset_v2 (device: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        reset_primary(driver, device);
        Ok(())
    }
    "cuDevicePrimaryCtxGetState" 7000 cuDevicePrimaryCtxGetState (device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        let driver = driver()?;
        driver.device(device)?;
        let primary = lock(&driver.primaries[device as usize]);
        flags.set(primary.flags)?;
        active.set(i32::from(primary.context.is_some()))
    }
    "cuDevicePrimaryCtxSetFlags" 7000 cuDevicePrimaryCtxSetFlags (device: CUdevice, flags: u32) { set_primary_flags(device, flags) }
    "cuDevicePrimaryCtxSetFlags" 11000 cuDevicePrimaryCtxSetFlags_v2 (device: CUdevice, flags: u32) { set_primary_flags(device, flags) }
}

fn pop_into(out: Out<CUcontext>) -> CUresult {
    driver()?;
    let context = pop().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    out.set_if_wanted(context.handle as CUcontext);
    Ok(())
}

fn release_primary(ordinal: i32) -> CUresult {
    let driver = driver()?;
    driver.device(ordinal)?;
    let last = {
        let mut primary = lock(&driver.primaries[ordinal as usize]);
        primary.retained = primary
            .retained
            .checked_sub(1)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        primary.retained == 0
    };
    if last {
        reset_primary(driver, ordinal);
    }
    Ok(())
}

fn set_primary_flags(ordinal: i32, flags: u32) -> CUresult {
    let driver = driver()?;
    driver.device(ordinal)?;
    if flags & !0x3ff != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut primary = lock(&driver.primaries[ordinal as usize]);
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Relaxed);
    }
    Ok(())
}

/// What a limit is until it is set: stack, printf buffer, heap, sync depth, pending launches, L2 fetch,
/// persisting L2.
fn default_limit(limit: u32) -> Result<usize, CUerror> {
    match limit {
        0 => Ok(1024),
        1 => Ok(1 << 20),
        2 => Ok(8 << 20),
        3 => Ok(2),
        4 => Ok(2048),
        5 => Ok(64),
        6 => Ok(0),
        _ => Err(CUDA_ERROR_UNSUPPORTED_LIMIT),
    }
}
