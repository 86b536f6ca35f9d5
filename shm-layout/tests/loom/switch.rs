//! A switch: the memory of one process leaves the device part by part, and others return to its room. Each may die at any step.

use super::*;
use memory_queue::{Position, Scope};
use room::Room;

/// The bytes of the device, of the process that leaves, and of each that returns.
const WHOLE: u64 = 2;
/// The process that leaves; the others return.
const LEAVES: usize = 0;

/// The words of a device and of three processes on it.
struct Card {
    room: Room<3>,
    wanted: [AtomicU64; 3],
    tickets: [AtomicU64; 3],
    /// 1 while the first process lives and its memory leaves.
    leaving: AtomicU32,
    /// True if the processes look again by themselves.
    polls: bool,
    /// The bytes that each process has from the driver. No process reads it.
    given: [std::sync::atomic::AtomicU64; 3],
}

impl std::ops::Deref for Card {
    type Target = Room<3>;

    fn deref(&self) -> &Self::Target {
        &self.room
    }
}

/// A process dies at a step.
struct Died;

/// The number of steps until a process dies.
struct Life(std::cell::Cell<u32>);

impl Life {
    const LONG: u32 = u32::MAX;

    fn of(steps: u32) -> Self {
        Self(std::cell::Cell::new(steps))
    }

    fn step(&self) -> Result<(), Died> {
        let left = self.0.get().checked_sub(1).ok_or(Died)?;
        self.0.set(left);
        Ok(())
    }
}

impl Card {
    fn new(polls: bool) -> Arc<Self> {
        let card = Self {
            room: Room::new(WHOLE, WHOLE),
            wanted: words(),
            tickets: words(),
            leaving: AtomicU32::new(0),
            polls,
            given: Default::default(),
        };
        card.give(LEAVES, WHOLE);
        (1..3).for_each(|who| card.tickets[who].store(who as u64, Relaxed));
        Arc::new(card)
    }

    /// The driver gives a process bytes, which it has.
    fn give(&self, who: usize, bytes: u64) {
        self.given[who].fetch_add(bytes, Relaxed);
        let given: u64 = self.given.iter().map(|given| given.load(Relaxed)).sum();
        assert!(given <= WHOLE, "the driver has no {given} bytes");
    }

    fn ring(&self) {
        if bell::strike(&self.bell) {
            self.wake();
        }
    }

    fn sleep(&self, seen: u32) {
        match self.polls {
            true => thread::yield_now(),
            false => self.room.sleep(seen),
        }
    }

    fn position(&self, who: usize) -> Position {
        Position {
            priority: 0,
            lack: 0,
            ticket: self.tickets[who].load(Relaxed),
            scope: Scope::Device,
        }
    }

    fn is_next(&self, who: usize) -> bool {
        let others = (1..3).filter(|other| *other != who && self.wanted[*other].load(Acquire) != 0);
        memory_queue::is_next(
            &self.position(who),
            0,
            others.map(|other| self.position(other)),
        )
    }

    /// Returns true if as much as a process lacks is on its way out, and the process is next.
    fn is_room_leaving(&self, who: usize, wanted: u64) -> bool {
        // Before the sums, as in the real queue.
        let leaving = match self.leaving.load(Acquire) {
            1 => self.used[LEAVES].load(Relaxed),
            _ => 0,
        };
        let held: u64 = self.used.iter().map(|used| used.load(Relaxed)).sum();
        leaving != 0 && leaving >= (held + wanted).saturating_sub(WHOLE) && self.is_next(who)
    }

    /// The memory of the first process leaves: all of it, or one part, after which it stays.
    fn leave(&self, parts: u64, life: &Life) -> Result<(), Died> {
        self.leaving.store(1, Release);
        life.step()?;
        for _ in 0..parts {
            self.given[LEAVES].fetch_sub(1, Relaxed);
            life.step()?;
            self.release(LEAVES, 1);
            life.step()?;
        }
        self.leaving.store(0, Release);
        self.ring();
        Ok(())
    }

