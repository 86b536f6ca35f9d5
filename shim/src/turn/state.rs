//! What a process keeps of one device's turn, as plain data. [`turn`](super) acts on it.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use super::{
    drain::Outstanding,
    phase::{self, GateInputs},
};
use shm_layout::{DeviceLock, LockPolicy, Order, PolicyKind, clock};

use crate::{
    sys::barrier,
    turn::{idle_estimate::IdleEstimate, queue_depth::QueueDepth},
};

pub use super::phase::Phase;

/// The least and the most of a slice's work that may be queued, once that is limited.
const LEAST_DEPTH: u64 = 250_000;
const MOST_DEPTH: u64 = 2_000_000;

/// Set while this process is locked for a checkpoint that it takes itself: the driver lets no call in then.
static IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// The same, of our own accord: submissions wait at the door.
static IS_EVICTED: AtomicBool = AtomicBool::new(false);

/// Whether this process has locked itself for a checkpoint, or we have.
pub fn is_locked() -> bool {
    IS_LOCKED.load(Relaxed) || is_evicted()
}

/// Whether it is evicted, or about to be.
pub fn is_evicted() -> bool {
    IS_EVICTED.load(Relaxed)
}

/// Says whether it is.
pub fn set_evicted(evicted: bool) {
    IS_EVICTED.store(evicted, Relaxed);
}

/// Says whether it has, and whether it had before.
pub fn set_locked(locked: bool) -> bool {
    IS_LOCKED.swap(locked, Relaxed)
}

/// What the settings ask of this process on this device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The policy in force; a cap without a policy is kept by slices of its own.
    pub policy: LockPolicy,
    /// Nothing may be submitted.
    pub paused: bool,
}

/// What the mutex of a turn keeps.
pub struct State {
    /// Who has the lock.
    pub phase: Phase,
    /// What is asked of this process.
    pub rules: Rules,
    /// Counted submissions since the lock was acquired, or since the device last caught up with us.
    pub submitted: u32,
    /// When the first of them could go in.
    pub counted_from_ns: u64,
    /// The count was full and the turn is still ours: others wait who deserve it less.
    pub goes_on: bool,
    /// Explicit synchronisations since the lock was acquired.
    pub synchronised: u32,
    /// When the lock was acquired.
    pub acquired_ns: u64,
    /// The limit of what may be queued was reached in this turn.
    pub was_full: bool,
    /// Slices in a row that ended in time and never reached it.
    pub calm_slices: u32,
    /// What is held is no lock: the process is active beside others, under `overlap`.
    pub overlapping: bool,
    /// Each submission looks at how much is queued: another process may make this one hold back, or its slices ended late.
    pub limited: bool,
    /// Until then it is not held back again.
    pub pass_until_ns: u64,
    /// When the application synchronised, if it has submitted nothing since; else 0.
    pub synced_ns: u64,
    /// How soon it submits again after that.
    pub idle: IdleEstimate,
    /// So many submissions may still go in, for another member of the gang waits for them.
    pub allowance: Option<u64>,
    /// What the threads had submitted when the members of the gang last ended a turn with all drained.
    pub gang_base: u64,
    /// Streams taken over from the threads that have not drained yet.
    pub pending: Outstanding,
}

impl State {
    /// Whether so much was submitted that the turn is to be decided anew.
    pub fn is_full(&self) -> bool {
        match self.rules.policy.kind {
            PolicyKind::Always => self.submitted >= 1,
            PolicyKind::Launches(n) => self.submitted >= n,
            PolicyKind::Off | PolicyKind::Timeslice(_) | PolicyKind::Overlap(_) => false,
        }
    }

    /// Whether the gate stands open.
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

    /// How much may be queued while that is limited, in time on the device.
    pub fn depth_ns(&self) -> Option<u64> {
        match self.rules.policy.kind {
            PolicyKind::Overlap(depth_ns) => depth_ns,
            // Less would run dry between two looks; more would be too much to wait for at the end.
            PolicyKind::Timeslice(slice) => Some((slice / 4).clamp(LEAST_DEPTH, MOST_DEPTH)),
            PolicyKind::Off | PolicyKind::Launches(_) | PolicyKind::Always => None,
        }
    }

    /// How long the work of a slice that is over may still run when another process begins.
    pub fn overlap(&self) -> u64 {
        match self.rules.policy.kind {
            PolicyKind::Timeslice(slice) => self.rules.policy.overlap_ns.min(slice / 4),
            _ => 0,
        }
    }

    /// The same, where it is known how much is queued.
    pub fn overlap_ns(&self) -> u64 {
        if self.limited { self.overlap() } else { 0 }
    }

    /// Whether a process that has synchronised has its slice all the same: among equals a hand-over after each synchronisation
    /// costs more than it brings, where the next submission comes at once.
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

    /// A submission comes: if it is the first since the application synchronised, that was a gap.
    pub fn learn_idle(&mut self) {
        let synced = std::mem::take(&mut self.synced_ns);
        if synced != 0 {
            self.idle.learn(clock::now().saturating_sub(synced));
        }
    }
}

/// Whether submissions are counted under this policy.
pub fn is_counted(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::Always | PolicyKind::Launches(_))
}

/// One device's turn.
pub struct Turn {
    /// Held for moments only.
    pub state: Mutex<State>,
    /// What is queued, while that is limited. Held for moments; taken behind `state` or alone.
    pub queue_depth: Mutex<QueueDepth>,
    /// Rung whenever the state has changed.
    pub changed: Condvar,
    /// Mirrors the phase for those who only want to know whether to look closer.
    pub held: AtomicBool,
    /// The rules changed: a thread that waits for the lock has to look at them again.
    pub recheck: AtomicBool,
    /// What the threads had submitted when the keeper last saw something new ...
    pub seen_submitted: AtomicU64,
    /// ... and when that was.
    pub seen_ns: AtomicU64,
    /// What they had submitted when the keeper last found all of it done, plus one.
    pub done_submitted: AtomicU64,
    /// When another process last waited for us, as the keeper saw it, or we for another.
    pub waited_ns: AtomicU64,
}

impl Default for Turn {
    /// A turn under policy `off` that is not held.
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
                was_full: false,
                calm_slices: 0,
                overlapping: false,
                limited: false,
                pass_until_ns: 0,
                synced_ns: 0,
                idle: IdleEstimate::default(),
                allowance: None,
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
            waited_ns: AtomicU64::new(0),
        }
    }
}

impl Turn {
    /// Whether this process holds the lock.
    pub fn is_held(&self) -> bool {
        self.held.load(Relaxed)
    }

    /// What is queued, locked.
    pub fn queue_depth(&self) -> MutexGuard<'_, QueueDepth> {
        self.queue_depth
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, locked.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
