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
        swap::{self, NotBack},
    },
    managed_process::{self, Guest},
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
pub fn start(guest: &'static Guest, cause: Cause) {
    let residence = &guest.residence;
    residence.unwant();
    residence.set_phase(Phase::Evicting);
    residence.set_cause(cause);
    if !own_thread::start_large(guest, body) {
        residence.set_phase(Phase::Resident);
        crate::eviction::refuse(guest, (Why::NoThread, 0), rest(cause, Why::NoThread));
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

extern "C" fn body(guest: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a guest, which is never freed.
    let guest: &'static Guest = unsafe { &*guest.cast::<Guest>() };
    let _unwatched = own_thread::begin(c"gpushare-mover");
    let inside = thread::Inside::enter_as_ours();
    if let Some(inside) = &inside {
        inside.thread().say_answered(true);
    }
    if catch_unwind(AssertUnwindSafe(|| Mover::new(guest).run())).is_err() {
        managed_process::fault();
        put_right(guest);
    }
    std::ptr::null_mut()
}

/// A panic came in between: what the driver says decides.
fn put_right(guest: &'static Guest) {
    let result = loop {
        let checkpoint = if checkpoint::exists() {
            restore()
        } else {
            Ok(())
        };
        match checkpoint.and_then(|()| swap::back(guest)) {
            Ok(()) => break Ok(()),
            Err(NotBack::Full) if !guest.is_leaving() => {
                futex::nap(Duration::from_nanos(restore::AGAIN));
            }
            Err(NotBack::Full) => break Err(CUDA_ERROR_OUT_OF_MEMORY),
            Err(NotBack::Lost(error)) => break Err(error),
        }
    };
    match result {
        Ok(()) => {
            for device in &guest.devices {
                // It is there, whatever others have been given meanwhile.
                device.ledger.charge_unchecked(device.ledger.evicted());
                device.ledger.returned(0);
            }
            open(guest);
        }
        Err(error) => lose(guest, Why::RestoreFailed, error),
    }
}

/// Calls go on.
fn open(guest: &Guest) {
    let residence = &guest.residence;
    residence.set_phase(Phase::Resident);
    residence.back_ns.store(clock::now(), Relaxed);
    residence.is_empty.store(false, Relaxed);
    thread::all().for_each(thread::Thread::is_known_now);
    set_evicted(false);
    suspend::open(&thread::SUSPENSION);
    futex::wake_private(&thread::SUSPENSION);
}

/// What was on the devices is gone: calls are answered with the driver's own error from here on.
fn lose(guest: &Guest, why: Why, error: CUerror) {
    let bytes = crate::eviction::held(guest).max(guest.registration.evicted_bytes());
    guest.residence.set_phase(Phase::Lost);
    guest.registration.publish_move(&Moved {
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
    crate::eviction::shut_for_good();
}

struct Mover {
    guest: &'static Guest,
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

impl Mover {
    fn new(guest: &'static Guest) -> Self {
        Self {
            guest,
            way: Way::of(guest),
            cause: guest.residence.cause(),
            began_ns: clock::now(),
            not_before: 0,
            goings: (guest.registration.slots_generation(), 0),
            asking: None,
        }
    }

    fn run(mut self) {
        match self.evict() {
            Ok(footprints) => self.stay_away(&footprints),
            Err(Stopped::Refused(refusal)) => {
                open(self.guest);
                self.say_kept();
                if self.way == Way::Checkpoint {
                    self.guest.residence.remember(refusal);
                }
                crate::eviction::refuse(self.guest, refusal, rest(self.cause, refusal.0));
            }
            Err(Stopped::Lost(why, error)) => lose(self.guest, why, error),
        }
    }

    /// Out.
    fn evict(&mut self) -> Result<Vec<Footprint<'static>>, Stopped> {
        let residence = &self.guest.residence;
        let (held, rate) = match self.way {
            Way::Checkpoint => (crate::eviction::held(self.guest), OUT),
            Way::Swap(bytes) => (bytes, swap::RATE),
        };
        self.say(Phase::Evicting, held, residence.out_ns(held, rate));
        self.shut()?;
        // Nothing is allocated any more.
        self.way = Way::of(self.guest);
        eligible::look(self.guest)?;
        let out_ns;
        let footprints = match self.way {
            Way::Checkpoint => {
                let footprints = eligible::look_closely(self.guest)?;
                out_ns = self.checkpoint()?;
                footprints
            }
            Way::Swap(bytes) => {
                eligible::look_closely_at_swappable(self.guest, bytes)?;
                swap::quiet(self.guest, || self.is_enough())?;
                out_ns = clock::now();
                swap::out(self.guest, || self.is_called_off())?
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
        residence.measured_out(bytes, took);
        self.guest
            .registration
            .publish_swap_time(residence.swap_ns.load(Relaxed));
        residence.set_phase(Phase::Evicted);
        self.say(Phase::Evicted, bytes, 0);
        if let Way::Swap(_) = self.way {
            self.say_kept();
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
    fn say_kept(&self) {
        let kept = self.guest.memory.hoard.bytes();
        self.guest.registration.publish_host_bytes(kept);
    }

    /// Nothing more goes to the driver, and what went there has come back.
    fn shut(&mut self) -> Result<(), Stopped> {
        let guest = self.guest;
        // Before the gates: behind its turn's mutex no gate opens any more.
        state::SHUT_BY.store(std::process::id(), Relaxed);
        set_evicted(true);
        suspend::close(&thread::SUSPENSION);
        // The keeper is done with what it asks about turns, and asks no more.
        let asking = guest.residence.asking.lock();
        self.asking = Some(asking.unwrap_or_else(PoisonError::into_inner));
        for device in &guest.devices {
            device.turn.shut(device);
        }
        barrier::heavy();
        if !barrier::is_cheap() {
            return Err((Why::System, 0).into());
        }
        loop {
            let mut free = true;
            for device in &guest.devices {
                if !device.turn.shut(device) {
                    device.turn.give_way(guest, device, Reason::Paused);
                    free &= device.turn.shut(device);
                }
            }
            if free && self.is_empty() {
                guest.residence.is_empty.store(true, Relaxed);
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
        let share = self.guest.registration.share();
        self.guest.is_leaving()
            || match self.cause {
                Cause::Operator => !share.evict,
                Cause::Turn => false,
                Cause::Idle | Cause::Asked => self.guest.residence.is_wanted() && !share.evict,
            }
    }

    fn say(&self, phase: Phase, bytes: u64, expected_ns: u64) {
        self.guest.registration.publish_move(&Moved {
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
fn restore() -> Result<(), NotBack> {
    let state = checkpoint::state();
    if state == Ok(State::Running) {
        return Ok(());
    }
    if state != Ok(State::Locked) {
        checkpoint::restore().or_else(restore_again)?;
    }
    checkpoint::unlock().map_err(NotBack::Lost)
}

/// After a restore that has failed. One without room is final where the driver answers the next one otherwise (580.159.04).
fn restore_again(error: CUerror) -> Result<(), NotBack> {
    if error != CUDA_ERROR_OUT_OF_MEMORY {
        return Err(NotBack::Lost(error));
    }
    match checkpoint::restore() {
        Ok(()) => Ok(()),
        Err(CUDA_ERROR_OUT_OF_MEMORY) => Err(NotBack::Full),
        Err(_) => Err(NotBack::Lost(error)),
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
