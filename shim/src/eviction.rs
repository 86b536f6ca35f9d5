//! Eviction moves the process's device memory to the host with the driver's checkpoint calls or with copies, and later
//! restores it.
//!
//! ```text
//!   keeper        idle long enough, or the operator says so, and eligible ──▶ starts the evictor
//!   evictor       calls suspended, gates closed, turns released, no thread in the driver
//!                 Lock ─▶ Checkpoint ─▶ the ledger's bytes are `evicted`, which others may use
//!                 sleeps until a thread wants the device, and the operator allows it
//!                 waits in the memory queue for the whole footprint ─▶ Restore ─▶ Unlock ─▶ calls resumed
//!   other threads call the driver: each call counts as inside; while calls are suspended it waits
//! ```
//!
//! An application may rely on this: no call fails or is lost because of an eviction, and addresses stay the same. A step that
//! cannot be undone is tried only if no known condition speaks against it (`eligible`). If a step fails all the same, calls
//! return an error instead of waiting forever, and one line on stderr and the segment state what is lost.

mod eligible;
mod evictor;
mod footprint;
mod gauge;
mod measure;
pub mod state;
mod swap;

use std::{
    sync::{PoisonError, TryLockError, atomic::Ordering::Relaxed},
    time::Duration,
};

pub use eligible::A_CONTEXT;
use footprint::Refusal;
use gpushare_abi::errors::{CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_UNKNOWN, CUerror, CUresult};
use shm_layout::{Moved, Phase, Why, clock, memory::queue::IDLE_NS};
use state::Cause;

use crate::{
    managed_process::{self, ManagedProcess},
    suspend,
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

/// Polling period of a waiting thread, which also has to notice that the process ends.
const NAP: Duration = Duration::from_millis(50);
/// Time between two checks of eligibility while eviction is requested, in nanoseconds.
const OFTEN: u64 = 500_000_000;
/// Delay after a failed attempt that suspended the application's calls, in nanoseconds.
const REST: u64 = 30_000_000_000;

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
        match suspend::poll(&thread::SUSPENSION) {
            suspend::SUSPENDED => {}
            suspend::ENDED => return Err(gone()),
            _ => return Ok(()),
        }
        if state::SUSPENDED_BY.load(Relaxed) != std::process::id() {
            // This is a forked child: the driver itself returns the error.
            set_evicted(false);
            suspend::resume(&thread::SUSPENSION);
            return Ok(());
        }
        if let Some(process) = managed_process::current() {
            process.eviction.want();
        }
        let watch = Watch {
            word: &thread::SUSPENSION,
            seen: suspend::SUSPENDED,
            private: true,
        };
        futex::wait_any(&[watch], NAP);
    }
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
    let is_evicted = process.eviction.is_empty.load(Relaxed) && symbol.waits_while_suspended();
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
    suspend::end(&thread::SUSPENSION);
    futex::wake_private(&thread::SUSPENSION);
}

/// Publishes when the application last made a request, and starts an eviction that is due. Returns the time until
/// the next poll.
pub fn poll(process: &'static ManagedProcess, now: u64) -> Option<Duration> {
    let eviction = &process.eviction;
    let requests = thread::all().fold(0, |sum: u64, thread| sum.wrapping_add(thread.requests()));
    if eviction.seen_requests.swap(requests, Relaxed) != requests
        || eviction.used_ns.load(Relaxed) == 0
    {
        eviction.used_ns.store(now, Relaxed);
        process.registration.publish_last_use(now);
    }
    measure::look(process);
    if eviction.phase() != Phase::Resident || process.is_leaving() {
        return None;
    }
    let plan = Plan::of(process);
    if !plan.is_any() {
        eviction.refused.store(0, Relaxed);
        if eviction.spoke.swap(false, Relaxed) {
            process.registration.publish_reason(None, 0);
        }
        return None;
    }
    let cause = plan.due(now);
    let not_before = eviction.looked_ns.load(Relaxed).saturating_add(OFTEN);
    let again = match (cause, plan.idle_at) {
        (None, Some(at)) => at.max(now.saturating_add(1)).min(now.saturating_add(OFTEN)),
        _ => not_before.max(eviction.retry_ns.load(Relaxed)),
    };
    if now < not_before || cause.is_some() && now < eviction.retry_ns.load(Relaxed) {
        return Some(Duration::from_nanos(again.saturating_sub(now).max(1)));
    }
    eviction.looked_ns.store(now, Relaxed);
    eviction.asked.store(false, Relaxed);
    match (
        eligible::check(process).and_then(|()| plan.allows(process, cause, now)),
        cause,
    ) {
        // No call was suspended for it, so the next check comes after the usual period.
        (Err(refusal), Some(_)) => refuse(process, refusal, OFTEN),
        (Err((why, code)), None) => {
            process.registration.publish_reason(Some(why), code);
            eviction.spoke.store(true, Relaxed);
        }
        (Ok(()), None) => process.registration.publish_reason(None, 0),
        (Ok(()), Some(cause)) => evictor::start(process, cause),
    }
    None
}

