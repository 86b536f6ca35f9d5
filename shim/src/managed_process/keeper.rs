//! The keeper: a thread of each process that does the timed work, so that launching threads need not.
//!
//! It shows that the process lives (heartbeat, robust mark), ends slices and idle holds, applies the operator's edits
//! and acknowledges them, adds the threads' tallies to the slot, and releases what dead processes held. It sleeps on
//! the control bell, its own doorbell, the bell of requests for its memory and, while a lock is held, on the bell that waiters ring. It takes no signals,
//! and no other thread of the process waits for it.
#![allow(
    unsafe_code,
    reason = "starts the thread past the guest's signal masks"
)]

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering::*},
    time::Duration,
};

use shm_layout::{Counters, PolicyKind, Reason, clock, control_bell, reap};

use crate::{
    card_slices::CardSlices,
    eviction,
    managed_process::{self, Device, ManagedProcess, detach},
    notice::{self, Cause},
    sys::{
        futex::{self, Watch},
        own_thread, thread_start,
    },
    thread::{self, Tally},
    turn::state::Rules,
};

const BEAT: u64 = 100_000_000;
const REAP: u64 = 1_000_000_000;
/// Time after a request for the memory before the next one wakes the keeper, in nanoseconds: any process can ring.
const EAR: u64 = 2_000_000;
/// Shortest time between two looks at an eviction, in nanoseconds.
const SOONEST: u64 = 200_000;
/// Slice of a process that has a cap and no policy, in nanoseconds.
const CAP_SLICE: u64 = 10_000_000;

/// Starts the keeper of this process.
pub fn start(process: &'static ManagedProcess) -> bool {
    thread_start::start(process, body)
}

extern "C" fn body(process: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a managed process, which is never freed.
    let process: &'static ManagedProcess = unsafe { &*process.cast::<ManagedProcess>() };
    let _unwatched = own_thread::begin(c"gpushare");
    // SAFETY: the argument is a number; it makes sleeps as short as requested.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if catch_unwind(AssertUnwindSafe(|| keep(process))).is_err() {
        managed_process::fault();
        // Without a keeper no hold would end, so nothing is locked from here on.
        process.leaving.store(true, Relaxed);
    }
    // ORDER: Release pairs with the Acquire in `at_exit`; the locks are released.
    process.keeper_gone.store(1, Release);
    futex::wake_private(&process.keeper_gone);
    std::ptr::null_mut()
}

fn keep(process: &'static ManagedProcess) {
    // The keeper's own driver calls are no submissions.
    let _inside = thread::Inside::enter_as_ours();
    let mark = process.registration.attach_keeper();
    if let Err(error) = &mark {
        notice::once(
            Cause::Keeper,
            format_args!(
                "cannot register for robust lists ({error}); if this process dies, others notice it later"
            ),
        );
    }
    let bell = control_bell(process.registration.segments());
    let evict_bell = process.registration.evict_bell();
    let mut tasks = Tasks::begin(evict_bell.load(Relaxed));
    let mut slices = CardSlices::default();
    while !process.is_leaving() {
        // ORDER: Acquire keeps all checks below after these loads, so that a ring after a check ends the sleep.
        let rung = process.doorbell.load(Acquire);
        let edited = bell.load(Acquire);
        let asked = evict_bell.load(Acquire);
        if !process.registration.is_ours() {
            detach::continue_unmanaged(process);
            break;
        }
        let generation = follow_settings(process);
        let now = clock::now();
        tasks.do_due(process, asked, now);
        let mut watches = vec![
            Watch {
                word: &process.doorbell,
                seen: rung,
                private: true,
            },
            Watch {
                word: bell,
                seen: edited,
                private: false,
            },
        ];
        if now >= tasks.listens_at {
            watches.push(Watch {
                word: evict_bell,
                seen: asked,
                private: false,
            });
        }
        let mut sleep = Duration::from_nanos(tasks.wake_at(now).saturating_sub(now));
        for device in &process.devices {
            // Not while the process is evicted: it holds no turn, and the driver would not return.
            let next = eviction::ask(process, || device.turn.poll(process, device, now));
            let Some(next) = next.flatten() else {
                continue;
            };
            sleep = sleep.min(next.again);
            watches.extend(next.bell.map(|(word, seen)| Watch {
                word,
                seen,
                private: false,
            }));
        }
        // Not while the process is evicted: its channels are gone, and are made anew when it is restored.
        eviction::ask(process, || slices.follow(process));
        // After the polls, so that a turn that an edit ends is over.
        acknowledge(process, generation);
        if let Some(ends) = process.registration.next_deadline() {
            sleep = sleep.min(Duration::from_nanos(ends.saturating_sub(now)));
        }
        futex::wait_any(&watches, sleep);
    }
    eviction::ask(process, || slices.give_back());
    for device in &process.devices {
        give_up(process, device);
        device.turn.leave(device);
    }
    process.tracer.end(process);
    fold(process, clock::now());
    drop(mark);
}

/// The keeper's tasks that do not belong to a turn, with the time of each.
struct Tasks {
    beat_at: u64,
    reap_at: u64,
    /// The time of the next look at an eviction.
    evict_at: u64,
    /// The value of the bell of requests for the memory, when it was last obeyed.
    heard: u32,
    /// The time from which that bell wakes the keeper.
    listens_at: u64,
}

impl Tasks {
    fn begin(heard: u32) -> Self {
        Self {
            beat_at: 0,
            reap_at: clock::now().saturating_add(REAP),
            evict_at: 0,
            heard,
            listens_at: 0,
        }
    }

