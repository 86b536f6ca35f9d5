//! Contexts: created and primary ones, and each thread's stack of them.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    ffi::c_void,
    mem::ManuallyDrop,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_OUT_OF_MEMORY,
        CUerror, CUresult,
    },
    types::{CUcontext, CUstream},
};

use crate::{
    channels,
    driver::{Driver, driver},
    faces::DefaultStream,
    handles::{Table, fresh, lock},
    memory::capacity,
    own_thread,
    stream::{self, Mark, Stream, Streams},
};

/// The state of a process on a device.
#[derive(Debug)]
pub struct Context {
    /// The context's handle.
    pub handle: u64,
    /// The handle of the context that owns its objects: for a green context the primary one.
    pub owner: u64,
    /// The device's ordinal.
    pub device: i32,
    /// True for the device's primary context.
    pub primary: bool,
    /// The flags it was created with, or that were set later.
    pub flags: AtomicU32,
    alive: AtomicBool,
    /// Limits that were set.
    pub limits: Mutex<HashMap<u32, usize>>,
    /// The preferred split of the cache.
    pub cache: AtomicU32,
    /// The size of shared memory's banks.
    pub shared_banks: AtomicU32,
    /// The context's streams.
    pub streams: Arc<Streams>,
    /// The modules and functions whose code is on the device.
    code: Mutex<HashSet<u64>>,
}

static CONTEXTS: Table<Context> = Table::new();
/// The destroyed contexts. A driver accepts their handles where a context is made current, and refuses later calls in
/// them.
static DESTROYED: Table<Context> = Table::new();

thread_local! {
    /// The thread's stack of contexts, which is not dropped, because exit handlers run after the thread's other variables are gone.
    static STACK: RefCell<ManuallyDrop<Vec<Arc<Context>>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

extern "C" fn drop_stack(_: *mut c_void) {
    let stack = STACK.with(|stack| std::mem::take(&mut **stack.borrow_mut()));
    drop(stack);
}

/// Returns the top of the calling thread's stack of contexts.
pub fn top() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow().last().cloned())
}

/// Returns this thread's current context, or an error if it is lost.
pub fn current() -> Result<Arc<Context>, CUerror> {
    let context = here()?;
    driver()?.works_on(context.device)?;
    Ok(context)
}

