//! The state of one device's turn within a process, as plain data. [`turn`](super) changes it.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use super::{
    drain::Outstanding,
    phase::{self, GateInputs},
};
use shm_layout::policy::TurnLimit;
use shm_layout::{DeviceLock, LockPolicy, Order, PolicyKind, clock};

use crate::{
    sys::barrier,
    turn::{
        queue_depth::QueueDepth,
        rounds::{IdleEstimate, Rounds},
    },
};

pub use super::phase::Phase;

/// The bounds of a limited queue depth in a slice, in nanoseconds.
const LEAST_DEPTH: u64 = 250_000;
const MOST_DEPTH: u64 = 2_000_000;

/// Set while this process is locked for a checkpoint of its own. The driver then admits no call.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Set while this process is evicted by the shim. Submissions then wait before the gate.
static IS_EVICTED: AtomicBool = AtomicBool::new(false);

/// Returns true if this process is locked for a checkpoint, by itself or by the shim.
pub fn is_locked() -> bool {
    IS_LOCKED.load(Relaxed) || is_evicted()
}

/// Returns true if this process is evicted, or about to be.
pub fn is_evicted() -> bool {
    IS_EVICTED.load(Relaxed)
}

/// Records whether this process is evicted.
pub fn set_evicted(evicted: bool) {
    IS_EVICTED.store(evicted, Relaxed);
}

/// Records whether this process is locked for a checkpoint of its own. Returns the previous value.
pub fn set_locked(locked: bool) -> bool {
    IS_LOCKED.swap(locked, Relaxed)
}

/// The settings that apply to this process on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The policy in force. A cap without a policy is enforced by time slices of its own.
    pub policy: LockPolicy,
    /// Submissions are paused.
    pub paused: bool,
}

/// The part of a turn that its mutex protects.
pub struct State {
    /// The state of the device's lock.
    pub phase: Phase,
    /// The settings in force.
    pub rules: Rules,
    /// Counted submissions since the lock was acquired, or since the device last finished all of them.
    pub submitted: u32,
    /// The time from which the counted submissions could go in, in nanoseconds.
    pub counted_from_ns: u64,
    /// The count was full and this process keeps the turn, because the waiting processes deserve it less.
    pub goes_on: bool,
    /// Explicit synchronisations since the lock was acquired.
    pub synchronised: u32,
    /// The time at which the lock was acquired, in nanoseconds.
    pub acquired_ns: u64,
    /// `Held` stands for no lock: the process is active together with others, under `overlap`.
    pub overlapping: bool,
    /// The keeper sleeps until it is rung for, because a thread was held back when it looked.
    pub is_unwatched: bool,
    /// Submissions check the queue depth, because another process may make this one hold back, or waits for the end of
    /// its slice.
    pub limited: bool,
    /// The time until which the process is not held back again, in nanoseconds.
    pub pass_until_ns: u64,
    /// The time at which the application synchronised, in nanoseconds; 0 if it has submitted since.
    pub synced_ns: u64,
    /// The rounds between the application's waits for the device, under `overlap`.
    pub rounds: Rounds,
    /// The estimate of how soon the application submits again after a synchronisation.
    pub idle: IdleEstimate,
    /// The number of submissions that may still go in because another member of the gang waits for them; `None` for
    /// no limit.
    pub allowance: Option<u64>,
    /// The number of submissions when the members of the gang last ended a turn with all work drained.
    pub gang_base: u64,
    /// Streams taken over from the threads, with work that is not drained yet.
    pub pending: Outstanding,
}

impl State {
    /// Returns true if the count of the policy is reached, so that the next owner of the lock is chosen.
    pub fn is_full(&self) -> bool {
        match self.rules.policy.kind.turn_limit() {
            Some(TurnLimit::Calls(n)) => self.submitted >= n,
            Some(TurnLimit::Time(_)) | None => false,
        }
    }

    /// Returns true if the gate may be open.
    pub fn is_open(&self) -> bool {
        let kind = self.rules.policy.kind;
        let looks = is_counted(kind) || self.limited || self.allowance.is_some();
        let inputs = GateInputs {
            is_off: kind == PolicyKind::Off,
            is_paused: self.rules.paused,
            looks: looks || !barrier::is_cheap(),
        };
        phase::opens(self.phase, inputs)
    }

    /// Returns true if a thread may make several submissions after one check of the queue depth.
    pub fn is_metered(&self) -> bool {
        self.limited && self.allowance.is_none() && barrier::is_cheap()
    }

