//! The evictor, a thread that evicts the process's memory and restores it. It ends after the restore.
//!
//! It calls the driver while the application's calls are suspended. After a panic in it the state of the driver
//! decides how the process continues ([`put_right`]).
#![allow(unsafe_code, reason = "gives the thread its name")]

mod deepen;
mod rest;
mod restore;

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        MutexGuard, PoisonError,
        atomic::Ordering::{Relaxed, Release},
    },
    time::Duration,
};

use gpushare_abi::errors::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY, CUerror,
};
use shm_layout::{Moved, Phase, Place, Reason, Why, clock};

use crate::{
    driver_query::checkpoint::{self, State},
    eviction::{
        Cause,
        eligible::{self, Way},
        footprint::{Footprint, Refusal},
        is_a_call,
        plan::pause_after_attempt,
        state,
        swap::{self, RestoreError},
        upkeep,
    },
    gate,
    managed_process::{self, ManagedProcess},
    notice,
    sys::{barrier, futex, own_thread},
    thread,
    turn::state::set_evicted,
};

/// Longest wait for calls and work under way, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;
/// Longest wait if the process has been idle for long, in nanoseconds. A call still under way then is expected to stay.
const BRIEFLY: u64 = 1_000_000_000;
/// Polling period of something that ends by itself.
const NAP: Duration = Duration::from_millis(1);
/// Assumed eviction rate in bytes per second until one was measured (H100, 580.159.04).
const OUT: u64 = 2_000_000_000;

/// Starts the evictor. The phase is `Evicting` from here on.
pub fn start(process: &'static ManagedProcess, cause: Cause) {
    let eviction = &process.eviction;
    eviction.unwant();
    eviction.told.store(0, Relaxed);
    eviction.set_phase(Phase::Evicting);
    eviction.set_cause(cause);
    if !own_thread::start_large(process, body) {
        eviction.set_phase(Phase::Resident);
        let rest = pause_after_attempt(cause, Why::NoThread, 0);
        crate::eviction::refuse(process, (Why::NoThread, 0), rest);
    }
}

extern "C" fn body(process: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a managed process, which is never freed.
    let process: &'static ManagedProcess = unsafe { &*process.cast::<ManagedProcess>() };
    let _unwatched = own_thread::begin(c"gpushare-evict");
    let inside = thread::Inside::enter_as_ours();
    if let Some(inside) = &inside {
        inside.thread().set_answered(true);
    }
    if catch_unwind(AssertUnwindSafe(|| Evictor::new(process).run())).is_err() {
        managed_process::fault();
        put_right(process);
    }
    std::ptr::null_mut()
}

/// Restores the process after a panic, according to the state that the driver reports.
fn put_right(process: &'static ManagedProcess) {
    let result = loop {
        let checkpoint = if checkpoint::exists() {
            restore_checkpoint()
        } else {
            Ok(())
        };
        match checkpoint.and_then(|()| swap::restore(process)) {
            Ok(()) => break Ok(()),
            Err(RestoreError::Full) if !process.is_leaving() => {
                futex::nap(Duration::from_nanos(restore::AGAIN));
            }
            Err(RestoreError::Full) => break Err(CUDA_ERROR_OUT_OF_MEMORY),
            Err(RestoreError::Lost(error)) => break Err(error),
        }
    };
    match result {
        Ok(()) => {
            for device in &process.devices {
                // The memory is on the device, even if other processes were given its room.
                device.ledger.charge_unchecked(device.ledger.evicted());
                device.ledger.returned(0);
            }
            process.eviction.restored(clock::now());
            open(process);
        }
        Err(error) => lose(process, Why::RestoreFailed, error),
    }
}

/// Resumes the application's calls.
fn open(process: &ManagedProcess) {
    let eviction = &process.eviction;
    eviction.set_phase(Phase::Resident);
    eviction.is_empty.store(false, Relaxed);
    thread::all().for_each(thread::Thread::mark_known);
    set_evicted(false);
    gate::resume(&thread::SUSPENSION);
    futex::wake_private(&thread::SUSPENSION);
}

/// Lets queries pass while calls are suspended.
fn admit_queries(state: u32) {
    gate::admit_queries(&thread::SUSPENSION, state);
    futex::wake_private(&thread::SUSPENSION);
}

/// Records that the device memory is lost. From here on calls return the driver's error.
fn lose(process: &ManagedProcess, why: Why, error: CUerror) {
    let bytes = crate::eviction::held(process).max(process.registration.evicted_bytes());
    process.eviction.set_phase(Phase::Lost);
    process.registration.publish_move(&Moved {
        phase: Phase::Lost,
        why: Some(why),
        code: error.code() as u16,
        bytes,
        ..Moved::default()
    });
    notice::once(
        notice::Cause::Evicted,
        format_args!(
            "{} ({bytes} bytes, driver error {}); its calls of the driver fail from here on; start the program again",
            why.sentence(),
            error.code()
        ),
    );
    state::ANSWER.store(error.code(), Relaxed);
    crate::eviction::end_suspension();
}

