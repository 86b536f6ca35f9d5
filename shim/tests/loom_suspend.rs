//! A loom model of how an eviction excludes driver calls. It tries every interleaving of the protocol, compiled from its own
//! source with loom's atomics. `loom_gate.rs` describes what represents the barriers.

mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence as compiler_fence};
}

#[allow(dead_code, reason = "the models use what they need")]
#[path = "../src/gate.rs"]
mod gate;

use loom::{
    sync::{
        Arc,
        atomic::{
            AtomicU32,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
    thread,
};

const OUTSIDE: u32 = 0;
const ELSEWHERE: u32 = u32::MAX;

/// The driver's word: the number of calls under way, and a flag for a locked process.
const LOCKED: u32 = 1 << 16;

#[derive(Default)]
struct World {
    suspension: AtomicU32,
    inside: [AtomicU32; 2],
    driver: AtomicU32,
}

impl World {
    /// Makes one attempt to call the driver, with the steps of `exports::guarded`, `Thread::enter_ungated` and the stubs. Returns
    /// true if the call was made.
    fn call(&self, me: usize) -> bool {
        let inside = &self.inside[me];
        inside.store(ELSEWHERE, Relaxed);
        if !gate::is_running(&self.suspension) {
            inside.store(OUTSIDE, Relaxed);
            assert_ne!(gate::poll(&self.suspension), gate::ENDED);
            return false;
        }
        let found = self.driver.fetch_add(1, Relaxed);
        assert_eq!(found & LOCKED, 0, "a call is stuck in the driver");
        let found = self.driver.fetch_sub(1, Relaxed);
        assert_eq!(found & LOCKED, 0, "the process was locked during a call");
        inside.store(OUTSIDE, Release);
        true
    }

    /// Makes the evicting thread's only attempt. It gives up where it would wait.
    fn evict(&self, barrier: bool) -> bool {
        gate::suspend(&self.suspension);
        if barrier {
            fence(SeqCst);
        }
        let empty = self
            .inside
            .iter()
            .all(|inside| inside.load(Acquire) == OUTSIDE);
        if empty {
            let found = self.driver.fetch_add(LOCKED, Relaxed);
            assert_eq!(found, 0, "locked during a call");
            self.driver.fetch_sub(LOCKED, Relaxed);
        }
        gate::resume(&self.suspension);
        empty
    }
}

impl World {
    /// Makes one query of a process that is evicted, with the steps of `eviction::pass_query`.
    fn query(&self) {
        let inside = &self.inside[0];
        inside.store(ELSEWHERE, Relaxed);
        let passes = gate::is_running(&self.suspension)
            || matches!(
                gate::poll(&self.suspension),
                gate::COPIED | gate::CHECKPOINTED
            );
        if passes {
            let found = self.driver.fetch_add(1, Relaxed);
            assert_eq!(found & LOCKED, 0, "a query meets a restore");
            let found = self.driver.fetch_sub(1, Relaxed);
            assert_eq!(found & LOCKED, 0, "the restore began during a query");
        }
        inside.store(OUTSIDE, Release);
    }

    /// Makes the evictor's attempt to restore. It gives up where it would wait.
    fn restore(&self, barrier: bool) {
        gate::suspend(&self.suspension);
        if barrier {
            fence(SeqCst);
        }
        if self.inside[0].load(Acquire) == OUTSIDE {
            let found = self.driver.fetch_add(LOCKED, Relaxed);
            assert_eq!(found, 0, "restored during a query");
            self.driver.fetch_sub(LOCKED, Relaxed);
        }
        gate::resume(&self.suspension);
    }
}

fn run_query(barrier: bool) {
    loom::model(move || {
        let world = Arc::new(World::default());
        gate::admit_queries(&world.suspension, gate::CHECKPOINTED);
        let asking = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.query())
        };
        world.restore(barrier);
        asking.join().expect("no query met the restore");
    });
}

fn run(barrier: bool) {
    loom::model(move || {
        let world = Arc::new(World::default());
        let callers: Vec<_> = (0..2)
            .map(|me| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.call(me))
            })
            .collect();
        world.evict(barrier);
        callers.into_iter().for_each(|caller| {
            caller.join().expect("no call was stuck");
        });
        assert!(world.call(0), "calls run again");
        gate::end(&world.suspension);
        assert_eq!(gate::poll(&world.suspension), gate::ENDED);
    });
}

#[test]
fn no_call_is_in_the_driver_when_the_process_is_locked() {
    run(true);
}

#[test]
#[should_panic]
fn without_the_barrier_loom_finds_one() {
    run(false);
}

#[test]
fn no_query_is_in_the_driver_during_a_restore() {
    run_query(true);
}

#[test]
#[should_panic]
fn without_the_barrier_loom_finds_a_query() {
    run_query(false);
}
