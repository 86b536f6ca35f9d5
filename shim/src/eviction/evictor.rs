//! The thread that takes the process's memory off its devices, and brings it back. It lives from the one to the other.
//!
//! It is no application's thread: it asks the driver while the door is closed. A panic in it leaves the process as it was, or
//! with what the driver makes of it ([`put_right`]).
#![allow(unsafe_code, reason = "gives the thread its name")]

mod restore;

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use gpushare_abi::errors::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY, CUerror,
};
use shm_layout::{Moved, Phase, Reason, Why, clock};

use crate::{
    driver_query::checkpoint::{self, State},
    eviction::{
        Cause,
        eligible::{self, Way},
        footprint::{Footprint, Refusal},
        state,
        swap::{self, RestoreError},
    },
    managed_process::{self, ManagedProcess},
    notice, suspend,
    sys::{barrier, futex, own_thread},
    thread,
    turn::state::set_evicted,
};

/// How long calls and work under way may take to end.
const PATIENCE: u64 = 10_000_000_000;
/// The same where nothing has happened for long: what is still under way will stay so.
const BRIEFLY: u64 = 1_000_000_000;
/// Between two looks at what will end by itself.
const NAP: Duration = Duration::from_millis(1);
/// Bytes a second, until they were measured (H100, 580.159.04).
const OUT: u64 = 2_000_000_000;

/// Starts it; from here on the process is on its way.
pub fn start(process: &'static ManagedProcess, cause: Cause) {
    let eviction = &process.eviction;
    eviction.unwant();
    eviction.set_phase(Phase::Evicting);
    eviction.set_cause(cause);
    if !own_thread::start_large(process, body) {
        eviction.set_phase(Phase::Resident);
        crate::eviction::refuse(process, (Why::NoThread, 0), rest(cause, Why::NoThread));
    }
}

/// How long it is left alone after an attempt that came to nothing. One that the application has called off by a call tells that it
/// is in use: it has to be idle anew.
fn rest(cause: Cause, why: Why) -> u64 {
    match (cause, why) {
        (Cause::Operator, _) | (_, Why::Wanted) => crate::eviction::OFTEN,
        _ => crate::eviction::REST,
    }
}

extern "C" fn body(process: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a managed process, which is never freed.
    let process: &'static ManagedProcess = unsafe { &*process.cast::<ManagedProcess>() };
    let _unwatched = own_thread::begin(c"gpushare-mover");
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

/// A panic came in between: what the driver says decides.
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
                // It is there, whatever others have been given meanwhile.
                device.ledger.charge_unchecked(device.ledger.evicted());
                device.ledger.returned(0);
            }
            open(process);
        }
        Err(error) => lose(process, Why::RestoreFailed, error),
    }
}

/// Calls go on.
fn open(process: &ManagedProcess) {
    let eviction = &process.eviction;
    eviction.set_phase(Phase::Resident);
    eviction.back_ns.store(clock::now(), Relaxed);
    eviction.is_empty.store(false, Relaxed);
    thread::all().for_each(thread::Thread::mark_known);
    set_evicted(false);
    suspend::resume(&thread::SUSPENSION);
    futex::wake_private(&thread::SUSPENSION);
}

