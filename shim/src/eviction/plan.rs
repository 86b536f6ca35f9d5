//! When the process is evicted: the reasons for and against it, and how long a refusal lasts.
//!
//! A reason that ends by itself is looked at again when it may have ended. So a process that another one waits for goes as soon as
//! it can, and one whose work goes on is not suspended.

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};

use shm_layout::{Moved, Phase, Why, memory::queue::EvictionRules};

use crate::{
    eviction::{
        ask, eligible,
        footprint::Refusal,
        state::{Cause, EvictionState},
        work,
    },
    managed_process::ManagedProcess,
};

/// Time between two checks of eligibility, in nanoseconds.
pub(super) const OFTEN: u64 = 500_000_000;
/// Time between two looks at something that other programs end, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// Shortest and longest time between two looks at work that is not done, in nanoseconds. The longer it is asked for, the rarer they
/// are.
const LOOKS: [u64; 2] = [500_000, 20_000_000];
/// Time after which a process looks again that began to leave together with others, in nanoseconds, by its slot: one after the other.
const ASIDE: u64 = 500_000;
/// Divisor of the time for which the memory is asked for: time between two looks at work.
const RARER: u64 = 8;
/// Longest delay after a failed attempt that suspended the application's calls, in nanoseconds.
const REST: u64 = 30_000_000_000;
/// Factor: a process is left alone for this many times the time for which its calls were suspended for nothing.
const SPARED: u64 = 10;

/// The reason why an eviction that is due does not start at this look.
pub(super) enum NotNow {
    /// An attempt has failed a short while ago.
    Resting,
    /// Events do not tell yet whether the process is idle; the time of the next look.
    Unknown(u64),
    /// The cause ends by itself; the time of the next look.
    Until(Why, u64),
    /// The process cannot be evicted.
    Refused(Refusal),
}

/// The reasons for and against an eviction now.
pub(super) struct Plan {
    /// The operator wants the process evicted.
    operators: bool,
    /// Another process has asked for the memory and lacks it.
    asked: bool,
    /// The time at which the process has been idle for as long as its own setting says.
    pub idle_at: Option<u64>,
    /// The process keeps its memory, whoever asks and however long it is idle.
    pub pinned: bool,
    paused: bool,
    /// The time without a request after which the process counts as idle, in nanoseconds.
    idle_ns: u64,
    /// The time for which restored memory stays while others wait for it, in nanoseconds.
    stay_ns: u64,
    /// The length of a turn in nanoseconds, if processes at work are evicted too.
    turn: Option<u64>,
    /// The process itself waits for memory.
    waits: bool,
}

impl Plan {
    /// Collects the reasons.
    pub fn of(process: &ManagedProcess, now: u64) -> Self {
        let (eviction, registration) = (&process.eviction, process.registration);
        if registration.take_request() {
            eviction.request(now);
        }
        let share = registration.share();
        let devices = || process.devices.iter();
        let swap_ns = eviction.swap_ns.load(Relaxed);
        // Of several devices the rules that evict it latest.
        let rules: Vec<EvictionRules> = devices()
            .map(|device| device.ledger.eviction_rules())
            .collect();
        let latest = |of: &dyn Fn(&EvictionRules) -> u64| rules.iter().map(of).max().unwrap_or(0);
        Self {
            operators: share.evict,
            asked: !share.pinned && eviction.is_requested(now) && is_lacking(process, now),
            idle_at: share
                .evict_after
                .filter(|_| !share.pinned)
                .map(|after| eviction.usage.used_ns().saturating_add(after)),
            pinned: share.pinned,
            paused: share.paused,
            idle_ns: latest(&EvictionRules::idle_ns),
            stay_ns: latest(&|rules| rules.stay_ns(swap_ns)),
            turn: rules
                .iter()
                .filter_map(|rules| rules.turn_ns(swap_ns))
                .max(),
            waits: devices().any(|device| device.ledger.is_queued_for_others()),
        }
    }

    /// Returns the cause of an eviction that is due.
    pub fn due(&self, now: u64) -> Option<Cause> {
        if self.operators {
            Some(Cause::Operator)
        } else if self.asked {
            Some(self.turn.map_or(Cause::Asked, |_| Cause::Turn))
        } else {
            self.idle_at.filter(|at| now >= *at).map(|_| Cause::Idle)
        }
    }

