//! A loom model of a thread that writes a trace while the keeper removes it. It tries every interleaving, compiled from its own
//! source with loom's atomics.
//!
//! The trace is one word: 1 while it is mapped. A write to an unmapped buffer would kill the process.

mod primitive {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

#[path = "../src/trace/quiescence.rs"]
mod quiescence;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::*},
    },
    thread,
};

#[derive(Default)]
struct Buffer {
    mapped: AtomicU32,
    written: AtomicU32,
}

struct World {
    /// The index of a buffer + 1; 0 means none.
    pointer: AtomicUsize,
    buffers: [Buffer; 2],
    marks: Vec<quiescence::Mark>,
    barrier: bool,
}

impl World {
    fn write(&self, me: usize) {
        let Some(_writing) = quiescence::enter(&self.marks[me]) else {
            return;
        };
        if let Some(place) = self.pointer.load(Acquire).checked_sub(1) {
            let buffer = &self.buffers[place];
            assert_eq!(
                buffer.mapped.load(Relaxed),
                1,
                "written to after it was taken down"
            );
            buffer.written.fetch_add(1, Relaxed);
            assert_eq!(buffer.mapped.load(Relaxed), 1, "taken down under a writer");
        }
    }

    /// Publishes another buffer, or none, and unmaps the old one.
    fn change(&self, to: usize) {
        let old = self.pointer.swap(to, AcqRel);
        if self.barrier {
            quiescence::changed();
        }
        for mark in &self.marks {
            let seen = quiescence::read(mark);
            while !quiescence::has_left(mark, seen) {
                thread::yield_now();
            }
        }
        if let Some(place) = old.checked_sub(1) {
            self.buffers[place].mapped.store(0, Relaxed);
        }
    }
}

fn explore(barrier: bool, writers: &'static [u32]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = Arc::new(World {
            pointer: AtomicUsize::new(1),
            buffers: Default::default(),
            marks: writers
                .iter()
                .map(|_| quiescence::Mark::default())
                .collect(),
            barrier,
        });
        for buffer in &world.buffers {
            buffer.mapped.store(1, Relaxed);
        }
        let threads: Vec<_> = (0..writers.len())
            .map(|me| {
                let world = Arc::clone(&world);
                thread::spawn(move || (0..writers[me]).for_each(|_| world.write(me)))
            })
            .collect();
        world.change(2);
        world.change(0);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn nobody_writes_to_a_trace_that_was_taken_down() {
    explore(true, &[2]);
    explore(true, &[1, 1]);
}

#[test]
fn a_thread_that_writes_already_does_not_write_within() {
    loom::model(|| {
        let mark = quiescence::Mark::default();
        let outer = quiescence::enter(&mark);
        assert!(outer.is_some() && quiescence::enter(&mark).is_none());
        let seen = quiescence::read(&mark);
        assert!(!quiescence::has_left(&mark, seen));
        drop(outer);
        assert!(quiescence::has_left(&mark, seen));
        let again = quiescence::enter(&mark);
        assert!(
            again.is_some() && quiescence::has_left(&mark, seen),
            "it is another write"
        );
        drop(again);
        quiescence::leave(&mark);
        assert!(quiescence::has_left(&mark, quiescence::read(&mark)));
    });
}

#[test]
#[should_panic(expected = "taken down")]
fn without_the_keepers_barrier_a_write_slips_through() {
    explore(false, &[1]);
}
