//! A model of one device's turn in one process: two threads that submit, the keeper, the thread that evicts the process, an
//! operator that pauses it, another process that wants the lock, and the exit. The test tries every order of their steps.
//!
//! The phases and the rule of the gate are the production code ([`phase`]). The steps around them copy those of `turn`,
//! `admission`, `eviction` and `keeper`. A step ends where another thread may run in between: at each lock, and at each word
//! that two threads read. The model assumes sequential memory; `loom_gate.rs` and `loom_suspend.rs` prove that the barriers
//! guarantee it. Every wait is a repeated poll, as in production, so no wake-up can be lost; a thread waits for ever only if
//! its condition never becomes true.

#[path = "../../src/turn/phase.rs"]
mod phase;
mod world;

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use world::{Build, World};

/// Limit on the number of states, because the test must end in seconds.
const MOST: usize = 3_000_000;

/// A fast hash: a state is forty small numbers, and there are many states.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Tries every order. Panics at a state that breaks an invariant, or from which the threads cannot finish.
fn explore(build: Build) {
    let mut numbers: HashMap<World, u32, BuildHasherDefault<Quick>> = HashMap::default();
    let mut states: Vec<World> = Vec::new();
    // For each state, the first predecessor and the step from it, and all predecessors.
    let mut reached: Vec<(u32, &'static str)> = Vec::new();
    let mut back: Vec<Vec<u32>> = Vec::new();
    let mut queue = VecDeque::from([0]);
    let first = World::new(build);
    numbers.insert(first, 0);
    states.push(first);
    reached.push((0, "the beginning"));
    back.push(Vec::new());
    let mut next = Vec::new();
    while let Some(number) = queue.pop_front() {
        let world = states[number as usize];
        next.clear();
        world.steps(&build, &mut next);
        for &(who, after) in &next {
            let known = *numbers.entry(after).or_insert_with(|| {
                states.push(after);
                reached.push((number, who));
                back.push(Vec::new());
                queue.push_back(states.len() as u32 - 1);
                states.len() as u32 - 1
            });
            back[known as usize].push(number);
            if let Err(what) = after.check(&build) {
                panic!("{what}\n{}", path(&states, &reached, known));
            }
        }
        assert!(states.len() < MOST, "too large: {build:?}");
    }
    // From every state some path must lead to a state in which all work is done.
    let mut ends = vec![false; states.len()];
    let mut queue: Vec<u32> = Vec::new();
    for (number, world) in states.iter().enumerate() {
        if world.is_done() {
            ends[number] = true;
            queue.push(number as u32);
        }
    }
    assert!(!queue.is_empty(), "nothing is ever done");
    while let Some(number) = queue.pop() {
        for &before in &back[number as usize] {
            if !std::mem::replace(&mut ends[before as usize], true) {
                queue.push(before);
            }
        }
    }
    if let Some(stuck) = ends.iter().position(|ends| !ends) {
        let way = path(&states, &reached, stuck as u32);
        panic!("from here on a thread waits for ever\n{way}");
    }
}

fn path(states: &[World], reached: &[(u32, &'static str)], mut number: u32) -> String {
    let mut lines = Vec::new();
    while number != 0 {
        let (before, who) = reached[number as usize];
        lines.push(format!("{who}: {:?}", states[number as usize]));
        number = before;
    }
    lines.reverse();
    lines.join("\n")
}

const SLICES: Build = Build {
    counted: false,
    submissions: [2, 1],
    pauses: 0,
    evictions: 0,
    holds: 1,
    forced: 0,
    exits: false,
    barrier: true,
};

#[test]
fn a_slice_ends_with_nothing_in_the_driver() {
    explore(SLICES);
}

#[test]
fn a_count_is_decided_by_one_thread() {
    explore(Build {
        counted: true,
        ..SLICES
    });
}

#[test]
fn a_paused_process_submits_nothing_and_goes_on() {
    explore(Build {
        pauses: 2,
        ..SLICES
    });
}

#[test]
fn a_paused_process_with_a_count_goes_on() {
    explore(Build {
        pauses: 2,
        counted: true,
        submissions: [1, 1],
        ..SLICES
    });
}

#[test]
fn an_evicted_process_is_not_in_the_driver_and_comes_back() {
    explore(Build {
        evictions: 1,
        ..SLICES
    });
}

#[test]
fn an_evicted_process_with_a_count_is_not_in_the_driver() {
    explore(Build {
        evictions: 1,
        counted: true,
        submissions: [1, 1],
        ..SLICES
    });
}

#[test]
fn a_pause_and_an_eviction_at_once() {
    explore(Build {
        evictions: 1,
        pauses: 2,
        submissions: [1, 1],
        ..SLICES
    });
}

#[test]
fn a_lock_that_is_forced_away_is_asked_for_again() {
    explore(Build {
        forced: 1,
        pauses: 2,
        submissions: [1, 1],
        ..SLICES
    });
}

#[test]
fn an_exit_leaves_nobody_waiting() {
    explore(Build {
        exits: true,
        evictions: 1,
        holds: 0,
        submissions: [1, 1],
        ..SLICES
    });
    explore(Build {
        exits: true,
        pauses: 1,
        submissions: [1, 1],
        ..SLICES
    });
}

#[test]
#[should_panic(expected = "in the driver")]
fn without_the_keepers_wait_the_model_finds_a_thread_in_the_driver() {
    explore(Build {
        barrier: false,
        ..SLICES
    });
}
