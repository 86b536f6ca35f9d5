//! The record itself, and the steps of a submission on it.
//!
//! What a thread keeps for a trace. Only that thread writes; the thread that takes a trace down reads the mark.
//!
//! When a record was made: before or after the process arrived.
//!
//! Records made before may be of a parent's threads, which are not in this process, and nothing of ours looks at them any
//! more. Each thread that is here takes a new one at its next hook.
#![allow(unsafe_code, reason = "reaches the gate and the tally by address")]

use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, *},
        },
    },
};

use shm_layout::DEVICES_PER_PROCESS;

use crate::{
    driver::{self, Symbol},
    gate::{self, Gate, OUTSIDE, SUBMITTING},
    thread::{Tally, add},
    trace::quiescence::{self, Mark},
};

/// A thread is in a hook that submits nothing.
pub(super) const ELSEWHERE: u32 = u32::MAX;
/// Streams remembered by the launch path.
pub(super) const RECENT: usize = 8;

/// A stream that was submitted to, in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The stream, or 1 and 2 for the default streams ([`stream_key`]).
    pub stream: usize,
    /// Its context.
    pub context: usize,
    /// The context's device.
    pub ordinal: u8,
}

/// The ordinal of a stream that no drain asks about.
pub const UNMANAGED: u8 = u8::MAX;

/// One thread's record.
#[repr(C, align(64))]
pub struct Thread {
    pub(super) gate: AtomicPtr<Gate>,
    pub(super) inside: AtomicU32,
    pub(super) bound_device: AtomicU32,
    /// The stream last submitted to, as a caller of the plain and of the per-thread form names it.
    pub(super) last: [AtomicUsize; 2],
    /// What the thread does on the device it is settled on.
    pub(super) tally: AtomicPtr<Tally>,
    /// Where `face::fast` keeps its caller's return address and register meanwhile.
    pub(super) return_address: Cell<usize>,
    pub(super) saved_register: Cell<usize>,
    /// Kernels that `fast` launched on the device the thread is settled on; they are in no tally yet.
    pub(super) launched: AtomicU64,
    pub(super) recent: [AtomicUsize; RECENT],
    pub(super) context: Cell<usize>,
    /// Its context while it is settled on that and not on another stream's; else 0.
    pub(super) home_context: Cell<usize>,
    pub(super) streams: Mutex<Vec<Used>>,
    /// Calls of the driver but submissions.
    pub(super) calls: AtomicU64,
    /// It was first seen while the door was closed.
    pub(super) first_seen_suspended: AtomicBool,
    /// It is a thread of ours.
    pub(super) ours: AtomicBool,
    /// It is one of ours, and the driver answers it.
    pub(super) answered: AtomicBool,
    /// It is one that the driver started.
    pub(super) drivers: AtomicBool,
    /// Its number, as the kernel has it.
    pub(super) tid: AtomicU32,
    /// It waits for the process's own quota.
    pub(super) waits_for_quota: AtomicBool,
    /// What the thread keeps for a trace.
    pub tracing: Tracing,
    pub(super) in_use: AtomicBool,
    /// When it was made.
    pub(super) generation: u32,
    pub(super) next: AtomicPtr<Thread>,
    pub(super) tallies: [Tally; DEVICES_PER_PROCESS],
}

/// Where the assembly of `face::fast` finds the fields.
#[allow(missing_docs, reason = "named after the fields")]
pub mod offset {
    use std::mem::offset_of;

    use super::Thread;

    pub const GATE: usize = offset_of!(Thread, gate);
    pub const INSIDE: usize = offset_of!(Thread, inside);
    pub const LAST: usize = offset_of!(Thread, last);
    pub const RETURN_ADDRESS: usize = offset_of!(Thread, return_address);
    pub const SAVED_REGISTER: usize = offset_of!(Thread, saved_register);
    pub const LAUNCHED: usize = offset_of!(Thread, launched);
    pub const CALLS: usize = offset_of!(Thread, calls);
}

/// Set in `here` while a thread submits to several devices at once; the other bits are those it was admitted to.
const TOGETHER: u32 = 1 << 31;

fn bit_of(ordinal: u8) -> u32 {
    1 << (usize::from(ordinal) % DEVICES_PER_PROCESS)
}