struct Evictor {
    process: &'static ManagedProcess,
    way: Way,
    cause: Cause,
    began_ns: u64,
    /// Earliest time of the next attempt to restore, in nanoseconds.
    not_before: u64,
    /// Earliest time of the next attempt to restore in parts, in nanoseconds.
    parts_not_before: u64,
    /// The time at which the operator last kept the memory on the host, in nanoseconds.
    kept_ns: u64,
    /// The generation of the slots when last seen, and the time at which it changed.
    goings: (u64, u64),
    /// The time at which the memory had left, in nanoseconds.
    evicted_ns: u64,
    /// The memory that the driver's checkpoint has taken after the copies, or is about to take.
    deep: Option<Vec<Footprint<'static>>>,
    /// Earliest time of the next attempt to take it, in nanoseconds.
    deep_not_before: u64,
    /// A part of the memory is on its devices and could leave too.
    has_rest: bool,
    /// Earliest time of the next attempt to evict the rest, in nanoseconds.
    rest_not_before: u64,
    /// Delay after the last attempt that failed, in nanoseconds; 0 if the last one was none.
    rest_pause_ns: u64,
    /// The places in the queues of the devices, by ordinal, while it lets others go first.
    places: Vec<(u8, Place)>,
    /// Held while the driver returns only from the evictor's calls.
    asking: Option<MutexGuard<'static, ()>>,
}

/// Smallest memory in bytes for which it is said that it is not swappable.
const MUCH: u64 = 256 << 20;

/// Says why a process that was started with `--swappable` was evicted by the checkpoint.
fn tell_what_is_fixed(process: &ManagedProcess) {
    let held = crate::eviction::held(process);
    let fixed = held.saturating_sub(process.memory.swappable.movable_bytes());
    if process.environment.swappable && fixed >= MUCH {
        notice::once(
            notice::Cause::Fixed,
            format_args!(
                "{} of {} MiB are not swappable (cuMemCreate, as by PyTorch's expandable_segments; cudaMallocAsync; below 2 MiB), so \
                 the driver's checkpoint moves all memory, at a tenth of the speed; use cudaMalloc, in PyTorch by leaving \
                 PYTORCH_CUDA_ALLOC_CONF unset",
                fixed >> 20,
                held >> 20
            ),
        );
    }
}

impl Evictor {
    fn new(process: &'static ManagedProcess) -> Self {
        Self {
            process,
            way: Way::of(process),
            cause: process.eviction.cause(),
            began_ns: clock::now(),
            not_before: 0,
            parts_not_before: 0,
            kept_ns: 0,
            goings: (process.registration.slots_generation(), 0),
            evicted_ns: 0,
            deep: None,
            deep_not_before: 0,
            has_rest: false,
            rest_not_before: 0,
            rest_pause_ns: 0,
            places: Vec::new(),
            asking: None,
        }
    }

    fn run(mut self) {
        match self.evict() {
            Ok(footprints) => self.wait_evicted(footprints),
            Err(Stopped::Refused(refusal)) => {
                // It never left: the time since its last return counts on.
                self.process.eviction.forget_request();
                open(self.process);
                self.publish_host_bytes();
                if self.way == Way::Checkpoint {
                    self.process.eviction.remember(refusal);
                }
                let suspended_ns = clock::now().saturating_sub(self.began_ns);
                let rest = pause_after_attempt(self.cause, refusal.0, suspended_ns);
                crate::eviction::refuse(self.process, refusal, rest);
            }
            Err(Stopped::Lost(why, error)) => lose(self.process, why, error),
        }
    }

