//! The keeper: one thread per guest that watches the clock so that launching threads need not.
//!
//! It shows that the process lives (heartbeat, robust mark), ends slices and idle holds, follows the
//! operator's edits and acknowledges them, adds the threads' tallies up into the slot, and gives back what
//! dead processes held. It sleeps on the control bell, its own doorbell and, while a lock is held, on the bell
//! that waiters ring; it takes no signals, and nothing the guest does waits for it.
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
    eviction,
    managed_process::{self, Device, Guest, detach},
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
/// The slice of a process that has a cap and no policy.
const CAP_SLICE: u64 = 10_000_000;

/// Starts the keeper of this guest.
pub fn start(guest: &'static Guest) -> bool {
    own_thread::start(guest, body)
}

extern "C" fn body(guest: *mut c_void) -> *mut c_void {
    thread_start::learn(body, guest);
    // SAFETY: `start` passes a guest, which is never freed.
    let guest: &'static Guest = unsafe { &*guest.cast::<Guest>() };
    let _unwatched = own_thread::begin(c"gpushare");
    // SAFETY: takes a number: naps are as short as they say.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    if catch_unwind(AssertUnwindSafe(|| keep(guest))).is_err() {
        managed_process::fault();
        // Without a keeper nothing would end our holds: everything goes unlocked from here.
        guest.leaving.store(true, Relaxed);
    }
    // ORDER: pairs with the Acquire in `attach::leave`; the locks are given up.
    guest.keeper_gone.store(1, Release);
    futex::wake_private(&guest.keeper_gone);
    std::ptr::null_mut()
}

fn keep(guest: &'static Guest) {
    // The keeper's own driver calls are no submissions.
    let _inside = thread::Inside::enter_as_ours();
    let mark = guest.registration.attach_keeper();
    if let Err(error) = &mark {
        notice::once(
            Cause::Keeper,
            format_args!(
                "cannot register for robust lists ({error}); if this process dies, others notice it later"
            ),
        );
    }
    let bell = control_bell(guest.registration.segments());
    let (mut beat_at, mut reap_at) = (0, clock::now().saturating_add(REAP));
    while !guest.is_leaving() {
        // ORDER: Acquire keeps all looks below behind these two: what is rung for after a look ends the sleep.
        let rung = guest.doorbell.load(Acquire);
        let edited = bell.load(Acquire);
        if !guest.registration.is_ours() {
            detach::step_aside(guest);
            break;
        }
        let generation = follow_settings(guest);
        let now = clock::now();
        if now >= beat_at {
            fold(guest, now);
            guest.registration.heartbeat(now);
            guest.memory.live.grow_if_wanted();
            guest.tracer.tick(guest, now);
            eviction::look(guest, now);
            beat_at = now + BEAT;
        }
        if now >= reap_at {
            reap(guest.registration.segments(), now);
            reap_at = now + REAP;
        }
        let mut watches = vec![
            Watch {
                word: &guest.doorbell,
                seen: rung,
                private: true,
            },
            Watch {
                word: bell,
                seen: edited,
                private: false,
            },
        ];
        let mut sleep = Duration::from_nanos(beat_at.saturating_sub(now));
        for device in &guest.devices {
            // Not while the process is away: it holds no turn, and the driver would not answer.
            let next = eviction::ask(guest, || device.turn.look(guest, device, now));
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
        // Behind the looks: a turn that an edit ends is over.
        acknowledge(guest, generation);
        if let Some(ends) = guest.registration.next_deadline() {
            sleep = sleep.min(Duration::from_nanos(ends.saturating_sub(now)));
        }
        futex::wait_any(&watches, sleep);
    }
    for device in &guest.devices {
        give_up(guest, device);
        device.turn.leave(device);
    }
    guest.tracer.end(guest);
    fold(guest, clock::now());
    drop(mark);
}

/// At the process's end: the turn is handed over. An evictor that is at work just now gives up at once.
fn give_up(guest: &Guest, device: &Device) {
    let give_way = || device.turn.give_way(guest, device, Reason::Exit);
    for _ in 0..100 {
        if eviction::ask(guest, give_way).is_some() || !device.turn.is_held() {
            return;
        }
        futex::nap(Duration::from_millis(1));
    }
}

/// Follows the operator's edits, and says so.
pub fn apply_settings(guest: &Guest) {
    let generation = follow_settings(guest);
    acknowledge(guest, generation);
}

/// Follows the operator's edits up to the generation that it returns. Asks the driver nothing, so that an evicted process follows
/// them too; what is to be given up is given up at the next look.
fn follow_settings(guest: &Guest) -> u64 {
    let generation = guest.registration.control_generation();
    for device in &guest.devices {
        device.turn.follow(guest, device, rules(guest, device));
    }
    guest.tracer.follow(guest);
    generation
}

fn acknowledge(guest: &Guest, generation: u64) {
    if guest.applied.swap(generation, Relaxed) != generation {
        guest.registration.acknowledge(generation);
    }
}

fn rules(guest: &Guest, device: &Device) -> Rules {
    let (mut policy, _) = guest.registration.policy(device.entry);
    let share = guest.registration.share();
    if share.cap.is_some() && policy.kind == PolicyKind::Off {
        policy.kind = PolicyKind::Timeslice(CAP_SLICE);
    }
    Rules {
        policy,
        paused: share.paused,
    }
}

/// Adds the threads' tallies up into the slot. Only the keeper writes these counters.
pub fn fold(guest: &Guest, now: u64) {
    for device in &guest.devices {
        let counters = guest.registration.count(device.entry);
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

/// All that was submitted; wraps, for another process may have written anything there.
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