    /// Does what is due. `asked` is the value of the bell of requests for the memory.
    fn do_due(&mut self, process: &'static ManagedProcess, asked: u32, now: u64) {
        if now >= self.beat_at {
            fold(process, now);
            process.registration.heartbeat(now);
            process.devices.iter().for_each(reserve);
            process.memory.allocations.grow_if_wanted();
            process.tracer.tick(process, now);
            eviction::beat(process);
            self.beat_at = now + BEAT;
            self.evict_at = now;
        }
        if asked != self.heard && now >= self.listens_at {
            (self.heard, self.listens_at, self.evict_at) = (asked, now + EAR, now);
        }
        if now >= self.evict_at {
            let look = eviction::poll(process, now);
            self.evict_at = look.unwrap_or(u64::MAX).max(now + SOONEST);
        }
        if now >= self.reap_at {
            reap(process.registration.segments(), now);
            self.reap_at = now + REAP;
        }
    }

    /// Returns the time of the next task.
    fn wake_at(&self, now: u64) -> u64 {
        let at = self.beat_at.min(self.evict_at);
        match now >= self.listens_at {
            true => at,
            false => at.min(self.listens_at),
        }
    }
}

/// Hands the turn over at the end of the process. An evictor at work gives up at once.
fn give_up(process: &ManagedProcess, device: &Device) {
    let release = || device.turn.release(process, device, Reason::Exit);
    for _ in 0..100 {
        if eviction::ask(process, release).is_some() || !device.turn.is_held() {
            return;
        }
        futex::nap(Duration::from_millis(1));
    }
}

/// Applies the operator's edits, and acknowledges them.
pub fn apply_settings(process: &ManagedProcess) {
    let generation = follow_settings(process);
    acknowledge(process, generation);
}

/// Applies the operator's edits, and returns their generation. It does not call the driver, so that an evicted
/// process applies them too. Turns that must end are ended at the next poll.
fn follow_settings(process: &ManagedProcess) -> u64 {
    let generation = process.registration.control_generation();
    for device in &process.devices {
        device.turn.follow(process, device, rules(process, device));
        device
            .sees_alone
            .store(sees_alone(process, device), Relaxed);
    }
    let mut devices = process.devices.iter();
    thread::set_repeats_launches(devices.any(|device| waits_for_memory(process, device)));
    process.tracer.follow(process);
    generation
}

/// Returns true if a call of the process may wait for memory of the device.
fn waits_for_memory(process: &ManagedProcess, device: &Device) -> bool {
    process.registration.on_full().waits() || device.ledger.overcommits()
}

/// Gets the memory reserved that the settings say, as soon as the device has room for it.
pub fn reserve(device: &Device) {
    if let Err(denial) = device.ledger.follow_reserve() {
        notice::once(
            Cause::Reserve,
            format_args!(
                "cannot reserve {} bytes of GPU {} yet: others hold or have reserved {} of {}; the program runs on without, and tries \
                 again; gpushare ps shows what is reserved",
                denial.asked, device.ordinal, denial.used, denial.quota
            ),
        );
    }
}

/// Returns true if other processes make room for an allocation of this one, or have memory reserved, so that what they hold says
/// nothing about the memory that it can get.
fn sees_alone(process: &ManagedProcess, device: &Device) -> bool {
    process.environment.swappable
        || waits_for_memory(process, device)
        || device.ledger.has_reserves()
}

fn acknowledge(process: &ManagedProcess, generation: u64) {
    if process.applied.swap(generation, Relaxed) != generation {
        process.registration.acknowledge(generation);
    }
}

fn rules(process: &ManagedProcess, device: &Device) -> Rules {
    let (mut policy, _) = process.registration.policy(device.entry);
    if matches!(policy.kind, PolicyKind::HwTimeslice(_)) {
        // The card divides its time (`card_slices`).
        policy.kind = PolicyKind::Off;
    }
    let share = process.registration.share();
    if share.cap.is_some() && policy.kind == PolicyKind::Off {
        policy.kind = PolicyKind::Timeslice(CAP_SLICE);
    }
    Rules {
        policy,
        paused: share.paused,
    }
}

/// Adds the threads' tallies to the slot. Only the keeper writes these counters.
pub fn fold(process: &ManagedProcess, now: u64) {
    for device in &process.devices {
        let counters = process.registration.count(device.entry);
        let before = submissions(counters);
        let sum = |which: fn(&Tally) -> &AtomicU64| -> u64 {
            thread::all().fold(0, |sum, thread| {
                sum.wrapping_add(which(thread.tally(device.ordinal)).load(Relaxed))
            })
        };
        let put = |word: &AtomicU64, value: u64| word.store(value, Relaxed);
        put(&counters.launches, thread::launches(device.ordinal));
        put(&counters.graphs, sum(|tally| &tally.graphs));
        put(&counters.copies, sum(|tally| &tally.copies));
        put(&counters.copy_bytes, sum(|tally| &tally.copy_bytes));
        put(&counters.memsets, sum(|tally| &tally.memsets));
        put(&counters.syncs, sum(|tally| &tally.syncs));
        put(&counters.captured, sum(|tally| &tally.captured));
        put(&counters.gate_misses, sum(|tally| &tally.gate_misses));
        put(&counters.allocations, sum(|tally| &tally.allocations));
        put(&counters.frees, sum(|tally| &tally.frees));
        if submissions(counters) != before {
            put(&counters.last_submit_ns, now);
        }
    }
}

/// Returns the number of submissions. It wraps, because another process may have written any value there.
fn submissions(counters: &Counters) -> u64 {
    [
        &counters.launches,
        &counters.graphs,
        &counters.copies,
        &counters.memsets,
    ]
    .into_iter()
    .fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
}
