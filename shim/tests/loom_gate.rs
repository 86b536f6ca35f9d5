//! A loom model of the gate, through which a launch passes while its process holds the lock. It tries every interleaving of the
//! protocol, compiled from its own source with loom's atomics.
//!
//! # What stands for what
//!
//! * **The barrier.** A launching thread passes only a compiler barrier, and the keeper calls membarrier(2). Here both are a
//!   SeqCst fence. The kernel promises this: between the call and its return every running thread of the process has passed a
//!   state in which its memory accesses match its program order, and a thread that is not running passes a full barrier when it
//!   is scheduled. The manual's table of pairs agrees: `barrier()` against `sys_membarrier()` is ordered as `smp_mb()` against
//!   `smp_mb()`.
//! * **The assembly of `cuLaunchKernel`** (`src/face/fast.rs`) cannot run under loom. It performs these steps by plain moves:
//!   `mov [inside], submitting` is `step_in`; `cmp [gate], open` is `is_open`; `mov [inside], 0` behind `2:` is `step_back`,
//!   and before `ret` it is `step_out`. On x86-64 every store is a release.
//! * **The device** is one word, changed only by read-modify-write. It therefore counts the calls in the driver without giving
//!   the threads an order that they do not have. It holds the calls under way, the submissions not yet drained, and whether
//!   another process holds the lock. **The turn** is its mutex, phase and condition as in `src/turn.rs`. The keeper plays the
//!   other process's hold, from the hand-over to the lock's return.

mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence as compiler_fence};
}

#[allow(dead_code, reason = "the models use the words themselves")]
#[path = "../src/gate.rs"]
mod gate;

use gate::{CLOSED, METERED, OPEN, OUTSIDE, TRACED};
use loom::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{
            AtomicU32,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    thread,
};

/// Fields of the device's word: another process holds the lock; a call is under way; a submission is not drained.
const OTHER: u32 = 1 << 16;
const CALL: u32 = 1 << 8;
const QUEUED: u32 = 1;

/// The index of the device to which the threads are bound.
const PLACE: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Draining,
}

#[derive(Clone, Copy)]
struct Build {
    barrier: bool,
    /// True if the gate is open while the lock is held.
    opens: bool,
    traced: bool,
    /// Number of submissions that a thread may make after one look at the turn, while the gate is metered.
    allotted: u32,
}

const RIGHT: Build = Build {
    barrier: true,
    opens: true,
    traced: false,
    allotted: 0,
};

const ALLOTTED: Build = Build {
    opens: false,
    allotted: 2,
    ..RIGHT
};

#[derive(Default)]
struct Record {
    inside: AtomicU32,
    here: AtomicU32,
    tally: AtomicU32,
}

struct World {
    build: Build,
    gate: AtomicU32,
    records: Vec<Record>,
    turn: Mutex<Phase>,
    changed: Condvar,
    device: AtomicU32,
}

impl World {
    /// Makes a world in which the turn is held.
    fn new(build: Build, threads: usize) -> Arc<World> {
        Arc::new(World {
            build,
            gate: AtomicU32::new(match build {
                Build { allotted: 1.., .. } => METERED,
                Build { opens: false, .. } => CLOSED,
                Build { traced: true, .. } => TRACED,
                Build { .. } => OPEN,
            }),
            records: (0..threads).map(|_| Record::default()).collect(),
            turn: Mutex::new(Phase::Held),
            changed: Condvar::new(),
            device: AtomicU32::new(0),
        })
    }

    /// Makes one submission: `Thread::begin`, else `Thread::begin_allotted`, else `Thread::begin_if_open`, else `Turn::admit`,
    /// and then `Thread::end`. `left` is the thread's allotment.
    fn launch(&self, me: usize, left: &mut u32) {
        let Record {
            inside,
            here,
            tally,
        } = &self.records[me];
        here.store(PLACE, Relaxed);
        gate::step_in(inside);
        let mut passes = gate::is_open(&self.gate);
        if !passes && *left > 0 {
            gate::step_back(inside);
            gate::step_in(inside);
            passes = gate::is_metered(&self.gate);
            *left -= u32::from(passes);
        }
        if !passes {
            gate::step_back(inside);
            gate::step_in(inside);
            passes = gate::is_passable(&self.gate);
        }
        if !passes {
            gate::step_back(inside);
            let mut phase = self.turn.lock().expect("sound");
            while *phase != Phase::Held {
                phase = self.changed.wait(phase).expect("sound");
            }
            if self.build.allotted > 0 {
                gate::meter(&self.gate);
                *left = self.build.allotted - 1;
            }
            gate::admitted(inside);
        }
        let found = self.device.fetch_add(CALL, Relaxed);
        assert_eq!(found & OTHER, 0, "submitted while another process holds");
        tally.store(tally.load(Relaxed) + 1, Relaxed);
        let found = self.device.fetch_add(QUEUED, Relaxed);
        assert_eq!(found & OTHER, 0, "the lock was handed over during a call");
        self.device.fetch_sub(CALL, Relaxed);
        gate::step_out(inside);
    }

