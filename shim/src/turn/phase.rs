//! The phases of a turn and when its gate stands open, as plain decisions.
//!
//! `tests/phases` compiles this file as well, and tries it in every order of the steps of two threads, the keeper, the evictor and
//! an exit.

/// Who has the lock, as far as this process is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not this process.
    Free,
    /// A thread waits for it.
    Acquiring,
    /// This process.
    Held,
    /// This process, while nothing more goes in.
    Draining,
}

impl Phase {
    fn change(&mut self, from: Self, to: Self) {
        debug_assert_eq!(*self, from, "on the way to {to:?}");
        *self = to;
    }

    /// A thread goes to wait for the lock.
    pub fn begin_to_acquire(&mut self) {
        self.change(Self::Free, Self::Acquiring);
    }

    /// That thread has it, or has given up.
    pub fn acquired(&mut self, is_held: bool) {
        let to = if is_held { Self::Held } else { Self::Free };
        self.change(Self::Acquiring, to);
    }

    /// Nothing more goes in. True for one caller alone, which lets it [go on](Self::go_on) or [ends](Self::end) it.
    #[must_use = "the caller that stopped a turn has to end it or to let it go on"]
    pub fn stop(&mut self) -> bool {
        let is_held = *self == Self::Held;
        if is_held {
            *self = Self::Draining;
        }
        is_held
    }

    /// What was stopped goes on.
    pub fn go_on(&mut self) {
        self.change(Self::Draining, Self::Held);
    }

    /// What was stopped is over: the lock was handed over.
    pub fn end(&mut self) {
        self.change(Self::Draining, Self::Free);
    }

    /// The lock was forced away.
    pub fn lose(&mut self) {
        self.change(Self::Held, Self::Free);
    }
}

/// What decides whether a gate stands open.
#[derive(Clone, Copy, Debug)]
pub struct GateInputs {
    /// There is no policy.
    pub is_off: bool,
    /// Nothing may be submitted.
    pub is_paused: bool,
    /// Each submission is looked at while the lock is held.
    pub looks: bool,
}

/// Whether submissions pass the gate without a look at the turn.
pub fn opens(phase: Phase, inputs: GateInputs) -> bool {
    !inputs.is_paused
        && match phase {
            Phase::Free => inputs.is_off,
            Phase::Held => !inputs.looks,
            Phase::Acquiring | Phase::Draining => false,
        }
}
