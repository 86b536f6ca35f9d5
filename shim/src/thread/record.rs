//! The record of a thread, and the steps of a submission on it.
//!
//! It contains the thread's tracing state. Only that thread writes it; the thread that removes a trace reads the
//! mark.
//!
//! A record's generation shows whether it was made before or after the process attached. Records from before may
//! belong to a parent's threads, which are not in this process, and are not used any more. Each thread of this
//! process gets a new one at its next hook.
#![allow(unsafe_code, reason = "reaches the gate and the tally by address")]

use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, *},
            compiler_fence,
        },
    },
};

use shm_layout::DEVICES_PER_PROCESS;

use crate::{
    driver,
    gate::{self, Gate, OUTSIDE, SUBMITTING},
    sys::{
        caller_state::{Errno, ErrnoPlace},
        signals,
    },
    thread::{Tally, add},
    trace::quiescence::{self, Mark},
};

/// Value of `inside` for a thread in a hook that submits nothing.
pub(super) const ELSEWHERE: u32 = u32::MAX;
/// Value of `inside` for a thread in a query.
pub const ASKING: u32 = u32::MAX - 1;
/// Least distance on the stack between a call and one within it, in bytes. Two calls of one function of the application's are
/// closer, as far as the frames of the two hooks differ by less in size (not in a debug build).
const NEAR: usize = 128;
/// Number of streams that the launch path remembers.
pub(super) const RECENT: usize = 8;

/// A stream that was submitted to, in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The stream, or 1 and 2 for the default streams ([`stream_key`]).
    pub stream: usize,
    /// The stream's context.
    pub context: usize,
    /// The ordinal of the context's device.
    pub ordinal: u8,
}

/// The ordinal of a stream that no drain queries.
pub const UNMANAGED: u8 = u8::MAX;

/// The record of a thread.
#[repr(C, align(64))]
pub struct Thread {
    pub(super) gate: AtomicPtr<Gate>,
    pub(super) inside: AtomicU32,
    pub(super) bound_device: AtomicU32,
    /// The stream last submitted to, as callers of the plain and of the per-thread form name it.
    pub(super) last: [AtomicUsize; 2],
    /// The tally of the device to which the thread is bound.
    pub(super) tally: AtomicPtr<Tally>,
    /// The caller's return address and register during a call of `face::fast`.
    pub(super) return_address: Cell<usize>,
    pub(super) saved_register: Cell<usize>,
    /// The place on the stack of the thread's call, the last one that was not within another.
    pub(super) entered: AtomicUsize,
    /// Kernels that `fast` launched on the device to which the thread is bound; they are in no tally yet.
    pub(super) launched: AtomicU64,
    pub(super) recent: [AtomicUsize; RECENT],
    /// Submissions that the thread may still make without a check, and their stream.
    pub(super) allotted: Cell<u32>,
    pub(super) allotted_key: Cell<usize>,
    pub(super) allotted_ordinal: Cell<u8>,
    pub(super) context: Cell<usize>,
    /// The context if the thread is bound to its own and not to another stream's; else 0.
    pub(super) home_context: Cell<usize>,
    /// The place of the thread's `errno`, which libc would be asked for at every call.
    pub(super) errno: Cell<ErrnoPlace>,
    pub(super) streams: Mutex<Vec<Used>>,
    /// Number of requests that are no submissions.
    pub(super) requests: AtomicU64,
    /// The thread was first seen during a suspension.
    pub(super) first_seen_suspended: AtomicBool,
    /// The thread is one of the shim's.
    pub(super) ours: AtomicBool,
    /// The thread is one of the shim's, and the driver returns to it.
    pub(super) answered: AtomicBool,
    /// The driver started the thread.
    pub(super) drivers: AtomicBool,
    /// The kernel's ID of the thread.
    pub(super) tid: AtomicU32,
    /// The thread waits for the process's own quota, or behind a thread that does.
    pub(super) waits_for_quota: AtomicBool,
    /// The thread's tracing state.
    pub tracing: Tracing,
    pub(super) in_use: AtomicBool,
    /// The generation in which the record was made.
    pub(super) generation: u32,
    pub(super) next: AtomicPtr<Thread>,
    pub(super) tallies: [Tally; DEVICES_PER_PROCESS],
}

/// The offsets of fields for the assembly of `face::fast`.
#[allow(missing_docs, reason = "named after the fields")]
pub mod offset {
    use std::mem::offset_of;

    use super::Thread;