    /// Checks that the process can be evicted now. For the operator and for a process that waits itself it is never too
    /// early.
    pub fn check(&self, process: &ManagedProcess, cause: Cause, now: u64) -> Result<(), NotNow> {
        let eviction = &process.eviction;
        if now < eviction.retry_ns.load(Relaxed) {
            return Err(NotNow::Resting);
        }
        let hurries = cause == Cause::Operator || self.waits && cause != Cause::Idle;
        let stays_until = eviction.stays_until(cause, self.stay_ns);
        if !hurries && now < stays_until {
            return Err(NotNow::Until(Why::TooSoon, stays_until));
        }
        eligible::check(process).map_err(NotNow::Refused)?;
        if hurries {
            return Ok(());
        }
        match self.is_idle(process, now) {
            Err(NotNow::Until(_, look) | NotNow::Unknown(look)) if cause == Cause::Turn => {
                let turn_ends = self.turn_ends(eviction);
                match now < turn_ends {
                    true => Err(NotNow::Until(Why::TooSoon, turn_ends.min(look))),
                    false => Ok(()),
                }
            }
            idle => idle,
        }
    }

    /// Checks that nothing was requested for some time and that all work is done.
    fn is_idle(&self, process: &ManagedProcess, now: u64) -> Result<(), NotNow> {
        let eviction = &process.eviction;
        let idle_at = eviction.usage.idle_at(self.idle_ns);
        if now < idle_at && !self.paused {
            return Err(NotNow::Until(Why::Wanted, idle_at));
        }
        let [shortest, longest] = LOOKS;
        let again = eviction.requested_for(now) / RARER;
        let again = now.saturating_add(again.clamp(shortest, longest));
        match ask(process, || work::is_done(process)) {
            Some(Some(true)) => Ok(()),
            // A process that says at once that it is busy has another one evicted in its place.
            Some(None) => Err(NotNow::Unknown(now.saturating_add(shortest))),
            Some(Some(false)) | None => Err(NotNow::Until(Why::Busy, again)),
        }
    }

    /// Returns the end of the process's turn, in nanoseconds.
    fn turn_ends(&self, eviction: &EvictionState) -> u64 {
        let began = eviction.back_ns.load(Relaxed);
        self.turn.map_or(0, |turn| began.saturating_add(turn))
    }
}

/// Shows that the process leaves. Returns false if that has become needless, because enough others leave by now: of two processes that
/// begin at the same time at least one sees the other.
pub(super) fn announce(process: &ManagedProcess, cause: Cause, now: u64) -> bool {
    let registration = process.registration;
    registration.publish_phase(&Moved {
        phase: Phase::Evicting,
        ..Moved::default()
    });
    // ORDER: SeqCst, between our phase and those of others; pairs with itself.
    fence(SeqCst);
    let is_asked = matches!(cause, Cause::Asked | Cause::Turn);
    let is_needless = is_asked && !is_lacking(process, now);
    if is_needless {
        registration.publish_reason(None, 0);
    }
    !is_needless
}

/// Returns the time of the next look of a process that began to leave together with others.
pub(super) fn look_again(process: &ManagedProcess, now: u64) -> u64 {
    let turn = u64::from(process.registration.slot().index) % 16;
    now.saturating_add(LOOKS[0] + turn * ASIDE)
}

/// Returns true if a process lacks room on one of the devices that this process's memory could give it. Any process of the
/// installation can ask. A request counts only if the operator has overcommitted the device and memory is lacking there.
pub(super) fn is_lacking(process: &ManagedProcess, now: u64) -> bool {
    let ignores_evictions = process.eviction.is_sole_hope(now);
    process.devices.iter().any(|device| {
        let ledger = &device.ledger;
        ledger.overcommits() && ledger.is_room_lacking(ignores_evictions, now)
    })
}

/// Returns the delay after a refusal for which no call was suspended, in nanoseconds.
pub(super) fn pause_after(why: Why) -> u64 {
    match why {
        Why::Capturing => LOOKS[1],
        Why::HostMemory | Why::Locked | Why::NoThread => SECOND,
        _ => OFTEN,
    }
}

/// Returns the delay after an attempt that has failed and for which calls were suspended, in nanoseconds. What ends by
/// itself is looked at again soon, but a process is suspended for nothing for a small part of its time at most.
pub(super) fn pause_after_attempt(cause: Cause, why: Why, suspended_ns: u64) -> u64 {
    match cause {
        Cause::Operator => OFTEN,
        _ if !why.may_pass() => REST,
        _ => suspended_ns
            .saturating_mul(SPARED)
            .clamp(pause_after(why), REST),
    }
}