/// What was on the devices is gone: calls are answered with the driver's own error from here on.
fn lose(process: &ManagedProcess, why: Why, error: CUerror) {
    let bytes = crate::eviction::held(process).max(process.registration.evicted_bytes());
    process.eviction.set_phase(Phase::Lost);
    process.registration.publish_move(&Moved {
        phase: Phase::Lost,
        why: Some(why),
        code: error.code() as u16,
        bytes,
        expected_ns: 0,
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
    /// When it is tried again to bring it back, at the earliest.
    not_before: u64,
    /// Who has slots, as last seen, and when that changed.
    goings: (u64, u64),
    /// Held while the driver answers nothing but our own calls.
    asking: Option<MutexGuard<'static, ()>>,
}

impl Evictor {
    fn new(process: &'static ManagedProcess) -> Self {
        Self {
            process,
            way: Way::of(process),
            cause: process.eviction.cause(),
            began_ns: clock::now(),
            not_before: 0,
            goings: (process.registration.slots_generation(), 0),
            asking: None,
        }
    }

    fn run(mut self) {
        match self.evict() {
            Ok(footprints) => self.wait_evicted(&footprints),
            Err(Stopped::Refused(refusal)) => {
                open(self.process);
                self.publish_host_bytes();
                if self.way == Way::Checkpoint {
                    self.process.eviction.remember(refusal);
                }
                crate::eviction::refuse(self.process, refusal, rest(self.cause, refusal.0));
            }
            Err(Stopped::Lost(why, error)) => lose(self.process, why, error),
        }
    }

    /// Out.
    fn evict(&mut self) -> Result<Vec<Footprint<'static>>, Stopped> {
        let eviction = &self.process.eviction;
        let (held, rate) = match self.way {
            Way::Checkpoint => (crate::eviction::held(self.process), OUT),
            Way::Swap(bytes) => (bytes, swap::RATE),
        };
        self.say(Phase::Evicting, held, eviction.out_ns(held, rate));
        self.shut()?;
        // Nothing is allocated any more.
        self.way = Way::of(self.process);
        eligible::check(self.process)?;
        let out_ns;
        let footprints = match self.way {
            Way::Checkpoint => {
                let footprints = eligible::check_closely(self.process)?;
                out_ns = self.checkpoint()?;
                footprints
            }
            Way::Swap(bytes) => {
                eligible::check_swappable_closely(self.process, bytes)?;
                swap::quiet(self.process, || self.is_enough())?;
                out_ns = clock::now();
                swap::out(self.process, || self.is_called_off())?
            }
        };
        let bytes = footprints
            .iter()
            .map(|footprint| {
                let ledger = &footprint.device.ledger;
                ledger.evict(footprint.used, footprint.besides)
            })
            .fold(0, u64::saturating_add);
        let took = clock::now().saturating_sub(out_ns);
        eviction.measured_out(bytes, took);
        self.process
            .registration
            .publish_swap_time(eviction.swap_ns.load(Relaxed));
        eviction.set_phase(Phase::Evicted);
        self.say(Phase::Evicted, bytes, 0);
        if let Way::Swap(_) = self.way {
            self.publish_host_bytes();
        }
        Ok(footprints)
    }

    /// Out by the driver; since when.
    fn checkpoint(&self) -> Result<u64, Stopped> {
        let patience = self.left() / 1_000_000;
        checkpoint::lock(patience.max(1) as u32).map_err(|error| match error {
            CUDA_ERROR_NOT_READY => (Why::Busy, 0),
            CUDA_ERROR_ILLEGAL_STATE => (Why::Locked, 0),
            CUDA_ERROR_NOT_SUPPORTED => (Why::Managed, error.code() as u16),
            error => (Why::Refused, error.code() as u16),
        })?;
        if self.is_called_off() {
            unlock()?;
            return Err((Why::Wanted, 0).into());
        }
        let out_ns = clock::now();
        if let Err(error) = checkpoint::checkpoint() {
            // What the driver does not support it refuses before it begins, and then the process goes on.
            unlock().map_err(|_| Stopped::Lost(Why::CheckpointFailed, error))?;
            let why = match error {
                CUDA_ERROR_NOT_SUPPORTED => Why::Managed,
                _ => Why::Refused,
            };
            return Err((why, error.code() as u16).into());
        }
        Ok(out_ns)
    }

    /// Why not to wait any longer.
    fn is_enough(&self) -> Option<Why> {
        match self.left() {
            0 => Some(Why::Busy),
            _ => self.is_called_off().then_some(Why::Wanted),
        }
    }

    /// The host memory that stays taken when the process's own is on its devices.
    fn publish_host_bytes(&self) {
        let kept = self.process.memory.swap_buffer.bytes();
        self.process.registration.publish_host_bytes(kept);
    }

    /// Nothing more goes to the driver, and what went there has come back.
    fn shut(&mut self) -> Result<(), Stopped> {
        let process = self.process;
        // Before the gates: behind its turn's mutex no gate opens any more.
        state::SUSPENDED_BY.store(std::process::id(), Relaxed);
        set_evicted(true);
        suspend::suspend(&thread::SUSPENSION);
        // The keeper is done with what it asks about turns, and asks no more.
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
                process.eviction.is_empty.store(true, Relaxed);
                return Ok(());
            }
            if self.left() == 0 {
                return Err((Why::Busy, 0).into());
            }
            if self.is_called_off() {
                return Err((Why::Wanted, 0).into());
            }
            futex::nap(NAP);
        }
    }

    /// Whether no thread but ours and the driver's own is in the driver.
    fn is_empty(&self) -> bool {
        !thread::all().any(|thread| is_a_call(thread) && !thread.is_the_drivers())
    }

    /// How long it may still take.
    fn left(&self) -> u64 {
        let patience = match self.cause {
            Cause::Operator | Cause::Turn => PATIENCE,
            Cause::Idle | Cause::Asked => BRIEFLY,
        };
        let until = self.began_ns.saturating_add(patience);
        until.saturating_sub(clock::now())
    }

    /// Whether it is not to be evicted any more: the application wants its device, or the operator has changed their mind.
    fn is_called_off(&self) -> bool {
        let share = self.process.registration.share();
        self.process.is_leaving()
            || match self.cause {
                Cause::Operator => !share.evict,
                Cause::Turn => false,
                Cause::Idle | Cause::Asked => self.process.eviction.is_wanted() && !share.evict,
            }
    }

    fn say(&self, phase: Phase, bytes: u64, expected_ns: u64) {
        self.process.registration.publish_move(&Moved {
            phase,
            bytes,
            expected_ns,
            ..Moved::default()
        });
    }
}

/// Whether a thread that is none of ours is in the driver.
fn is_a_call(thread: &thread::Thread) -> bool {
    thread.is_inside_anything() && !thread.is_ours()
}

/// Brings the memory back and lets calls go on; as far as another program has not done it.
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

/// After a restore that has failed. One without room is final where the driver answers the next one otherwise (580.159.04).
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

/// Why it was not evicted.
enum Stopped {
    /// It goes on as before.
    Refused(Refusal),
    /// It does not go on.
    Lost(Why, CUerror),
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