/// No stream: `last` when it is not known.
pub(super) const NO_STREAM: usize = usize::MAX;

/// What a stream is known by here: its handle, or 1 for the legacy and 2 for the thread's default stream.
#[inline(always)]
pub fn stream_key(stream: usize, per_thread: bool) -> usize {
    if stream == 0 {
        1 + per_thread as usize
    } else {
        stream
    }
}

fn recent_index(key: usize) -> usize {
    ((key >> 4) ^ (key >> 9) ^ key) % RECENT
}

impl Thread {
    /// Whether it was made since the process arrived.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        self.generation == now()
    }

    /// Begins a submission if nothing stands in its way: not nested, gate open, stream known. The fast path.
    #[inline(always)]
    pub fn begin(&self, key: usize) -> bool {
        if self.inside.load(Relaxed) != OUTSIDE {
            return false;
        }
        gate::step_in(&self.inside);
        // SAFETY: a record's gate always points to one of the gates, which live as long as the process.
        let gate = unsafe { &*self.gate.load(Relaxed) };
        if gate.is_open() && self.recent[recent_index(key)].load(Relaxed) == key {
            self.note_last(key);
            return true;
        }
        gate::step_back(&self.inside);
        false
    }

    /// Ends a submission.
    #[inline(always)]
    pub fn end(&self) {
        gate::step_out(&self.inside);
    }

    /// Begins a submission if the gate is open, whatever the stream.
    pub fn begin_if_open(&self) -> bool {
        gate::step_in(&self.inside);
        // SAFETY: as in `begin`.
        let gate = unsafe { &*self.gate.load(Relaxed) };
        if gate.is_passable() {
            return true;
        }
        gate::step_back(&self.inside);
        false
    }

    /// Begins a submission to a stream that is known if the gate lets it through, traced or not.
    pub fn begin_known(&self, key: usize) -> bool {
        gate::step_in(&self.inside);
        // SAFETY: as in `begin`.
        let gate = unsafe { &*self.gate.load(Relaxed) };
        if gate.is_passable() && self.recent[recent_index(key)].load(Relaxed) == key {
            self.note_last(key);
            return true;
        }
        gate::step_back(&self.inside);
        false
    }

    /// Begins a submission that was admitted past the closed gate; only under the turn's lock.
    pub fn begin_admitted(&self, ordinal: u8) {
        let here = self.bound_device.load(Relaxed);
        if here & TOGETHER != 0 {
            self.bound_device.store(here | bit_of(ordinal), Relaxed);
        }
        gate::admitted(&self.inside);
    }

    /// Whether the thread is submitting to this device.
    pub fn is_inside(&self, ordinal: u8) -> bool {
        gate::is_inside(&self.inside, &self.bound_device, u32::from(ordinal) + 1)
            || self.is_inside_together(ordinal)
    }

    /// Whether the thread is submitting to several devices and has been admitted to this one: under the turn's lock, which
    /// the asking thread has held since. The set may grow meanwhile, and loses nothing before the thread is outside.
    fn is_inside_together(&self, ordinal: u8) -> bool {
        // ORDER: pairs with the Release store in `gate::step_out`; the call's effects come with it.
        if self.inside.load(Acquire) != SUBMITTING {
            return false;
        }
        let here = self.bound_device.load(Relaxed);
        here & TOGETHER != 0 && here & bit_of(ordinal) != 0
    }

    /// The thread is about to be admitted to several devices one after the other.
    pub fn unbind(&self) {
        let before = self.bound_device.load(Relaxed);
        if before & TOGETHER == 0 && before != 0 {
            let launched = self.launched.swap(0, Relaxed);
            add(&self.tally(before.wrapping_sub(1) as u8).launches, launched);
        }
        self.invalidate();
        self.bound_device.store(TOGETHER, Relaxed);
    }

    /// The thread leaves all the devices it was admitted to together, and is inside its call still; the next submission looks
    /// where it is.
    pub fn leave_all(&self) {
        if self.bound_device.load(Relaxed) & TOGETHER != 0 {
            // ORDER: pairs with the Acquire in `is_inside_together`; the call has been made.
            self.inside.store(ELSEWHERE, Release);
            self.bound_device.store(0, Relaxed);
        }
    }

    /// Whether the thread is in a hook of ours.
    pub fn is_in_a_hook(&self) -> bool {
        self.inside.load(Relaxed) != OUTSIDE
    }

    /// Whether it is in the driver, or about to be, as far as the door is concerned.
    pub fn is_inside_anything(&self) -> bool {
        // ORDER: pairs with the Release in `Inside`'s drop and in `step_out`; the call has been made.
        self.in_use.load(Relaxed) && self.inside.load(Acquire) != OUTSIDE
    }

    /// Whether a thread has the record now.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// The thread's number, as the kernel has it.
    pub fn tid(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// Whether it waits for what only this process can free.
    pub fn waits_for_quota(&self) -> bool {
        self.waits_for_quota.load(Relaxed)
    }

    /// It begins or ends to.
    pub fn set_waits_for_quota(&self, it_does: bool) {
        self.waits_for_quota.store(it_does, Relaxed);
    }

    /// Another call of the driver that submits nothing.
    #[inline(always)]
    pub fn count_call(&self) {
        add(&self.calls, 1);
    }

    /// Calls of the driver, with kernels launched the fast way; grows whenever the application needs its device.
    pub fn calls(&self) -> u64 {
        let launched = self.launched.load(Relaxed);
        let tallies = self.tallies.iter().flat_map(|tally| {
            [
                &tally.launches,
                &tally.graphs,
                &tally.copies,
                &tally.memsets,
            ]
        });
        tallies
            .chain([&self.calls])
            .fold(launched, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    /// The door is open again: it is the application's.
    pub fn mark_known(&self) {
        self.first_seen_suspended.store(false, Relaxed);
    }

    /// Whether the driver started it: what it calls is the driver's own affair.
    pub fn is_the_drivers(&self) -> bool {
        self.drivers.load(Relaxed)
    }

    /// Whether it is a thread of ours, which asks the driver behind the door.
    pub fn is_ours(&self) -> bool {
        self.ours.load(Relaxed)
    }

    /// The driver answers this thread of ours from here on, or no more: it is the evictor, or holds `asking`. Says how it was.
    pub fn set_answered(&self, answered: bool) -> bool {
        self.answered.swap(answered, Relaxed)
    }

    /// Whether the driver answers the thread, as far as the record tells: it is inside a call, or one of ours that may ask.
    #[cfg(debug_assertions)]
    pub fn is_answered(&self) -> bool {
        if self.is_ours() {
            self.answered.load(Relaxed)
        } else {
            self.is_in_a_hook()
        }
    }

    /// It goes to the driver past the closed door, in no gate.
    pub fn pass_suspension(&self) {
        self.inside.store(ELSEWHERE, Relaxed);
    }

    /// It goes to the driver for a named reason, in no gate. Says whether the door is open: else it is outside again.
    pub fn enter_ungated(&self) -> bool {
        self.inside.store(ELSEWHERE, Relaxed);
        if !super::is_suspended() {
            return true;
        }
        gate::step_back(&self.inside);
        false
    }

    /// What the thread did on a device.
    #[inline(always)]
    pub fn tally(&self, ordinal: u8) -> &Tally {
        &self.tallies[usize::from(ordinal) % DEVICES_PER_PROCESS]
    }

    /// What the thread did on the device of its current context.
    #[inline(always)]
    pub fn current_tally(&self) -> &Tally {
        // SAFETY: points to one of this record's own tallies, and records are never freed.
        unsafe { &*self.tally.load(Relaxed) }
    }

    /// Kernels the thread launched on a device. While it moves from one device to another some may be missing.
    pub fn launches(&self, ordinal: u8) -> u64 {
        let bound_here = self.bound_device.load(Relaxed) == u32::from(ordinal) + 1;
        let fast = if bound_here {
            self.launched.load(Relaxed)
        } else {
            0
        };
        self.tally(ordinal)
            .launches
            .load(Relaxed)
            .wrapping_add(fast)
    }

    /// What tells it from the other threads.
    pub fn number(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The context the thread was last seen with.
    pub fn context(&self) -> usize {
        self.context.get()
    }

    /// The thread submits to this device from now on, until it is told otherwise.
    pub fn bind(&self, gate: &'static Gate, ordinal: u8, context: usize) {
        self.home_context.set(context);
        if self.context.replace(context) != context {
            self.forget_recent();
        }
        let before = self.bound_device.swap(u32::from(ordinal) + 1, Relaxed);
        if before != u32::from(ordinal) + 1 {
            let launched = self.launched.swap(0, Relaxed);
            add(&self.tally(before.wrapping_sub(1) as u8).launches, launched);
        }
        self.tally
            .store(std::ptr::from_ref(self.tally(ordinal)).cast_mut(), Relaxed);
        // No keeper would wait for a thread that passed the gate by an old record.
        let gate = if self.is_current() {
            gate
        } else {
            super::always_closed()
        };
        self.gate
            .store(std::ptr::from_ref(gate).cast_mut(), Relaxed);
    }

    /// The thread submits to a stream of another context than its current one: like [`bind`](Self::bind), except
    /// that this is not taken for its own context.
    pub fn bind_for_stream(&self, gate: &'static Gate, ordinal: u8, context: usize) {
        self.bind(gate, ordinal, context);
        self.home_context.set(0);
    }

    /// The context the thread is settled on, and its device; `None` once its context may have changed.
    #[inline(always)]
    pub fn bound(&self) -> Option<(usize, u8)> {
        let context = self.home_context.get();
        (context != 0).then(|| {
            (
                context,
                self.bound_device.load(Relaxed).wrapping_sub(1) as u8,
            )
        })
    }

    /// The thread's context may have changed: the next submission looks again.
    pub fn invalidate(&self) {
        self.home_context.set(0);
        self.invalidate_from_outside();
    }

    /// What another thread may do of that: the next submission does not pass the gate as it stands.
    pub(super) fn invalidate_from_outside(&self) {
        self.gate.store(
            std::ptr::from_ref(super::always_closed()).cast_mut(),
            Relaxed,
        );
    }

    /// Remembers that this stream was submitted to, and may be again at once.
    pub fn remember(&self, used: Used) {
        let _streams = self.note_used(used);
        self.recent[recent_index(used.stream)].store(used.stream, Relaxed);
        self.note_last(used.stream);
    }

    /// Notes that this stream was submitted to.
    pub fn note_used(&self, used: Used) -> MutexGuard<'_, Vec<Used>> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if used.ordinal != UNMANAGED && !streams.contains(&used) {
            streams.push(used);
        }
        streams
    }

    /// The streams of [`stream_key`], as callers of either form name them. The assembly that looks at them
    /// trusts that its function is known.
    #[inline(always)]
    fn note_last(&self, key: usize) {
        if !driver::known(Symbol::cuLaunchKernel).is_null() {
            self.last[0].store(if key == 1 { 0 } else { key }, Relaxed);
        }
        if !driver::known(Symbol::cuLaunchKernel_ptsz).is_null() {
            self.last[1].store(if key == 2 { 0 } else { key }, Relaxed);
        }
    }

    /// Takes the streams that `which` chooses out of the record.
    pub fn take_streams(&self, which: impl Fn(&Used) -> bool, into: &mut Vec<Used>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let before = streams.len();
        streams.retain(|used| {
            let taken = which(used);
            if taken && !into.contains(used) {
                into.push(*used);
            }
            !taken
        });
        if streams.len() != before {
            self.forget_recent();
        }
    }

    pub(super) fn forget_recent(&self) {
        for word in &self.recent {
            word.store(0, Relaxed);
        }
        for last in &self.last {
            last.store(NO_STREAM, Relaxed);
        }
    }
}

// SAFETY: only the thread that uses the record touches its plain cells, and `in_use` hands them from one
// thread to the next.
unsafe impl Sync for Thread {}

/// What a thread keeps for a trace.
#[derive(Default)]
pub struct Tracing {
    /// Whether the thread writes.
    pub mark: Mark,
    /// What it waited for locks within the call it is in.
    pub waited_ns: Cell<u64>,
}

impl Tracing {
    /// Another thread takes the record over.
    pub fn begins(&self) {
        self.waited_ns.set(0);
        quiescence::leave(&self.mark);
    }
}

static NOW: AtomicU32 = AtomicU32::new(0);

/// What a record that is made now is stamped with.
#[inline(always)]
pub fn now() -> u32 {
    NOW.load(Relaxed)
}

/// The process arrives. A thread that sees the process sees this, for the process is published afterwards.
pub fn begin() {
    NOW.fetch_add(1, Relaxed);
}
