//! Hooks for contexts: changes of a thread's current context, and the streams and memory of a context that ends.
//!
//! A hook here only records that the context may have changed; the next submission queries the driver.

use super::memory::{
    self,
    account::{self, Account},
    code,
};
use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{CUcontext, CUdevice, CUgreenCtx},
};
use shm_layout::{Reason, clock};

use crate::{
    driver::Symbol,
    driver_query, eviction,
    hooks::Real,
    managed_process::{self, ManagedProcess, attach},
    thread::{self, Used},
    trace,
    tracking::{
        Primary,
        record::{self, Kind, Record},
    },
    turn::{self, context_end::ContextEnd},
};

/// Forwards `cuInit`, and attaches the process.
pub fn init(real: Real<'_, impl FnOnce() -> CUresult>, _flags: u32) -> CUresult {
    let began = clock::now();
    real.call()?;
    trace::early::initialised(began);
    attach::initialised()
}

/// Records that the calling thread's current context may have changed.
fn changed() {
    if let Some(thread) = thread::current() {
        thread.invalidate();
    }
}

/// Forwards `cuCtxCreate`. The new context becomes current.
pub fn created(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    ctx: Out<CUcontext>,
    device: CUdevice,
) -> CUresult {
    changed();
    memory::returns::wait_before_a_context(device);
    memory::create_context(&real, device)?;
    // A wait for room may have looked which context is current.
    changed();
    if let (Some(process), Some(ctx)) = (managed_process::current(), ctx.get()) {
        process.memory.add_context(ctx as usize);
    }
    Ok(())
}

/// Forwards `cuCtxPopCurrent`, after which another context may be current.
pub fn changes(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    changed();
    real.call()
}

/// Forwards `cuCtxSetCurrent` and `cuCtxPushCurrent`.
pub fn set_current(real: Real<'_, impl FnOnce() -> CUresult>, ctx: CUcontext) -> CUresult {
    // Programs often set the current context again, which changes nothing.
    if thread::current().is_some_and(|thread| thread.context() != ctx as usize) {
        changed();
    }
    real.call()
}

/// The streams of contexts that are about to end. If it is dropped, the contexts stay.
#[must_use = "the contexts stay if it is dropped"]
struct Ending<'p> {
    process: &'p ManagedProcess,
    end: ContextEnd,
}

impl<'p> Ending<'p> {
    /// Stops querying the streams until the driver has decided.
    fn begin(
        process: &'p ManagedProcess,
        ordinal: Option<CUdevice>,
        which: impl Fn(&Used) -> bool,
    ) -> Self {
        let end = ContextEnd::under_way();
        seal_streams(process, ordinal, which, &end);
        eviction::forget_marks(process);
        Self { process, end }
    }

    /// Stops tracking the streams after the driver has ended the contexts.
    fn gone(self) {
        self.end.decide(true);
        self.process.memory.pending_frees.forget_gone();
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.end.is_gone() {
            self.end.decide(false);
        }
    }
}

fn seal_streams(
    process: &ManagedProcess,
    ordinal: Option<CUdevice>,
    which: impl Fn(&Used) -> bool,
    end: &ContextEnd,
) {
    let ends = |used: &Used| {
        let is_on = ordinal.is_none_or(|ordinal| ordinal == used.ordinal.into());
        is_on && which(used)
    };
    let (frees, graphs) = (&process.memory.pending_frees, &process.memory.graphs);
    frees.seal_for(end, ends);
    graphs.end_with(end, ends);
    if !end.is_gone() {
        graphs.seal(|key| process.use_of_stream(key).filter(ends), Some(end));
    }
    turn::seal_streams(process, ordinal, which, Some(end));
}

/// Stops tracking what a device's primary context held after it has ended without a release that the shim took for the last.
fn primary_gone(process: &ManagedProcess, device: CUdevice) {
    seal_streams(process, Some(device), |_| true, &ContextEnd::gone());
    process.memory.pending_frees.forget_gone();
    process.memory.graphs.primary_gone(device);
    eviction::forget_marks(process);
    memory::held_by_primary(process, device).gone(process);
}

/// Forwards `cuCtxDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, ctx: CUcontext) -> CUresult {
    changed();
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let ordinal = process.ordinal_of(ctx);
    let ending = Ending::begin(process, ordinal, |used| used.context == ctx as usize);
    let held = ordinal.map(|device| memory::held_by(process, ctx, device));
    ends(real, ending, held)
}