    /// Evicts the memory. Returns the footprint on each device.
    fn evict(&mut self) -> Result<Vec<Footprint<'static>>, Stopped> {
        let eviction = &self.process.eviction;
        let (held, rate) = match self.way {
            Way::Checkpoint => (crate::eviction::held(self.process), OUT),
            Way::Swap(bytes) => (bytes, swap::RATE),
        };
        self.say(Phase::Evicting, held, eviction.out_ns(held, rate));
        self.shut()?;
        // No memory is allocated any more, so the method is chosen again.
        self.way = Way::of(self.process);
        eligible::check(self.process)?;
        let devices = &self.process.devices;
        let leave = || devices.iter().map(|device| device.ledger.leaving());
        let (out_ns, leaving): (_, Vec<_>);
        let mut making_ns = 0;
        let footprints = match self.way {
            Way::Checkpoint => {
                let footprints = eligible::check_closely(self.process)?;
                leaving = leave().collect();
                out_ns = self.checkpoint()?;
                tell_what_is_fixed(self.process);
                footprints
            }
            Way::Swap(bytes) => {
                eligible::check_swappable_closely(self.process, bytes)?;
                swap::quiet(self.process, || self.is_enough())?;
                admit_queries(gate::COPIED);
                leaving = leave().collect();
                // A process that waits begins with what is free: from here on only a pin, or a host without memory, ends this.
                crate::eviction::wake_queued(self.process);
                out_ns = clock::now();
                // Otherwise a process that is used all the time would never go, however long the other has waited.
                let called_off = || {
                    let goes_on = self.cause == Cause::Asked && !self.process.is_leaving();
                    self.called_off()
                        .filter(|why| !goes_on || *why == Why::Pinned)
                };
                let gone = self.out(called_off)?;
                making_ns = gone.making_ns;
                gone.footprints
            }
        };
        if self.way == Way::Checkpoint {
            for footprint in &footprints {
                let ledger = &footprint.device.ledger;
                ledger.evict(footprint.used, footprint.besides);
            }
        }
        let bytes = self.process.registration.evicted_bytes();
        drop(leaving);
        self.has_rest = self.way != Way::Checkpoint && rest::is_there(self.process);
        // It has been met. What is still lacking is asked for again.
        eviction.forget_request();
        let now = clock::now();
        self.evicted_ns = now;
        let took = now.saturating_sub(out_ns);
        eviction.measured_out(bytes, took.saturating_sub(making_ns));
        let has_left_whole = self.way != Way::Checkpoint && !self.has_rest;
        eviction.has_left_whole.fetch_or(has_left_whole, Relaxed);
        eviction.figures.count_eviction(took, now);
        upkeep::publish_figures(self.process, now);
        self.process
            .registration
            .publish_swap_time(eviction.swap_ns.load(Relaxed));
        if self.way == Way::Checkpoint {
            admit_queries(gate::CHECKPOINTED);
        }
        eviction.set_phase(Phase::Evicted);
        self.say(Phase::Evicted, bytes, 0);
        if let Way::Swap(_) = self.way {
            self.publish_host_bytes();
        }
        Ok(footprints)
    }

    /// Evicts the memory by the driver's checkpoint. Returns the time at which the checkpoint began.
    fn checkpoint(&self) -> Result<u64, Stopped> {
        let patience = self.left() / 1_000_000;
        checkpoint::lock(patience.max(1) as u32).map_err(|error| match error {
            CUDA_ERROR_NOT_READY => (Why::Busy, 0),
            CUDA_ERROR_ILLEGAL_STATE => (Why::Locked, 0),
            CUDA_ERROR_NOT_SUPPORTED => (Why::Managed, error.code() as u16),
            error => (Why::Refused, error.code() as u16),
        })?;
        if let Some(why) = self.called_off() {
            unlock()?;
            return Err((why, 0).into());
        }
        let out_ns = clock::now();
        if let Err(error) = checkpoint::checkpoint() {
            // The driver refuses an unsupported state before it begins, and then the process continues.
            unlock().map_err(|_| Stopped::Lost(Why::CheckpointFailed, error))?;
            let why = match error {
                CUDA_ERROR_NOT_SUPPORTED => Why::Managed,
                _ => Why::Refused,
            };
            return Err((why, error.code() as u16).into());
        }
        Ok(out_ns)
    }

    /// Returns the reason to stop waiting, or `None`.
    fn is_enough(&self) -> Option<Why> {
        match self.left() {
            0 => Some(Why::Busy),
            _ => self.called_off(),
        }
    }

    /// Publishes the host memory that copies keep, also while the process is on its devices, and that a checkpoint after them takes.
    fn publish_host_bytes(&self) {
        let kept = self.process.memory.swap_buffer.bytes();
        let deep = self.deep.iter().flatten().map(Footprint::bytes);
        let all = deep.fold(kept, u64::saturating_add);
        self.process.registration.publish_host_bytes(all);
    }

    /// Suspends calls, and waits until all calls in the driver have returned.
    fn shut(&mut self) -> Result<(), Stopped> {
        let process = self.process;
        // Before the gates are closed, because no gate opens afterwards.
        state::SUSPENDED_BY.store(std::process::id(), Relaxed);
        set_evicted(true);
        gate::suspend(&thread::SUSPENSION);
        // The keeper has finished its driver calls about turns and makes no more.
        let asking = process.eviction.asking.lock();
        self.asking = Some(asking.unwrap_or_else(PoisonError::into_inner));
        for device in &process.devices {
            device.turn.shut(device);
        }
        barrier::heavy();
        if !barrier::is_cheap() {
            return Err((Why::System, 0).into());
        }
        loop {
            let mut free = true;
            for device in &process.devices {
                if !device.turn.shut(device) {
                    device.turn.release(process, device, Reason::Paused);
                    free &= device.turn.shut(device);
                }
            }
            if free && self.is_empty() {
                for (device, held) in process.devices.iter().zip(&process.eviction.held) {
                    held.store(device.ledger.used(), Relaxed);
                }
                // ORDER: Release pairs with the Acquire in `own_bytes`.
                process.eviction.is_empty.store(true, Release);
                return Ok(());
            }
            if self.left() == 0 {
                return Err((Why::Busy, 0).into());
            }
            if let Some(why) = self.called_off() {
                return Err((why, 0).into());
            }
            futex::nap(NAP);
        }
    }

    /// Returns true if no thread is in the driver except the shim's and the driver's own.
    fn is_empty(&self) -> bool {
        !thread::all().any(|thread| is_a_call(thread) && !thread.is_the_drivers())
    }

    /// Returns the remaining time for this attempt, in nanoseconds.
    fn left(&self) -> u64 {
        let patience = match self.cause {
            Cause::Operator | Cause::Turn => PATIENCE,
            Cause::Idle | Cause::Asked => BRIEFLY,
        };
        let until = self.began_ns.saturating_add(patience);
        until.saturating_sub(clock::now())
    }

    /// Returns the reason why the process must not be evicted any more: it ends, the application wants its device, or the
    /// operator has changed the setting or pinned it.
    fn called_off(&self) -> Option<Why> {
        let share = self.process.registration.share();
        if share.pinned && !share.evict {
            return Some(Why::Pinned);
        }
        let is_over = self.process.is_leaving()
            || match self.cause {
                Cause::Operator => !share.evict,
                Cause::Turn => false,
                Cause::Idle | Cause::Asked => self.process.eviction.is_wanted() && !share.evict,
            };
        is_over.then_some(Why::Wanted)
    }

    fn say(&self, phase: Phase, bytes: u64, expected_ns: u64) {
        self.process.registration.publish_move(&Moved {
            bytes,
            expected_ns,
            ..self.moved(phase)
        });
    }

    /// Returns where the memory is in this phase, for other processes.
    fn moved(&self, phase: Phase) -> Moved {
        Moved {
            phase,
            is_checkpoint: self.is_checkpointed() && phase != Phase::Resident,
            // Also in the pause after the rest could not leave: who waits for it is not to be refused.
            is_in_part: (self.has_rest || self.rest_not_before != 0)
                && matches!(phase, Phase::Evicted | Phase::Returning),
            ..Moved::default()
        }
    }

    /// Returns true if the driver's checkpoint has taken all memory, or what copies have left.
    fn is_checkpointed(&self) -> bool {
        self.way == Way::Checkpoint || self.deep.is_some()
    }
}