    /// Returns the limit of the queue depth as device time in nanoseconds, or `None` for a policy that has none.
    pub fn depth_ns(&self) -> Option<u64> {
        match self.rules.policy.kind {
            PolicyKind::Overlap(depth_ns) => depth_ns,
            // With less, the device would run dry between two polls; with more, the wait at the end of the slice
            // would be too long.
            PolicyKind::Timeslice(slice) => Some((slice / 4).clamp(LEAST_DEPTH, MOST_DEPTH)),
            _ => None,
        }
    }

    /// Returns how long the work of an ended slice may still run while another process begins, in nanoseconds.
    pub fn overlap(&self) -> u64 {
        match self.rules.policy.kind {
            PolicyKind::Timeslice(slice) => self.rules.policy.overlap_ns.min(slice / 4),
            _ => 0,
        }
    }

    /// Returns [`overlap`](Self::overlap) if the amount of queued work is known, else 0.
    pub fn overlap_ns(&self) -> u64 {
        if self.limited { self.overlap() } else { 0 }
    }

    /// Returns true if a process that has synchronised keeps its slice. Among processes of equal rank a hand-over
    /// after each synchronisation costs more than it gains if the next submission comes at once.
    pub fn goes_on_in_its_slice(&self, lock: &DeviceLock<'_>) -> bool {
        let LockPolicy {
            kind: PolicyKind::Timeslice(slice),
            order: Order::Fair,
            ..
        } = self.rules.policy
        else {
            return false;
        };
        let since = lock.turn_since(self.acquired_ns, slice);
        self.idle.is_short() && clock::now().saturating_sub(since) < slice
    }

    /// Adds the gap since the last synchronisation to the estimate, if this is the first submission after it.
    pub fn learn_idle(&mut self) {
        let synced = std::mem::take(&mut self.synced_ns);
        if synced != 0 {
            self.idle.learn(clock::now().saturating_sub(synced));
        }
    }
}

/// Returns true if submissions are counted under this policy.
pub fn is_counted(kind: PolicyKind) -> bool {
    matches!(kind.turn_limit(), Some(TurnLimit::Calls(_)))
}

/// A process's turn on one device.
pub struct Turn {
    /// The state. It is locked for short moments only.
    pub state: Mutex<State>,
    /// The queue depth. It is locked for short moments, after `state` or alone.
    pub queue_depth: Mutex<QueueDepth>,
    /// Notified whenever the state has changed.
    pub changed: Condvar,
    /// Mirrors the phase, for readers that do not lock the state.
    pub held: AtomicBool,
    /// Set when the rules changed: a thread that waits for the lock must check them again.
    pub recheck: AtomicBool,
    /// The number of submissions when the keeper last saw a new one.
    pub seen_submitted: AtomicU64,
    /// The time at which the keeper last saw a new submission, in nanoseconds.
    pub seen_ns: AtomicU64,
    /// The number of submissions when the keeper last found all of them done, plus one.
    pub done_submitted: AtomicU64,
    /// The process has published that it tolerates everything, under `overlap`.
    pub tolerates_all: AtomicBool,
    /// The driver waited for the last asynchronous copy to the host's memory.
    pub copies_wait: AtomicBool,
    /// The time at which another process last waited for this one, as seen by the keeper, or this one for another.
    pub waited_ns: AtomicU64,
}

impl Default for Turn {
    /// Returns a turn under policy `off` that is not held.
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                phase: Phase::Free,
                rules: Rules::default(),
                submitted: 0,
                counted_from_ns: 0,
                goes_on: false,
                synchronised: 0,
                acquired_ns: 0,
                overlapping: false,
                limited: false,
                pass_until_ns: 0,
                synced_ns: 0,
                rounds: Rounds::default(),
                idle: IdleEstimate::default(),
                allowance: None,
                is_unwatched: false,
                gang_base: 0,
                pending: Outstanding::default(),
            }),
            queue_depth: Mutex::default(),
            changed: Condvar::new(),
            held: AtomicBool::new(false),
            recheck: AtomicBool::new(false),
            seen_submitted: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            done_submitted: AtomicU64::new(0),
            tolerates_all: AtomicBool::new(false),
            copies_wait: AtomicBool::new(false),
            waited_ns: AtomicU64::new(0),
        }
    }
}

impl Turn {
    /// Returns true if this process holds the lock.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }

    /// Locks the queue depth.
    pub fn queue_depth(&self) -> MutexGuard<'_, QueueDepth> {
        self.queue_depth
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