    pub const GATE: usize = offset_of!(Thread, gate);
    pub const INSIDE: usize = offset_of!(Thread, inside);
    pub const LAST: usize = offset_of!(Thread, last);
    pub const RETURN_ADDRESS: usize = offset_of!(Thread, return_address);
    pub const ENTERED: usize = offset_of!(Thread, entered);
    pub const SAVED_REGISTER: usize = offset_of!(Thread, saved_register);
    pub const LAUNCHED: usize = offset_of!(Thread, launched);
    pub const REQUESTS: usize = offset_of!(Thread, requests);
}

/// Set in `bound_device` while a thread submits to several devices; the other bits are those that admitted it.
const TOGETHER: u32 = 1 << 31;

fn bit_of(ordinal: u8) -> u32 {
    1 << (usize::from(ordinal) % DEVICES_PER_PROCESS)
}

/// The value of `last` for an unknown stream.
pub(super) const NO_STREAM: usize = usize::MAX;

/// Returns the key of a stream: its handle, or 1 for the legacy and 2 for the thread's default stream.
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
    /// Returns true if the record was made since the process attached.
    #[inline(always)]
    pub(super) fn is_current(&self) -> bool {
        self.generation == now()
    }

    /// Notes the place of a call on the stack, which must be before the thread is marked as inside. Returns false for a call
    /// within another.
    #[inline(always)]
    pub fn comes_from(&self, place: usize) -> bool {
        if self.inside.load(Relaxed) != OUTSIDE && !self.has_left_its_call(place) {
            return false;
        }
        self.note_place(place);
        true
    }

    #[inline(always)]
    fn note_place(&self, place: usize) {
        self.entered.store(place, Relaxed);
        // A signal handler that finds the thread inside finds this place.
        compiler_fence(Release);
    }

    /// Returns true, and marks the thread as outside, if the application has left the call that the thread is in by a `longjmp`:
    /// a call within that one would be further down the stack. A signal handler may run on a stack of its own.
    #[cold]
    #[inline(never)]
    fn has_left_its_call(&self, place: usize) -> bool {
        let is_within = place.saturating_add(NEAR) <= self.entered.load(Relaxed);
        if is_within || signals::on_own_stack() {
            return false;
        }
        self.set_waits_for_quota(false);
        self.tracing.begins();
        self.leave_all();
        self.invalidate();
        gate::step_out(&self.inside);
        true
    }

    /// Begins a submission on the fast path: not nested, gate open, stream known. Returns false otherwise.
    #[inline(always)]
    pub fn begin(&self, key: usize, place: usize) -> bool {
        if self.inside.load(Relaxed) != OUTSIDE {
            return false;
        }
        self.note_place(place);
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

    /// Begins a submission to a known stream if the gate admits it, traced or not.
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

    /// Begins one of the submissions that were allotted to the thread: not nested, gate metered, the same stream. Returns
    /// false otherwise.
    #[inline(always)]
    pub fn begin_allotted(&self, key: usize, place: usize) -> bool {
        let left = self.allotted.get();
        if left == 0 || self.inside.load(Relaxed) != OUTSIDE {
            return false;
        }
        self.note_place(place);
        gate::step_in(&self.inside);
        // SAFETY: as in `begin`.
        let gate = unsafe { &*self.gate.load(Relaxed) };
        // A stream that began to capture, or is destroyed, is no recent one.
        let is_same =
            self.allotted_key.get() == key && self.recent[recent_index(key)].load(Relaxed) == key;
        if gate.is_metered() && is_same {
            self.allotted.set(left - 1);
            return true;
        }
        gate::step_back(&self.inside);
        false
    }

    /// Allots submissions to a stream to the calling thread, in place of those allotted before.
    pub fn allot(&self, used: Used, count: u32) {
        self.allotted_key.set(used.stream);
        self.allotted_ordinal.set(used.ordinal);
        self.allotted.set(count);
    }

    /// Takes the rest of the calling thread's allotment back. Returns its device, its stream and the number of submissions, if there
    /// are any.
    pub fn take_allotment(&self) -> Option<(u8, usize, u32)> {
        let count = self.allotted.replace(0);
        (count != 0).then(|| (self.allotted_ordinal.get(), self.allotted_key.get(), count))
    }

    /// Begins a submission that was admitted past the closed gate; the caller has locked the turn.
    pub fn begin_admitted(&self, ordinal: u8) {
        let here = self.bound_device.load(Relaxed);
        if here & TOGETHER != 0 {
            self.bound_device.store(here | bit_of(ordinal), Relaxed);
        }
        gate::admitted(&self.inside);
    }

    /// Returns true if the thread is submitting to this device.
    pub fn is_inside(&self, ordinal: u8) -> bool {
        gate::is_inside(&self.inside, &self.bound_device, u32::from(ordinal) + 1)
            || self.is_inside_together(ordinal)
    }

    /// Returns true if the thread is submitting to several devices and was admitted to this one. Admission happens
    /// under the turn's lock, which the caller has held since. The set may grow at the same time, but loses nothing
    /// before the thread is outside.
    fn is_inside_together(&self, ordinal: u8) -> bool {
        // ORDER: Acquire pairs with the Release store in `gate::step_out`, so that the call's effects are visible.
        if self.inside.load(Acquire) != SUBMITTING {
            return false;
        }
        let here = self.bound_device.load(Relaxed);
        here & TOGETHER != 0 && here & bit_of(ordinal) != 0
    }

    /// Unbinds the thread from its device before it is admitted to several devices one after the other.
    pub fn unbind(&self) {
        let before = self.bound_device.load(Relaxed);
        if before & TOGETHER == 0 && before != 0 {
            let launched = self.launched.swap(0, Relaxed);
            add(&self.tally(before.wrapping_sub(1) as u8).launches, launched);
        }
        self.invalidate();
        self.bound_device.store(TOGETHER, Relaxed);
    }

    /// Leaves all devices that the thread was admitted to together. The thread is still inside its call; the next
    /// submission queries its device again.
    pub fn leave_all(&self) {
        if self.bound_device.load(Relaxed) & TOGETHER != 0 {
            // ORDER: Release pairs with the Acquire in `is_inside_together`; the call has been made.
            self.inside.store(ELSEWHERE, Release);
            self.bound_device.store(0, Relaxed);
        }
    }

    /// Returns true if the thread is in a hook.
    pub fn is_in_a_hook(&self) -> bool {
        self.inside.load(Relaxed) != OUTSIDE
    }

    /// Returns true if the thread is in the driver, or about to be, so that a suspension must wait for it.
    pub fn is_inside_anything(&self) -> bool {
        // ORDER: Acquire pairs with the Release in `Inside`'s drop and in `step_out`; the call has been made.
        self.in_use.load(Relaxed) && self.inside.load(Acquire) != OUTSIDE
    }

    /// Returns true if a thread uses the record now.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// Returns the kernel's ID of the thread.
    pub fn tid(&self) -> u32 {
        self.tid.load(Relaxed)
    }

    /// Returns true if the thread waits for memory that only this process can free, or for its turn to wait.
    pub fn waits_for_quota(&self) -> bool {
        self.waits_for_quota.load(Relaxed)
    }

    /// Records whether the thread waits for such memory.
    pub fn set_waits_for_quota(&self, it_does: bool) {
        self.waits_for_quota.store(it_does, Relaxed);
    }

    /// Keeps the calling thread's `errno`. The record is the calling thread's.
    #[inline(always)]
    pub fn keep_errno(&self) -> Errno {
        self.errno.get().keep()
    }

    /// Counts a request that submits nothing.
    #[inline(always)]
    pub fn count_request(&self) {
        add(&self.requests, 1);
    }

    /// Returns the number of requests, including fast launches: all driver calls except queries. It grows whenever the
    /// application uses its device.
    pub fn requests(&self) -> u64 {
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
            .chain([&self.requests])
            .fold(launched, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    /// Records that the suspension has ended, so that the thread counts as the application's.
    pub fn mark_known(&self) {
        self.first_seen_suspended.store(false, Relaxed);
    }

    /// Returns true if the driver started the thread, so that its calls belong to the driver.
    pub fn is_the_drivers(&self) -> bool {
        self.drivers.load(Relaxed)
    }

    /// Returns true if the thread is one of the shim's, which may call the driver during a suspension.
    pub fn is_ours(&self) -> bool {
        self.ours.load(Relaxed)
    }

    /// Records whether the driver returns to this thread of the shim: it is the evictor, or holds `asking`. Returns
    /// the previous value.
    pub fn set_answered(&self, answered: bool) -> bool {
        self.answered.swap(answered, Relaxed)
    }

    /// Returns true if the record shows that the driver returns to the thread: it is inside a call, or one of the
    /// shim's that may call.
    #[cfg(debug_assertions)]
    pub fn is_answered(&self) -> bool {
        if self.is_ours() {
            self.answered.load(Relaxed)
        } else {
            self.is_in_a_hook()
        }
    }

    /// Marks the thread as inside a query.
    pub fn mark_asking(&self) {
        self.inside.store(ASKING, Relaxed);
    }

    /// Returns true if the thread is inside a query.
    pub fn is_asking(&self) -> bool {
        self.inside.load(Relaxed) == ASKING
    }

    /// Marks the thread as inside, past a suspension and in no gate.
    pub fn pass_suspension(&self) {
        self.inside.store(ELSEWHERE, Relaxed);
    }

    /// Marks the thread as inside, in no gate. Returns false and marks it as outside if calls are suspended.
    pub fn enter_ungated(&self) -> bool {
        self.inside.store(ELSEWHERE, Relaxed);
        if !super::is_suspended() {
            return true;
        }
        gate::step_back(&self.inside);
        false
    }

    /// Returns the thread's tally of a device.
    #[inline(always)]
    pub fn tally(&self, ordinal: u8) -> &Tally {
        &self.tallies[usize::from(ordinal) % DEVICES_PER_PROCESS]
    }

    /// Returns the thread's tally of the device to which it is bound.
    #[inline(always)]
    pub fn current_tally(&self) -> &Tally {
        // SAFETY: points to one of this record's own tallies, and records are never freed.
        unsafe { &*self.tally.load(Relaxed) }
    }

    /// Returns the kernels that the thread launched on a device. While it moves to another device some may be
    /// missing.
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

    /// Returns a number that identifies the thread.
    pub fn number(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Returns the context in which the thread was last seen.
    pub fn context(&self) -> usize {
        self.context.get()
    }

    /// Binds the thread to a device until its context may have changed.
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
        // A record of an earlier generation never gets an open gate, because no keeper would wait for it.
        let gate = if self.is_current() {
            gate
        } else {
            super::always_closed()
        };
        self.gate
            .store(std::ptr::from_ref(gate).cast_mut(), Relaxed);
    }

    /// Binds the thread to a stream of another context than its current one. Unlike [`bind`](Self::bind), this does
    /// not count as its own context.
    pub fn bind_for_stream(&self, gate: &'static Gate, ordinal: u8, context: usize) {
        self.bind(gate, ordinal, context);
        self.home_context.set(0);
    }

    /// Returns the context to which the thread is bound, and its device; `None` once its context may have changed.
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

    /// Unbinds the thread because its context may have changed; the next submission queries the driver.
    pub fn invalidate(&self) {
        self.home_context.set(0);
        self.invalidate_from_outside();
    }

    /// Closes the thread's gate, which is the part that another thread may do. The next submission takes the slow
    /// path.
    pub(super) fn invalidate_from_outside(&self) {
        self.gate.store(
            std::ptr::from_ref(super::always_closed()).cast_mut(),
            Relaxed,
        );
    }

    /// Remembers a stream that was submitted to and may be used again at once.
    pub fn remember(&self, used: Used) {
        let _streams = self.note_used(used);
        self.recent[recent_index(used.stream)].store(used.stream, Relaxed);
        self.note_last(used.stream);
    }

    /// Adds a stream that was submitted to.
    pub fn note_used(&self, used: Used) -> MutexGuard<'_, Vec<Used>> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if used.ordinal != UNMANAGED && !streams.contains(&used) {
            streams.push(used);
        }
        streams
    }

    /// Stores the stream of a [`stream_key`] as callers of either form name it. The assembly that reads it relies on
    /// a known address of its function.
    #[inline(always)]
    fn note_last(&self, key: usize) {
        let [legacy, per_thread] = driver::may_launch_in_place();
        if legacy {
            self.last[0].store(if key == 1 { 0 } else { key }, Relaxed);
        }
        if per_thread {
            self.last[1].store(if key == 2 { 0 } else { key }, Relaxed);
        }
    }

    /// Has the thread's next launch keep its arguments. If it notes its stream at the same moment, that takes effect when
    /// this is called again.
    pub(super) fn forget_last(&self) {
        for last in &self.last {
            if last.load(Relaxed) != NO_STREAM {
                last.store(NO_STREAM, Relaxed);
            }
        }
    }

    /// Removes the streams that `which` chooses from the record, and adds them to `into`.
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
        self.forget_last();
    }
}

// SAFETY: only the thread that uses the record touches its plain cells, and `in_use` passes them from one thread to
// the next.
unsafe impl Sync for Thread {}

/// The tracing state of a thread.
#[derive(Default)]
pub struct Tracing {
    /// The mark that shows whether the thread writes.
    pub mark: Mark,
    /// Time for which the thread waited for locks within its current call, in nanoseconds.
    pub waited_ns: Cell<u64>,
}

impl Tracing {
    /// Resets the state for another thread that uses the record.
    pub fn begins(&self) {
        self.waited_ns.set(0);
        quiescence::leave(&self.mark);
    }
}

static NOW: AtomicU32 = AtomicU32::new(0);

/// Returns the generation of records that are made now.
#[inline(always)]
pub fn now() -> u32 {
    NOW.load(Relaxed)
}

/// Begins a new generation. The process is published afterwards, so a thread that sees the process sees the
/// generation.
pub fn begin() {
    NOW.fetch_add(1, Relaxed);
}
