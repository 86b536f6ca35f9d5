//! Eviction moves the process's device memory to the host with the driver's checkpoint calls or with copies, and later
//! restores it.
//!
//! ```text
//!   keeper        the operator says so, or it is idle and another process asks or it was idle for long,
//!                 and eligible, and all work is done ──▶ starts the evictor
//!   evictor       calls suspended, gates closed, turns released, no thread in the driver
//!                 Lock ─▶ Checkpoint ─▶ the ledger's bytes are `evicted`, which others may use
//!                 sleeps until a thread wants the device, and the operator allows it
//!                 waits in the memory queue for the whole footprint ─▶ Restore ─▶ Unlock ─▶ calls resumed
//!                 (after copies: when `deep-after` is over, the checkpoint takes what is left, and is restored first)
//!   other threads call the driver: each call counts as inside; while calls are suspended it waits, unless it is a query
//! ```
//!
//! A query ([`gpushare_abi::Query`]) waits only while memory is being moved. It is answered while the process is evicted, and
//! does not bring the memory back.
//!
//! An application may rely on this: no call fails or is lost because of an eviction, and addresses stay the same. A step that
//! cannot be undone is tried only if no known condition speaks against it (`eligible`). If a step fails all the same, calls
//! return an error instead of waiting forever, and one line on stderr and the segment state what is lost.

mod ahead;
#[cfg(test)]
mod choice;
mod eligible;
mod evictor;
mod footprint;
mod gauge;
mod plan;
pub mod state;
mod swap;
mod upkeep;
mod work;