/// The reasons for and against an eviction now.
struct Plan {
    /// The operator wants the process evicted.
    operators: bool,
    /// Another process has asked for the memory.
    asked: bool,
    /// The time at which the process counts as idle.
    idle_at: Option<u64>,
    paused: bool,
    /// The length of a turn in nanoseconds, if turns include the memory.
    turn: Option<u64>,
    /// The process itself waits for memory.
    waits: bool,
}

impl Plan {
    fn of(process: &ManagedProcess) -> Self {
        let eviction = &process.eviction;
        // Any process of the installation can ask. The request counts only if the operator has overcommitted a
        // device.
        let mut devices = process.devices.iter();
        if process.registration.take_request() && devices.any(|device| device.ledger.overcommits())
        {
            eviction.asked.store(true, Relaxed);
        }
        let share = process.registration.share();
        let used_ns = eviction.used_ns.load(Relaxed);
        Self {
            operators: share.evict,
            asked: eviction.asked.load(Relaxed),
            idle_at: share.evict_after.map(|after| used_ns.saturating_add(after)),
            paused: share.paused,
            turn: process
                .devices
                .iter()
                .filter_map(|device| device.ledger.memory_turn())
                .max(),
            waits: process
                .devices
                .iter()
                .any(|device| device.ledger.is_queued()),
        }
    }

    fn is_any(&self) -> bool {
        self.operators || self.asked || self.idle_at.is_some()
    }

    fn due(&self, now: u64) -> Option<Cause> {
        if self.operators {
            Some(Cause::Operator)
        } else if self.asked {
            Some(self.turn.map_or(Cause::Asked, |_| Cause::Turn))
        } else {
            self.idle_at.filter(|at| now >= *at).map(|_| Cause::Idle)
        }
    }

    /// Returns an error if it is too early to evict for this cause. It is never too early for the operator.
    fn allows(
        &self,
        process: &ManagedProcess,
        cause: Option<Cause>,
        now: u64,
    ) -> Result<(), Refusal> {
        let eviction = &process.eviction;
        let in_use = now < eviction.used_ns.load(Relaxed).saturating_add(IDLE_NS);
        match cause {
            None | Some(Cause::Operator) => Ok(()),
            // The process does not use its turn.
            Some(Cause::Turn) if self.waits => Ok(()),
            Some(_) if now < eviction.stays_until() => Err((Why::TooSoon, 0)),
            Some(Cause::Asked) if in_use && !self.paused => Err((Why::Wanted, 0)),
            Some(Cause::Turn) if in_use && !self.paused && now < self.turn_ends(eviction) => {
                Err((Why::TooSoon, 0))
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns the end of the process's turn, in nanoseconds.
    fn turn_ends(&self, eviction: &state::EvictionState) -> u64 {
        let began = eviction.back_ns.load(Relaxed);
        self.turn.map_or(0, |turn| began.saturating_add(turn))
    }
}

/// Publishes the reason why the process is not evicted, with an event if the reason is new. The next attempt comes
/// after `rest` nanoseconds.
fn refuse(process: &ManagedProcess, (why, code): Refusal, rest: u64) {
    let eviction = &process.eviction;
    if eviction.refused.swap(why as u32 + 1, Relaxed) != why as u32 + 1 {
        process.registration.publish_move(&Moved {
            why: Some(why),
            code,
            bytes: held(process),
            ..Moved::default()
        });
    } else {
        process.registration.publish_reason(Some(why), code);
    }
    eviction.spoke.store(true, Relaxed);
    let again = clock::now().saturating_add(rest);
    eviction.retry_ns.store(again, Relaxed);
}

/// Returns the bytes that the process holds, according to its ledgers.
fn held(process: &ManagedProcess) -> u64 {
    let ledgers = process.devices.iter().map(|device| device.ledger.used());
    ledgers.fold(0, u64::saturating_add)
}
