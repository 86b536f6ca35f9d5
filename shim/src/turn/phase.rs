//! The phases of a turn, and the rule for when its gate is open, as pure functions.
//!
//! `tests/phases` also compiles this file, and explores every interleaving of two threads, the keeper, the evictor
//! and an exit.

/// The state of the device's lock, as seen by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// This process does not hold the lock.
    Free,
    /// A thread of this process waits for the lock.
    Acquiring,
    /// This process holds the lock.
    Held,
    /// This process holds the lock, and admits no more submissions.
    Draining,
}

impl Phase {
    fn change(&mut self, from: Self, to: Self) {
        debug_assert_eq!(*self, from, "on the way to {to:?}");
        *self = to;
    }

    /// Records that a thread starts to wait for the lock.
    pub fn begin_to_acquire(&mut self) {
        self.change(Self::Free, Self::Acquiring);
    }

    /// Records that the waiting thread has the lock, or has given up.
    pub fn acquired(&mut self, is_held: bool) {
        let to = if is_held { Self::Held } else { Self::Free };
        self.change(Self::Acquiring, to);
    }

    /// Stops submissions. Returns true for only one caller, which must [continue](Self::go_on) or [end](Self::end)
    /// the turn.
    #[must_use = "the caller that stopped a turn has to end it or to let it go on"]
    pub fn stop(&mut self) -> bool {
        let is_held = *self == Self::Held;
        if is_held {
            *self = Self::Draining;
        }
        is_held
    }

    /// Continues a stopped turn.
    pub fn go_on(&mut self) {
        self.change(Self::Draining, Self::Held);
    }

    /// Ends a stopped turn: the lock was handed over.
    pub fn end(&mut self) {
        self.change(Self::Draining, Self::Free);
    }

    /// Records that the lock was taken away by force.
    pub fn lose(&mut self) {
        self.change(Self::Held, Self::Free);
    }
}

/// The conditions that decide whether a gate is open, besides the phase.
#[derive(Clone, Copy, Debug)]
pub struct GateInputs {
    /// The policy is `off`.
    pub is_off: bool,
    /// Submissions are paused.
    pub is_paused: bool,
    /// Each submission is checked while the lock is held.
    pub looks: bool,
}

/// Returns true if submissions pass the gate without locking the turn.
pub fn opens(phase: Phase, inputs: GateInputs) -> bool {
    !inputs.is_paused
        && match phase {
            Phase::Free => inputs.is_off,
            Phase::Held => !inputs.looks,
            Phase::Acquiring | Phase::Draining => false,
        }
}
