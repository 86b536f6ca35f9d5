//! Contexts: created and primary ones, and each thread's stack of them.

mod calls;

pub use calls::FACES;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
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

/// Each device's primary context, by ordinal.
static PRIMARIES: Mutex<BTreeMap<i32, Primary>> = Mutex::new(BTreeMap::new());

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

/// Waits for all work of the process: addresses that any of it may use are about to go.
pub fn synchronize_all() {
    CONTEXTS
        .all()
        .iter()
        .for_each(|context| context.synchronize());
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
        crate::array::forget_all(self.handle);
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
}

/// The primary context of a device, active or not: retained for the caller.
fn retain_primary(ordinal: i32) -> Result<Arc<Context>, CUerror> {
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
    let context = lock(&PRIMARIES).entry(ordinal).or_default().context.take();
    if let Some(context) = context {
        context.destroy();
    }
}
