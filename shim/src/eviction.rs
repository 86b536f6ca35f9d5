//! Where the process's memory is: on its devices, or evicted to the host by the driver's checkpoint calls.
//!
//! ```text
//!   keeper        idle long enough, or the operator says so, and eligible ──▶ starts the evictor
//!   evictor       door closed, gates closed, turns given up, no thread in the driver
//!                 Lock ─▶ Checkpoint ─▶ the ledger's bytes are `evicted`, which others may use
//!                 sleeps until a thread wants the device, and the operator lets it
//!                 waits in line for the whole footprint ─▶ Restore ─▶ Unlock ─▶ door open
//!   other threads call the driver: before the door they are counted inside, behind it they wait at it
//! ```
//!
//! What an application may rely on: no call fails because of it, and none is lost; the addresses are the same. What cannot be
//! undone is tried only when nothing that we know of speaks against it (`eligible`). If a step fails all the same, calls are
//! answered with an error rather than left waiting for ever, one line on stderr says what is lost, and so does the segment.

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

/// Between two looks of who waits: it also wants to hear that the process ends.
const NAP: Duration = Duration::from_millis(50);
/// How often eligibility is looked at while eviction is asked for.
const OFTEN: u64 = 500_000_000;
/// After an attempt that has kept the application's calls waiting in vain, the next one comes so much later.
const REST: u64 = 30_000_000_000;

/// A thread inside a call finds the door closed. Returns when it may go on, inside again, or with the answer to give.
#[cold]
#[inline(never)]
pub fn wait_until_resumed(thread: &Thread) -> CUresult {
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

/// Inside a call of our own making, once the door is open: what is asked there is answered. `None` within another call.
pub fn enter() -> Result<Option<Inside>, CUerror> {
    let Some(inside) = Inside::enter() else {
        return Ok(None);
    };
    if thread::is_suspended() {
        wait_until_resumed(inside.thread())?;
    }
    Ok(Some(inside))
}

/// Whether the calling thread goes straight on through the closed door. The driver's own threads do: it may need them to move the
/// memory. Where nothing tells who started a thread, one that is seen first just then may be one of those. What stays in the driver
/// all the same has the memory brought back (`evictor`).
pub fn passes_suspension(thread: &Thread) -> bool {
    let is_moving =
        || managed_process::current().is_some_and(|process| process.eviction.is_moving());
    thread.see_who_started_it() || thread.may_be_the_drivers() && is_moving()
}

/// Waits until the door is open, and says that the memory is wanted. The thread is outside.
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
            // A forked child: the driver says what it has to say.
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

/// What calls are answered whose memory is gone.
fn gone() -> CUerror {
    CUerror::from_code(state::ANSWER.load(Relaxed)).unwrap_or(CUDA_ERROR_UNKNOWN)
}

/// Asks the driver something on our own account, unless the process is away: then it would not answer before it is back.
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

/// Whether the driver answers the calling thread: it is inside a call, is the evictor, or holds `asking`. While the memory is
/// away, only those go to the driver that the door lets pass.
#[cfg(debug_assertions)]
pub fn is_answered(symbol: Symbol) -> bool {
    // Nothing moves the memory of an unmanaged process, and NVML is another library.
    let Some(process) = managed_process::current().filter(|_| !symbol.is_nvml()) else {
        return true;
    };
    let is_evicted = process.eviction.is_empty.load(Relaxed) && symbol.waits_while_suspended();
    thread::current().is_some_and(|thread| {
        thread.is_answered() && (thread.is_ours() || !is_evicted || passes_suspension(thread))
    })
}

/// The process ends: what it has evicted stays where it is, and the kernel frees it. Calls from now on are answered as a
/// driver answers that is gone already; they must not wait.
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

/// The keeper's look: publishes when the application was last seen, and starts what is due. Says when it wants to look again.
pub fn poll(process: &'static ManagedProcess, now: u64) -> Option<Duration> {
    let eviction = &process.eviction;
    let calls = thread::all().fold(0, |sum: u64, thread| sum.wrapping_add(thread.calls()));
    if eviction.seen_calls.swap(calls, Relaxed) != calls || eviction.used_ns.load(Relaxed) == 0 {
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
        // Nothing was done for it: it is looked at again as often as ever.
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

/// What there is to do, and why.
struct Plan {
    /// The operator wants it off its devices.
    operators: bool,
    /// Another process has asked for the room.
    asked: bool,
    /// Its idle time is over then.
    idle_at: Option<u64>,
    paused: bool,
    /// Turns include the memory; one takes so long.
    turn: Option<u64>,
    /// It waits for memory itself.
    waits: bool,
}

impl Plan {
    fn of(process: &ManagedProcess) -> Self {
        let eviction = &process.eviction;
        // Any process of the installation can ask; it counts only where the operator has overcommitted a device.
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

    /// Whether it is not too early: what the operator wants is never.
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
            // It makes no use of its turn.
            Some(Cause::Turn) if self.waits => Ok(()),
            Some(_) if now < eviction.stays_until() => Err((Why::TooSoon, 0)),
            Some(Cause::Asked) if in_use && !self.paused => Err((Why::Wanted, 0)),
            Some(Cause::Turn) if in_use && !self.paused && now < self.turn_ends(eviction) => {
                Err((Why::TooSoon, 0))
            }
            Some(_) => Ok(()),
        }
    }

    /// When its turn is over.
    fn turn_ends(&self, eviction: &state::EvictionState) -> u64 {
        let began = eviction.back_ns.load(Relaxed);
        self.turn.map_or(0, |turn| began.saturating_add(turn))
    }
}

/// Says why it is not evicted, with an event when the reason is a new one. The next attempt comes after so long.
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

/// Bytes that the process holds, by our ledger.
fn held(process: &ManagedProcess) -> u64 {
    let ledgers = process.devices.iter().map(|device| device.ledger.used());
    ledgers.fold(0, u64::saturating_add)
}
