//! Turns of the device lock.

use super::*;

/// The words of a device, a grant for each waiter, and a cell that only the owner may use.
struct Gpu {
    owner: AtomicU64,
    waiters: [AtomicU64; BITMAP],
    inside: AtomicU64,
    evicted: AtomicU64,
    grants: [AtomicU64; 3],
    /// A futex: the comparison of the word and falling asleep are one step.
    futex: (Mutex<()>, Condvar),
    work: UnsafeCell<u32>,
}

// SAFETY: only the owner uses `work`; loom fails the model otherwise.
unsafe impl Sync for Gpu {}

impl Gpu {
    fn new(owner: u64) -> Arc<Gpu> {
        Arc::new(Gpu {
            owner: AtomicU64::new(owner),
            waiters: words(),
            inside: AtomicU64::new(owner),
            evicted: AtomicU64::new(0),
            grants: words(),
            futex: (Mutex::new(()), Condvar::new()),
            work: UnsafeCell::new(0),
        })
    }

    fn turn(&self) -> Turn<'_> {
        Turn {
            owner: &self.owner,
            waiters: &self.waiters,
            inside: &self.inside,
            evicted: &self.evicted,
        }
    }

    fn pass(&self, from: u64) -> Passed {
        let passed = self.turn().pass(from, |bits| {
            (bits[0] != 0).then(|| u64::from(bits[0].trailing_zeros()) + 1)
        });
        if let Passed::To(next) = passed {
            self.grants[next as usize - 1].fetch_add(1, Relaxed);
            drop(self.futex.0.lock());
            self.futex.1.notify_all();
        }
        passed
    }

    fn sleep(&self, slot: usize, seen: u64) {
        let guard = self.futex.0.lock().expect("no panic");
        if self.grants[slot].load(Relaxed) == seen {
            drop(self.futex.1.wait(guard).expect("no panic"));
        }
    }

    /// Acquires the lock as `lock::wait` does; `dead` is an owner whose release may be forced. Returns false if it gave up
    /// after one poll.
    fn acquire(&self, slot: usize, dead: u64, patient: bool) -> bool {
        let (turn, me) = (self.turn(), slot as u64 + 1);
        if let Some(mine) = turn.take(turn.owner(), me) {
            assert_eq!(turn.enter(mine), Entry::Alone);
            return true;
        }
        turn.join(slot);
        loop {
            let grant = self.grants[slot].load(loom::sync::atomic::Ordering::Acquire);
            let owner = turn.owner();
            if who(owner) == me {
                match turn.enter(owner) {
                    Entry::Alone => {
                        turn.leave(slot);
                        return true;
                    }
                    Entry::NotAlone => panic!("two inside"),
                    Entry::TooLate => {
                        self.pass(owner);
                        continue;
                    }
                }
            }
            if !patient {
                turn.leave(slot);
                let owner = turn.owner();
                if who(owner) == me && turn.enter(owner) == Entry::Alone {
                    self.release(slot);
                }
                return false;
            }
            let moved = match who(owner) {
                0 => self.pass(owner) != Passed::Free,
                gone if gone == dead => {
                    turn.evict(owner);
                    self.pass(owner);
                    true
                }
                _ => false,
            };
            if !moved {
                self.sleep(slot, grant);
            }
        }
    }

    /// Enters the turn of this slot if it has been granted.
    fn take_up(&self, slot: usize) {
        let (turn, owner) = (self.turn(), self.turn().owner());
        if who(owner) == slot as u64 + 1 && turn.enter(owner) == Entry::Alone {
            turn.leave(slot);
            self.work();
            self.release(slot);
        }
    }

    fn work(&self) {
        self.work.with_mut(|work| {
            // SAFETY: this thread is the owner; loom checks that no other thread uses the cell at the same time.
            unsafe {
                *work += 1;
            }
        });
    }

    fn release(&self, slot: usize) {
        let owner = self.turn().owner();
        self.turn().exit(owner);
        if who(owner) == slot as u64 + 1 {
            self.pass(owner);
        }
    }
}

fn contend(gpu: &Arc<Gpu>, slot: usize, dead: u64, patient: bool) -> thread::JoinHandle<()> {
    let gpu = Arc::clone(gpu);
    thread::spawn(move || {
        if gpu.acquire(slot, dead, patient) {
            gpu.work();
            gpu.release(slot);
        }
    })
}