/// Returns this thread's current context, even if it is lost.
pub fn here() -> Result<Arc<Context>, CUerror> {
    driver()?;
    let context = top().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

/// Returns the context of a handle.
pub fn by_handle(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    driver()?;
    CONTEXTS
        .get(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Returns the context of a handle that is to become current, destroyed or not.
pub fn to_make_current(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    let destroyed = || DESTROYED.get(handle as u64);
    by_handle(handle).or_else(|error| destroyed().ok_or(error))
}

/// Returns an error if objects of a context can no longer be used.
pub fn check(handle: u64) -> CUresult {
    let there = CONTEXTS
        .get(handle)
        .ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    there.check()
}

/// Returns the stream that a handle means in the current context.
pub fn stream(default: DefaultStream, handle: CUstream) -> Result<Arc<Stream>, CUerror> {
    let which = match handle as usize {
        0 => default,
        1 => DefaultStream::Legacy,
        2 => DefaultStream::PerThread,
        made => return stream::by_handle(made as u64),
    };
    let streams = &current()?.streams;
    Ok(match which {
        DefaultStream::Legacy => streams.legacy(),
        DefaultStream::PerThread => streams.per_thread(),
    })
}

/// Returns an error if work in a stream needs a current context and there is none. Only a default stream needs one (measured on an
/// H200, 580.159.04).
pub fn check_current_for(stream: CUstream) -> CUresult {
    match stream as usize {
        0..=2 => current().map(|_| ()),
        _ => Ok(()),
    }
}

/// Unloads the code of modules and functions from all contexts.
pub fn unload_code(handles: &HashSet<u64>) {
    for context in CONTEXTS.all() {
        context.unload_code(|handle| handles.contains(handle));
    }
}

/// Waits for all work of the process: addresses that any of it may use are about to go.
pub fn synchronize_all() {
    for mark in tails() {
        mark.wait();
    }
}

/// Returns marks of all work of the process.
pub fn tails() -> Vec<Mark> {
    let contexts = CONTEXTS.all();
    contexts
        .iter()
        .flat_map(|context| context.tails())
        .collect()
}

/// Returns the context of a handle, or the current one for NULL.
pub fn by_handle_or_current(handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    if handle.is_null() {
        current()
    } else {
        by_handle(handle)
    }
}

/// Makes a context this thread's.
pub fn push(context: Arc<Context>) {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    own_thread::at_end(&KEY, drop_stack);
    STACK.with(|stack| stack.borrow_mut().push(context));
}

/// Removes this thread's current context from its stack.
pub fn pop() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

impl Context {
    /// Creates a context, with the memory that a driver allocates for one.
    pub fn make(
        driver: &Driver,
        ordinal: i32,
        flags: u32,
        primary: bool,
    ) -> Result<Arc<Self>, CUerror> {
        let device = driver.device(ordinal)?;
        if driver.member.add_context(device.index)
            && capacity::take(ordinal, device.context_memory).is_err()
        {
            driver.member.drop_context(device.index);
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let handle = fresh();
        channels::make_group(handle, device.index);
        Ok(Self::keep(handle, handle, ordinal, flags, primary))
    }

    fn keep(handle: u64, owner: u64, ordinal: i32, flags: u32, primary: bool) -> Arc<Self> {
        let context = Arc::new(Self {
            handle,
            owner,
            device: ordinal,
            primary,
            flags: AtomicU32::new(flags),
            alive: AtomicBool::new(true),
            limits: Mutex::default(),
            cache: AtomicU32::new(0),
            shared_banks: AtomicU32::new(0),
            streams: Streams::new(handle, owner, ordinal),
            code: Mutex::default(),
        });
        CONTEXTS.insert(handle, Arc::clone(&context));
        context
    }

    /// Creates the context of a green context, on the same device as this primary one, which owns it.
    pub fn make_green(&self) -> Arc<Self> {
        Self::keep(fresh(), self.handle, self.device, 0, false)
    }

    /// Returns true for the context of a green context.
    pub fn is_green(&self) -> bool {
        self.owner != self.handle
    }

    /// Returns the contexts of the green contexts of this primary context.
    pub fn greens(&self) -> Vec<Arc<Self>> {
        let mut all = CONTEXTS.all();
        all.retain(|context| context.is_green() && context.owner == self.handle);
        all
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
    }

    /// Marks of all work of the context, of a primary one also those of the device's green contexts.
    pub fn tails(&self) -> Vec<Mark> {
        let mut tails = self.streams.tails();
        for green in self.greens() {
            tails.extend(green.streams.tails());
        }
        tails
    }

    /// Releases the memory of the process's first context on the device, if this was the last.
    pub fn give_back(&self) {
        let Ok(driver) = driver() else { return };
        let Ok(device) = driver.device(self.device) else {
            return;
        };
        if driver.member.drop_context(device.index) {
            capacity::give(self.device, device.context_memory);
        }
    }

    /// Loads the code of a module or a function, unless it is loaded.
    pub fn load_code(&self, handle: u64) -> CUresult {
        let bytes = driver()?.device(self.device)?.code_memory;
        let mut code = lock(&self.code);
        if bytes != 0 && !code.contains(&handle) {
            capacity::take(self.device, bytes)?;
            code.insert(handle);
        }
        Ok(())
    }

    fn unload_code(&self, is_unloaded: impl Fn(&u64) -> bool) {
        let mut code = lock(&self.code);
        let before = code.len();
        code.retain(|handle| !is_unloaded(handle));
        if let Ok(device) = driver().and_then(|driver| driver.device(self.device)) {
            let gone = (before - code.len()) as u64;
            capacity::give(self.device, gone * device.code_memory);
        }
    }

    /// Makes the context refuse calls, with its handle that of a destroyed one. Returns false if it already was.
    pub fn retire(&self) -> bool {
        self.unload_code(|_| true);
        let was_alive = self.alive.swap(false, Relaxed);
        if was_alive && !self.is_green() {
            channels::release_group(self.handle);
        }
        if let Some(context) = CONTEXTS.remove(self.handle) {
            DESTROYED.insert(self.handle, context);
        }
        was_alive
    }
}