    /// The memory of a process returns, in parts or as a whole.
    fn come(&self, who: usize, life: &Life) -> Result<(), Died> {
        self.wanted[who].store(WHOLE, Release);
        let mut taken = 0;
        while taken < WHOLE {
            let seen = memory_queue::listen(&self.bell);
            let goes_on = self.is_room_leaving(who, WHOLE - taken);
            let bytes = if taken > 0 || goes_on { 1 } else { WHOLE };
            let is_granted = self.is_next(who) && {
                memory_queue::join(&self.promises, who);
                life.step()?;
                self.reserve(who, bytes)
            };
            if is_granted {
                life.step()?;
                taken += bytes;
                self.wanted[who].store(WHOLE - taken, Release);
                self.give(who, bytes);
                life.step()?;
                continue;
            }
            if taken > 0 && !goes_on {
                self.given[who].fetch_sub(taken, Relaxed);
                life.step()?;
                self.release(who, taken);
                self.wanted[who].store(WHOLE, Release);
                taken = 0;
                self.ring();
            }
            if taken == 0 {
                memory_queue::leave(&self.promises, who);
            }
            self.sleep(seen);
        }
        self.wanted[who].store(0, Release);
        memory_queue::leave(&self.promises, who);
        self.ring();
        Ok(())
    }

    /// The kernel ends a process, and another one gives its slot back.
    fn bury(&self, who: usize) {
        self.given[who].store(0, Relaxed);
        if who == LEAVES {
            self.leaving.store(0, Release);
        }
        self.wanted[who].store(0, Relaxed);
        memory_queue::leave(&self.promises, who);
        self.trying[who].store(0, Relaxed);
        self.used[who].store(0, Relaxed);
        self.ring();
    }

    fn has_all(&self, who: usize) -> bool {
        self.used[who].load(Relaxed) == WHOLE && self.given[who].load(Relaxed) == WHOLE
    }

    /// Ends a process in good order.
    fn end(&self, who: usize) {
        self.given[who].store(0, Relaxed);
        self.release(who, WHOLE);
    }
}

/// Has the first process leave in a thread of its own, which dies after these steps.
fn leaving(card: &Arc<Card>, parts: u64, steps: u32) -> thread::JoinHandle<()> {
    let card = Arc::clone(card);
    thread::spawn(move || {
        if card.leave(parts, &Life::of(steps)).is_err() {
            card.bury(LEAVES);
        }
    })
}

#[test]
fn a_process_whose_memory_returns_gets_all_of_it_wherever_the_one_that_leaves_dies() {
    for steps in [0, 1, 2, 3, 4, Life::LONG] {
        explore(Some(2), move || {
            let card = Card::new(false);
            let leaves = leaving(&card, WHOLE, steps);
            assert!(card.come(1, &Life::of(Life::LONG)).is_ok());
            leaves.join().expect("no panic");
            assert!(card.has_all(1));
        });
    }
}

#[test]
fn a_process_that_dies_on_its_way_back_leaves_the_device_to_the_next() {
    for steps in 0..8 {
        explore(Some(2), move || {
            let card = Card::new(false);
            let leaves = leaving(&card, WHOLE, Life::LONG);
            if card.come(1, &Life::of(steps)).is_err() {
                card.bury(1);
            } else {
                card.end(1);
            }
            assert!(card.come(2, &Life::of(Life::LONG)).is_ok());
            leaves.join().expect("no panic");
            assert!(card.has_all(2));
        });
    }
}

#[test]
fn who_gets_a_part_and_not_the_rest_gives_it_back() {
    explore(Some(3), || {
        let card = Card::new(false);
        let leaves = leaving(&card, 1, Life::LONG);
        let returns = {
            let card = Arc::clone(&card);
            thread::spawn(move || card.come(1, &Life::of(Life::LONG)).is_ok())
        };
        leaves.join().expect("no panic");
        // The process that stays ends later.
        card.given[LEAVES].store(0, Relaxed);
        card.release(LEAVES, 1);
        assert!(returns.join().expect("no panic"));
        assert!(card.has_all(1));
    });
}

#[test]
fn two_processes_whose_memory_returns_never_wait_for_each_others_parts() {
    explore(Some(1), || {
        // Of two that reserve at once none may get the bytes; then they look again by themselves.
        let card = Card::new(true);
        // The second comes first, even if the first has a part by then.
        card.tickets[2].store(0, Relaxed);
        let returns = |who| {
            let card = Arc::clone(&card);
            thread::spawn(move || {
                assert!(card.come(who, &Life::of(Life::LONG)).is_ok());
                assert!(card.has_all(who));
                card.end(who);
            })
        };
        let both = [returns(1), returns(2)];
        assert!(card.leave(WHOLE, &Life::of(Life::LONG)).is_ok());
        both.into_iter()
            .for_each(|one| one.join().expect("no panic"));
    });
}