fn ends_free(gpu: &Gpu, threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(
        (who(gpu.turn().owner()), gpu.turn().has_waiters()),
        (0, false)
    );
}

const NO_SLOT: u64 = u64::MAX;

#[test]
fn two_contenders_both_get_in_one_at_a_time() {
    explore(Some(4), || {
        let gpu = Gpu::new(0);
        let threads = vec![
            contend(&gpu, 0, NO_SLOT, true),
            contend(&gpu, 1, NO_SLOT, true),
        ];
        ends_free(&gpu, threads);
    });
}

#[test]
fn three_contenders_all_get_in_one_at_a_time() {
    explore(Some(2), || {
        let gpu = Gpu::new(0);
        let threads = (0..3)
            .map(|slot| contend(&gpu, slot, NO_SLOT, true))
            .collect();
        ends_free(&gpu, threads);
    });
}

#[test]
fn of_two_who_take_over_from_the_dead_exactly_one_does() {
    explore(Some(2), || {
        let gpu = Gpu::new(3);
        let threads = vec![contend(&gpu, 0, 3, true), contend(&gpu, 1, 3, true)];
        ends_free(&gpu, threads);
    });
}

/// Two processes force the release of a dead holder's turn: a waiter and the reaper. The later one finds the next owner inside.
/// Both waiters are already in the queue.
#[test]
fn a_late_forced_release_leaves_the_next_owner_inside() {
    const DEAD: u64 = 3;
    explore(Some(3), || {
        let gpu = Gpu::new(DEAD);
        gpu.waiters[0].store(0b11, Relaxed);
        let force = |gpu: &Gpu| {
            gpu.turn().evict(DEAD);
            // The second waiter enters its turn at once if it was granted.
            if gpu.pass(DEAD) == Passed::To(2) {
                gpu.take_up(1);
            }
        };
        let first = {
            let gpu = Arc::clone(&gpu);
            thread::spawn(move || gpu.take_up(0))
        };
        let reaper = {
            let gpu = Arc::clone(&gpu);
            thread::spawn(move || force(&gpu))
        };
        force(&gpu);
        first.join().expect("no panic");
        reaper.join().expect("no panic");
    });
}

/// A later owner compares the name in that word with the turn that it finds.
#[test]
fn a_late_forced_release_leaves_the_name_of_the_turn_that_was_taken_away() {
    explore(None, || {
        let gpu = Gpu::new(3);
        let turn = gpu.turn();
        let forced = |from: u64, to: u64| {
            turn.evict(from);
            assert_eq!(turn.pass(from, |_| Some(to)), Passed::To(to));
            turn.owner()
        };
        gpu.waiters[0].store(0b11, Relaxed);
        let second = forced(3, 1);
        forced(second, 2);
        turn.evict(3);
        assert_eq!(gpu.evicted.load(Relaxed), second);
    });
}

#[test]
fn a_turn_given_to_one_who_leaves_is_passed_on() {
    explore(Some(3), || {
        let gpu = Gpu::new(0);
        let threads = vec![
            contend(&gpu, 0, NO_SLOT, false),
            contend(&gpu, 1, NO_SLOT, true),
        ];
        ends_free(&gpu, threads);
    });
}

#[test]
fn a_turn_given_to_one_who_leaves_while_a_third_waits_is_passed_on() {
    explore(Some(2), || {
        let gpu = Gpu::new(0);
        let threads = vec![
            contend(&gpu, 0, NO_SLOT, false),
            contend(&gpu, 1, NO_SLOT, true),
            contend(&gpu, 2, NO_SLOT, true),
        ];
        ends_free(&gpu, threads);
    });
}

#[test]
fn one_who_leaves_and_comes_back_at_once_is_not_taken_for_gone() {
    explore(Some(3), || {
        let gpu = Gpu::new(0);
        let fickle = {
            let gpu = Arc::clone(&gpu);
            thread::spawn(move || {
                for patient in [false, true] {
                    if gpu.acquire(0, NO_SLOT, patient) {
                        gpu.work();
                        gpu.release(0);
                    }
                }
            })
        };
        let threads = vec![fickle, contend(&gpu, 1, NO_SLOT, true)];
        ends_free(&gpu, threads);
    });
}