/// Restores and unlocks by the driver's checkpoint calls, as far as another program has not done it already.
fn restore_checkpoint() -> Result<(), RestoreError> {
    let state = checkpoint::state();
    if state == Ok(State::Running) {
        return Ok(());
    }
    if state != Ok(State::Locked) {
        checkpoint::restore().or_else(restore_again)?;
    }
    checkpoint::unlock().map_err(RestoreError::Lost)
}

/// Repeats a failed restore. Only an error other than out of memory from the second call means that the memory is
/// lost (580.159.04).
fn restore_again(error: CUerror) -> Result<(), RestoreError> {
    if error != CUDA_ERROR_OUT_OF_MEMORY {
        return Err(RestoreError::Lost(error));
    }
    match checkpoint::restore() {
        Ok(()) => Ok(()),
        Err(CUDA_ERROR_OUT_OF_MEMORY) => Err(RestoreError::Full),
        Err(_) => Err(RestoreError::Lost(error)),
    }
}

fn unlock() -> Result<(), Stopped> {
    checkpoint::unlock().map_err(|error| Stopped::Lost(Why::CheckpointFailed, error))
}

/// The result of a failed eviction.
enum Stopped {
    /// The process continues as before.
    Refused(Refusal),
    /// The memory is lost, and the process's calls fail.
    Lost(Why, CUerror),
}

impl From<swap::NotQuiet> for Stopped {
    fn from(not_quiet: swap::NotQuiet) -> Self {
        match not_quiet {
            swap::NotQuiet::Refused(refusal) => Self::Refused(refusal),
            swap::NotQuiet::Locked(error) => Self::Lost(Why::CheckpointFailed, error),
        }
    }
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