use std::{
    sync::{
        PoisonError, TryLockError,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::Duration,
};

pub use eligible::A_CONTEXT;
use footprint::Refusal;
#[cfg(debug_assertions)]
use gpushare_abi::query_of;
use gpushare_abi::{
    Query,
    errors::{
        CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_UNKNOWN, CUerror, CUresult,
    },
    types::CU_STREAM_PER_THREAD,
};
use plan::{NotNow, OFTEN, Plan, pause_after};
use shm_layout::{Moved, Phase, Registration, clock};
use state::{Cause, Usage};

use crate::{
    driver_query, gate,
    managed_process::{self, Device, ManagedProcess},
    sys::{
        caller_state::Uncancelled,
        futex::{self, Watch},
    },
    thread::{self, Inside, Thread},
    turn::state::set_evicted,
};

#[cfg(debug_assertions)]
use crate::driver::Symbol;

pub use crate::turn::state::is_evicted;
pub use work::forget as forget_marks;

/// Polling period of a waiting thread, which also has to notice that the process ends.
const NAP: Duration = Duration::from_millis(50);

/// Waits inside a call while calls are suspended. Returns `Ok` when the thread is inside again and may continue, or
/// the error that the call must return.
#[cold]
#[inline(never)]
pub fn wait_until_resumed(thread: &Thread) -> CUresult {
    let _uncancelled = Uncancelled::enter();
    loop {
        if passes_suspension(thread) {
            return Ok(());
        }
        thread.outside(block_until_resumed)?;
        if !thread::is_suspended() {
            return Ok(());
        }
    }
}

/// The way of a query while calls are suspended.
pub enum QueryPass {
    /// The query goes to the driver. The thread is inside.
    Driver,
    /// All work is complete, and this is the answer.
    Answer(CUresult),
}

/// Decides about a query of the calling thread while calls are suspended. `handle` is the stream or the event. Waits
/// while memory is being moved; a query that needs the restore requests it.
#[cold]
#[inline(never)]
pub fn pass_query(thread: &Thread, query: Query, handle: usize) -> Result<QueryPass, CUerror> {
    let _uncancelled = Uncancelled::enter();
    loop {
        let state = gate::poll(&thread::SUSPENSION);
        match (state, query) {
            (gate::RUNNING, _) => return Ok(QueryPass::Driver),
            (gate::ENDED, _) => return Err(gone()),
            (gate::COPIED, _) | (gate::CHECKPOINTED, Query::Answers) => {
                return Ok(QueryPass::Driver);
            }
            (gate::CHECKPOINTED, _) if let Some(answer) = complete(query, handle) => {
                return Ok(QueryPass::Answer(answer));
            }
            _ if passes_suspension(thread) => return Ok(QueryPass::Driver),
            (gate::SUSPENDED, _) => thread.outside(|| wait_while(state)),
            _ => thread.outside(block_until_resumed)?,
        }
        // The thread is marked as inside again before it reads the state.
        gate::light();
    }
}

/// Returns the answer to a query of completed work: the driver completes all work before a checkpoint. Returns `None`
/// for any other query and for an unknown handle.
fn complete(query: Query, handle: usize) -> Option<CUresult> {
    let process = managed_process::current()?;
    match query {
        Query::Stream if handle <= CU_STREAM_PER_THREAD as usize => {
            let has_context = driver_query::context::current() != 0;
            Some(has_context.then_some(()).ok_or(CUDA_ERROR_INVALID_CONTEXT))
        }
        Query::Stream | Query::Event => process.memory.handles.has(handle).then_some(Ok(())),
        Query::Answers | Query::Waits => None,
    }
}

/// Waits while memory is being moved. For a call that passes the suspension; the thread is inside.
pub fn wait_until_moved(thread: &Thread) {
    while gate::poll(&thread::SUSPENSION) == gate::SUSPENDED && !passes_suspension(thread) {
        thread.outside(|| wait_while(gate::SUSPENDED));
    }
}

/// Returns true if the driver's checkpoint has taken the memory. The calling thread is inside.
pub fn is_checkpointed(process: &ManagedProcess) -> bool {
    let state = gate::poll(&thread::SUSPENSION);
    process.eviction.is_empty.load(Acquire) && matches!(state, gate::CHECKPOINTED | gate::SUSPENDED)
}

/// Returns the bytes that the process holds on a device, whether they are there or evicted.
pub fn own_bytes(process: &ManagedProcess, device: &Device) -> u64 {
    let held = process.eviction.held.get(usize::from(device.ordinal));
    // ORDER: Acquire pairs with the Release in the evictor's `shut`; the bytes are stored.
    match held.filter(|_| process.eviction.is_empty.load(Acquire)) {
        Some(held) => held.load(Relaxed),
        None => device.ledger.used(),
    }
}

/// Does the regular work at one of the keeper's heartbeats.
pub fn beat(process: &ManagedProcess) {
    upkeep::beat(process);
    ahead::make(process);
}

/// Enters a call of the shim's own, after any suspension. Returns `Ok(None)` within another call.
pub fn enter() -> Result<Option<Inside>, CUerror> {
    let Some(inside) = Inside::enter() else {
        return Ok(None);
    };
    if thread::is_suspended() {
        wait_until_resumed(inside.thread())?;
    }
    Ok(Some(inside))
}

/// Returns true if the calling thread ignores the suspension. The driver's own threads do, because the driver may
/// need them to move the memory. If it is unknown who started a thread, a thread first seen during a move may be one
/// of the driver's. If such a thread then stays in the driver, the memory is restored (`evictor`).
pub fn passes_suspension(thread: &Thread) -> bool {
    let is_moving =
        || managed_process::current().is_some_and(|process| process.eviction.is_moving());
    thread.see_who_started_it() || thread.may_be_the_drivers() && is_moving()
}

/// Requests the memory and waits until calls are resumed. The thread is outside.
#[cold]
#[inline(never)]
pub fn block_until_resumed() -> CUresult {
    let _uncancelled = Uncancelled::enter();
    loop {
        let state = gate::poll(&thread::SUSPENSION);
        match state {
            gate::RUNNING => return Ok(()),
            gate::ENDED => return Err(gone()),
            _ => {}
        }
        if let Some(process) = managed_process::current() {
            process.eviction.want();
        }
        wait_while(state);
    }
}

/// Waits for another state of the suspension for at most [`NAP`]. A forked child resumes its own calls, and the driver
/// itself returns the error.
fn wait_while(state: u32) {
    if state::SUSPENDED_BY.load(Relaxed) != std::process::id() {
        set_evicted(false);
        gate::resume(&thread::SUSPENSION);
        return;
    }
    let watch = Watch {
        word: &thread::SUSPENSION,
        seen: state,
        private: true,
    };
    futex::wait_any(&[watch], NAP);
}

/// Returns the error for calls after the memory was lost.
fn gone() -> CUerror {
    CUerror::from_code(state::ANSWER.load(Relaxed)).unwrap_or(CUDA_ERROR_UNKNOWN)
}

/// Calls the driver on the shim's behalf. Returns `None` while the process is evicted, because the driver would not
/// return before the restore.
pub fn ask<T>(process: &ManagedProcess, question: impl FnOnce() -> T) -> Option<T> {
    let _asking = match process.eviction.asking.try_lock() {
        Ok(asking) => asking,
        Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
        Err(TryLockError::WouldBlock) => return None,
    };
    (!is_evicted()).then(|| {
        let thread = thread::attached();
        let before = thread.set_answered(true);
        let answer = question();
        thread.set_answered(before);
        answer
    })
}

/// Returns true if the driver returns to the calling thread: the thread is inside a call, is the evictor, or holds
/// `asking`. While the memory is evicted, only threads that pass the suspension may call the driver.
#[cfg(debug_assertions)]
pub fn is_answered(symbol: Symbol) -> bool {
    // Memory of an unmanaged process is never moved, and NVML is another library.
    let Some(process) = managed_process::current().filter(|_| !symbol.is_nvml()) else {
        return true;
    };
    let waits = symbol.waits_while_suspended() && query_of(symbol.info().name).is_none();
    let is_evicted = process.eviction.is_empty.load(Relaxed) && waits;
    thread::current().is_some_and(|thread| {
        thread.is_answered() && (thread.is_ours() || !is_evicted || passes_suspension(thread))
    })
}

/// Ends the suspension because the process ends. Evicted memory stays on the host, and the kernel frees it. From now
/// on calls return the error of a driver that is shut down, because they must not wait.
pub fn leave(process: &ManagedProcess) {
    process.eviction.ended.store(true, Relaxed);
    if is_evicted() {
        state::ANSWER.store(CUDA_ERROR_DEINITIALIZED.code(), Relaxed);
        end_suspension();
    }
    process.eviction.ring();
}

fn end_suspension() {
    gate::end(&thread::SUSPENSION);
    futex::wake_private(&thread::SUSPENSION);
}

/// Publishes when the application last made a request, and starts an eviction that is due. Returns the time of the
/// next look in nanoseconds, or `None` if the keeper's heartbeat is soon enough.
pub fn poll(process: &'static ManagedProcess, now: u64) -> Option<u64> {
    let eviction = &process.eviction;
    let requests = thread::all().fold(0, |sum: u64, thread| sum.wrapping_add(thread.requests()));
    note_use(process.registration, &eviction.usage, requests, now);
    if eviction.phase() != Phase::Resident || process.is_leaving() {
        if process.registration.take_request() {
            // For the evictor, which sleeps on its own bell, or in the memory queue.
            eviction.request(now);
            eviction.ring();
            wake_queued(process);
        }
        return None;
    }
    let plan = Plan::of(process, now);
    let Some(cause) = plan.due(now) else {
        return forecast(process, &plan, now);
    };
    match plan.check(process, cause, now) {
        Ok(()) if plan::announce(process, cause, now) => {
            evictor::start(process, cause);
            None
        }
        Ok(()) => Some(plan::look_again(process, now)),
        Err(NotNow::Resting) => Some(eviction.retry_ns.load(Relaxed)),
        Err(NotNow::Unknown(at)) => Some(at),
        Err(NotNow::Until(why, at)) => {
            tell(process, (why, 0));
            Some(at)
        }
        Err(NotNow::Refused(refusal)) => {
            // No call was suspended for it.
            refuse(process, refusal, pause_after(refusal.0));
            Some(eviction.retry_ns.load(Relaxed))
        }
    }
}

/// Publishes when the application last made a request, and how often it makes some.
fn note_use(registration: &Registration, usage: &Usage, requests: u64, now: u64) {
    if usage.note(requests, now) {
        registration.publish_last_use(now);
    }
    registration.publish_gap(usage.gap_ns(now));
}

/// Publishes for a process that will be idle at some time whether it could be evicted then. Returns that time.
fn forecast(process: &ManagedProcess, plan: &Plan, now: u64) -> Option<u64> {
    let eviction = &process.eviction;
    eviction.told.store(0, Relaxed);
    let Some(idle_at) = plan.idle_at else {
        eviction.refused.store(0, Relaxed);
        // A pin that called an eviction off stays the reason for as long as it lasts.
        if !plan.pinned && eviction.spoke.swap(false, Relaxed) {
            process.registration.publish_reason(None, 0);
        }
        return None;
    };
    let looked_ns = eviction.looked_ns.load(Relaxed);
    if now >= looked_ns.saturating_add(OFTEN) {
        eviction.looked_ns.store(now, Relaxed);
        match eligible::check(process) {
            Ok(()) => process.registration.publish_reason(None, 0),
            Err((why, code)) => process.registration.publish_reason(Some(why), code),
        }
        eviction.spoke.store(true, Relaxed);
    }
    Some(idle_at)
}

/// Publishes the reason why the process is not evicted. Waiting processes look at once at a new one.
fn tell(process: &ManagedProcess, (why, code): Refusal) {
    process.registration.publish_reason(Some(why), code);
    process.eviction.spoke.store(true, Relaxed);
    if process.eviction.told.swap(why as u32 + 1, Relaxed) != why as u32 + 1 {
        wake_queued(process);
    }
}

/// Wakes the processes that wait for memory of this process's devices.
fn wake_queued(process: &ManagedProcess) {
    let devices = process.devices.iter();
    devices.for_each(|device| device.ledger.wake_queued());
}

/// Publishes the reason why the process cannot be evicted, with an event if the reason is new. The next attempt comes
/// after `rest` nanoseconds.
fn refuse(process: &ManagedProcess, refusal: Refusal, rest: u64) {
    let (eviction, (why, code)) = (&process.eviction, refusal);
    if eviction.refused.swap(why as u32 + 1, Relaxed) != why as u32 + 1 {
        process.registration.publish_move(&Moved {
            why: Some(why),
            code,
            bytes: held(process),
            ..Moved::default()
        });
    }
    tell(process, refusal);
    let again = clock::now().saturating_add(rest);
    eviction.retry_ns.store(again, Relaxed);
}

/// Returns true if a thread other than the shim's is in the driver.
fn is_a_call(thread: &Thread) -> bool {
    thread.is_inside_anything() && !thread.is_ours()
}

/// Returns the bytes that the process holds, according to its ledgers.
fn held(process: &ManagedProcess) -> u64 {
    let ledgers = process.devices.iter().map(|device| device.ledger.used());
    ledgers.fold(0, u64::saturating_add)
}