    /// Releases the lock as `Turn::release` does, lets another process hold it, and takes it again. Returns how many
    /// submissions have been drained so far; `before` is that number for earlier turns.
    fn release(&self, before: u32) -> u32 {
        *self.turn.lock().expect("sound") = Phase::Draining;
        gate::close(&self.gate);
        if self.build.barrier {
            fence(SeqCst);
        }
        let inside = |one: &Record| gate::is_inside(&one.inside, &one.here, PLACE);
        while self.records.iter().any(inside) {
            thread::yield_now();
        }
        let done: u32 = self.records.iter().map(|one| one.tally.load(Relaxed)).sum();
        let found = self.device.fetch_and(!0xff, Relaxed);
        assert_eq!(found & !0xff, 0, "drained while a call is under way");
        assert_eq!(done, before + found, "a submission was not seen");
        let left = self.device.fetch_or(OTHER, Relaxed);
        assert_eq!(left, 0, "handed over before all was done");
        let after = self.device.fetch_and(!OTHER, Relaxed);
        assert_eq!(after, OTHER, "something came in while another process held");
        let mut phase = self.turn.lock().expect("sound");
        *phase = Phase::Held;
        if self.build.opens {
            gate::open(&self.gate, self.build.traced);
        }
        self.changed.notify_all();
        before + found
    }
}

/// Explores threads that each launch a number of times, against a keeper that hands over a number of times.
fn explore(preemptions: Option<usize>, build: Build, launches: &'static [u32], hand_overs: u32) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let world = World::new(build, launches.len());
        let threads: Vec<_> = launches
            .iter()
            .enumerate()
            .map(|(me, count)| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut left = build.allotted;
                    (0..*count).for_each(|_| world.launch(me, &mut left));
                })
            })
            .collect();
        let drained = (0..hand_overs).fold(0, |before, _| world.release(before));
        for thread in threads {
            thread.join().expect("no panic");
        }
        let queued = world.device.load(Relaxed);
        let wanted: u32 = launches.iter().sum();
        assert_eq!(drained + queued, wanted, "a submission was lost");
        for record in &world.records {
            assert_eq!(record.inside.load(Relaxed), OUTSIDE);
        }
    });
}

#[test]
fn no_submission_is_in_the_driver_while_another_process_holds() {
    explore(None, RIGHT, &[1], 1);
    explore(Some(3), RIGHT, &[2], 1);
}

#[test]
fn a_traced_submission_is_waited_for_as_well() {
    let build = Build {
        traced: true,
        ..RIGHT
    };
    explore(None, build, &[1], 1);
    explore(Some(2), build, &[2], 1);
}

#[test]
fn an_allotment_ends_with_the_turn_in_which_it_was_given() {
    explore(None, ALLOTTED, &[1], 1);
    explore(Some(2), ALLOTTED, &[3], 1);
    explore(Some(2), ALLOTTED, &[2], 2);
}

#[test]
fn two_threads_that_launch_are_both_waited_for() {
    explore(Some(2), RIGHT, &[1, 1], 1);
    explore(Some(2), ALLOTTED, &[1, 1], 1);
}

#[test]
fn a_gate_that_opens_again_closes_as_well_as_the_first_time() {
    explore(Some(2), RIGHT, &[2], 2);
}

#[test]
#[should_panic(expected = "another process")]
fn without_the_keepers_barrier_a_submission_slips_through() {
    let build = Build {
        barrier: false,
        ..RIGHT
    };
    explore(None, build, &[1], 1);
}

#[test]
#[should_panic(expected = "another process")]
fn without_the_keepers_barrier_an_allotted_submission_slips_through() {
    let build = Build {
        barrier: false,
        ..ALLOTTED
    };
    explore(None, build, &[1], 1);
}

#[test]
fn a_gate_that_never_opens_needs_no_barrier() {
    let build = Build {
        barrier: false,
        opens: false,
        ..RIGHT
    };
    explore(Some(3), build, &[2], 1);
}