/// Forwards a call that ends contexts, and releases the memory of those contexts.
fn ends(
    real: Real<'_, impl FnOnce() -> CUresult>,
    ending: Ending<'_>,
    held: Option<memory::Held<'_>>,
) -> CUresult {
    let process = ending.process;
    let result = real.call();
    if result.is_ok() {
        ending.gone();
    }
    match held {
        Some(held) if result.is_ok() => held.gone(process),
        Some(held) => held.stays(process),
        None => {}
    }
    result
}

/// Forwards `cuCtxAttach`, which adds a reference to the current context.
pub fn attach(real: Real<'_, impl FnOnce() -> CUresult>, ctx: Out<CUcontext>) -> CUresult {
    real.call()?;
    if let (Some(process), Some(ctx)) = (managed_process::current(), ctx.get()) {
        process.memory.attach(ctx as usize);
    }
    Ok(())
}

/// Forwards `cuCtxDetach`, which destroys the context with the last reference.
pub fn detach(real: Real<'_, impl FnOnce() -> CUresult>, ctx: CUcontext) -> CUresult {
    let attached = managed_process::current().filter(|process| process.memory.detach(ctx as usize));
    let Some(process) = attached else {
        return destroy(real, ctx);
    };
    real.call()
        .inspect_err(|_| process.memory.attach(ctx as usize))
}

/// Forwards `cuCtxSetLimit` and charges the memory. The driver allocates a larger stack at once, for every thread
/// that the device can run. It allocates a larger heap when the first kernel that uses it is launched, and at most
/// what was free when the limit was set (all measured). A larger buffer for printf was not seen to use memory
/// (measured, 580.159.04).
pub fn set_limit(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    limit: u32,
    value: usize,
) -> CUresult {
    const STACK: u32 = 0;
    const HEAP: u32 = 2;
    const DEFAULT_STACK: u64 = 1 << 10;
    const DEFAULT_HEAP: u64 = 8 << 20;
    let Some(account) = account::of_caller(&real) else {
        return real.call();
    };
    let of_heap = |value: u64| value.saturating_sub(DEFAULT_HEAP);
    let value = value as u64;
    let bytes = match limit {
        STACK => driver_query::context::threads_of(account.ordinal().into())
            .map(|threads| value.saturating_sub(DEFAULT_STACK).saturating_mul(threads)),
        HEAP => Some(of_heap(value)),
        _ => None,
    };
    let Some(bytes) = bytes else {
        return real.call();
    };
    // No address and no other handle has these bits set.
    let key = account.context() as u64 | u64::from(limit + 1) << 60;
    let symbol = real.symbol();
    resize(account, (key, Kind::Limit), bytes, symbol, || {
        code::forward(&real)
    })?;
    if limit == HEAP
        && let Some(heap) = driver_query::context::limit(HEAP)
    {
        shrink(account, key, Kind::Limit, of_heap(heap));
    }
    Ok(())
}

/// Changes the memory that a context uses for one purpose, such as its stacks: only the difference is charged or
/// released. If two threads change the same at once, both may stay charged until the context ends.
fn resize(
    account: Account,
    (key, kind): (u64, Kind),
    bytes: u64,
    symbol: Symbol,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let live = &account.process().memory.allocations;
    let old = live.take(key, |record| record::is(record, kind));
    let had = old.map_or(0, |record| record::bytes(&record));
    let more = match bytes.checked_sub(had).filter(|more| *more > 0) {
        Some(more) => account.reserve(more, symbol).map(Some),
        // A process over its quota may also release memory.
        None => Ok(None),
    };
    let resized = more.and_then(|more| {
        call()?;
        if let Some(more) = more {
            more.commit();
        }
        Ok(())
    });
    match (resized, old) {
        (Ok(()), _) if bytes == 0 => old
            .iter()
            .for_each(|old| account::release_record(account.process(), old)),
        (Ok(()), Some(_)) => {
            account.ledger().release(had.saturating_sub(bytes));
            live.put(
                key,
                record::new(bytes, account.context(), kind, account.ordinal()),
            );
        }
        (Ok(()), None) => account.keep(key, bytes, kind),
        (Err(_), Some(old)) => live.put(key, old),
        (Err(_), None) => {}
    }
    resized
}

/// Releases a part of what was [resized](resize), because less than requested is in use.
fn shrink(account: Account, key: u64, kind: Kind, bytes: u64) {
    let live = &account.process().memory.allocations;
    let fits = |record: &Record| record::is(record, kind) && record::bytes(record) > bytes;
    let Some(old) = live.take(key, fits) else {
        return;
    };
    account.ledger().release(record::bytes(&old) - bytes);
    live.put(
        key,
        record::new(bytes, account.context(), kind, account.ordinal()),
    );
}

/// Forwards `cuGreenCtxCreate`. Allocations in its context belong to the primary context; submissions have streams of
/// its own.
pub fn green_created(
    real: Real<'_, impl FnOnce() -> CUresult>,
    green: Out<CUgreenCtx>,
) -> CUresult {
    attach::goes_on()?;
    real.call()?;
    if let (Some(process), Some(green)) = (managed_process::current(), green.get())
        && let Some(ctx) = driver_query::context::of_green(green)
        && let Some(device) = process.ordinal_of(ctx)
    {
        process.memory.add_green(device, ctx as u64);
        process.memory.add_context(ctx as usize);
    }
    Ok(())
}

/// Forwards `cuGreenCtxDestroy`. Afterwards the driver cannot be queried about its streams, so submitted work is
/// drained first. The green context held a reference to the primary one, possibly the last.
pub fn green_destroy(real: Real<'_, impl FnOnce() -> CUresult>, green: CUgreenCtx) -> CUresult {
    changed();
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let context = driver_query::context::of_green(green);
    let ordinal = context.and_then(|context| process.ordinal_of(context));
    for device in &process.devices {
        if ordinal == Some(i32::from(device.ordinal)) && device.turn.is_held() {
            device.turn.release(process, device, Reason::Explicit);
        }
    }
    let ending = Ending::begin(process, ordinal, |used| {
        context.is_some_and(|context| used.context == context as usize)
            // Without a handle there is only an event, in a context that may be another.
            || used.stream != 0 && driver_query::context::is_in_green(used.stream, green)
    });
    let captures = &process.memory.captures;
    let mut captured = captures.streams();
    captured.retain(|stream| driver_query::context::is_in_green(*stream, green));
    real.call()?;
    ending.gone();
    let graphs = &process.memory.graphs;
    captured
        .into_iter()
        .for_each(|stream| graphs.lost(&captures.forget(stream)));
    if let Some(context) = context {
        graphs.lost(&captures.contexts_gone(&[context as u64]));
        process.memory.remove_context(context as usize);
    }
    if let Some(device) = ordinal
        && !driver_query::context::primary_is_active(device)
    {
        primary_gone(process, device);
    }
    Ok(())
}

/// Forwards `cuDevicePrimaryCtxRelease`, which resets the context with the last reference. Other releases keep
/// streams and memory.
pub fn primary_release(real: Real<'_, impl FnOnce() -> CUresult>, device: CUdevice) -> CUresult {
    changed();
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let primary = process.memory.primary(device);
    let retained = primary.and_then(Primary::releases);
    let is_last = retained.is_none_or(|times| times == 1);
    let held = is_last.then(|| {
        let ending = Ending::begin(process, Some(device), |_| true);
        (ending, memory::held_by_primary(process, device))
    });
    if let Err(error) = real.call() {
        if retained.is_some() {
            primary.into_iter().for_each(Primary::stays);
        }
        held.into_iter().for_each(|(_, held)| held.stays(process));
        return Err(error);
    }
    let is_gone = || !driver_query::context::primary_is_active(device);
    match held {
        Some((ending, held)) if is_gone() => {
            ending.gone();
            held.gone(process);
        }
        // The context has references that the shim does not see, or another thread is about to release it.
        Some((ending, held)) => {
            drop(ending);
            held.stays(process);
            if is_gone() {
                primary_gone(process, device);
            }
        }
        None if is_gone() => primary_gone(process, device),
        None => {}
    }
    Ok(())
}

/// Forwards `cuDevicePrimaryCtxReset`.
pub fn primary_reset(real: Real<'_, impl FnOnce() -> CUresult>, device: CUdevice) -> CUresult {
    changed();
    let Some(process) = managed_process::current() else {
        return real.call();
    };
    let ending = Ending::begin(process, Some(device), |_| true);
    let held = memory::held_by_primary(process, device);
    ends(real, ending, Some(held))
}
