//! Programs that allocate, write, read, wait and die at random on a card that is too small for them, while an operator pins, evicts and
//! resumes them at random. Nothing is lost, nobody hangs, and at the end the card is empty.

use std::thread;
use std::time::Duration;

use gpushare_testbed::{Testbed, eventually};
use rustix::process::Signal;
use shm_layout::Phase;

use crate::Wish;
use crate::client::{Client, MIB, OUT_OF_MEMORY, PATIENCE, look};
use crate::overcommit::overcommit;
use crate::refusals::world;
use crate::turns::{moves, take_turns};

const CARD: &str = "[[device]]\nmemory = \"64MiB\"\n[link]\nout = \"512MiB\"\nback = \"512MiB\"";
const PROGRAMS: u64 = 5;
/// Most bytes of one program.
const MOST: u64 = 40 * MIB;
/// A program with no more than this may be pinned: all of them together leave the largest its room.
const SMALL: u64 = 4 * MIB;

const POLICIES: [&str; 7] = [
    "off",
    "off turn=200ms",
    "off host-memory=16MiB",
    "off deep-after=1s",
    "off evict-idle=1s stay=1ms",
    "timeslice=1s swap=on",
    "overlap order=priority",
];

/// A sequence of numbers that follows from its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A program with its allocations: the name, the words, and the number that all of them hold.
struct Program<'b> {
    bed: &'b Testbed,
    client: Client<'b>,
    dice: Dice,
    held: Vec<(String, u64, u64)>,
    next: u64,
    pinned: bool,
}

impl<'b> Program<'b> {
    fn start(bed: &'b Testbed, seed: u64) -> Self {
        Self {
            bed,
            client: Client::start(
                bed,
                &[("GPUSHARE_SWAPPABLE", "1"), ("GPUSHARE_ON_FULL", "wait")],
            ),
            dice: Dice(seed),
            held: Vec::new(),
            next: 0,
            pinned: false,
        }
    }

    fn bytes(&self) -> u64 {
        self.held.iter().map(|(_, words, _)| 4 * words).sum()
    }

    fn step(&mut self) {
        match self.dice.below(16) {
            0..5 => self.allocate(),
            5 => self.free(),
            6..8 => self.write(),
            8..11 => self.check(),
            11 => self.pin(),
            12 => self.leave_for_a_while(),
            13 => self.stop_for_a_while(),
            15 if self.dice.below(4) == 0 => self.set_policy(),
            14 if self.dice.below(6) == 0 => self.die(),
            _ => thread::sleep(Duration::from_millis(self.dice.below(150))),
        }
    }

    fn allocate(&mut self) {
        let bytes = match self.dice.below(3) {
            0 => 4096,
            1 => 2 * MIB + 4 * self.dice.below(1000),
            _ => MIB * (1 + self.dice.below(14)),
        };
        if self.pinned || self.bytes() + bytes > MOST {
            return;
        }
        let name = format!("a{}", self.next);
        match self.client.code(&format!("alloc {name} {bytes}")) {
            0 => {
                self.held.push((name, bytes / 4, 0));
                self.next += 1;
                self.fill(self.held.len() - 1);
            }
            // Of several that grow and wait for each other one is refused.
            code => assert_eq!(code, OUT_OF_MEMORY),
        }
    }

    fn fill(&mut self, at: usize) {
        let number = 1 + self.dice.below(1 << 20);
        let (name, words, holds) = &mut self.held[at];
        *holds = number;
        self.client.ok(&format!("write {name} {number} {words}"));
    }

    fn free(&mut self) {
        if !self.held.is_empty() {
            let at = self.dice.below(self.held.len() as u64) as usize;
            let (name, ..) = self.held.swap_remove(at);
            self.client.ok(&format!("free {name}"));
        }
    }

    fn write(&mut self) {
        if !self.held.is_empty() {
            let at = self.dice.below(self.held.len() as u64) as usize;
            self.fill(at);
        }
    }

    fn check(&mut self) {
        for (name, words, number) in &self.held {
            let right = self.client.ok(&format!("count {name} {number} {words}"));
            assert_eq!(right, [*words], "{name}");
        }
    }

    fn pin(&mut self) {
        if self.pinned || self.bytes() <= SMALL {
            self.pinned = !self.pinned;
            self.client.wish(self.bed, Wish::Pin(self.pinned));
        }
    }

    fn leave_for_a_while(&mut self) {
        self.client.wish(self.bed, Wish::Evict);
        thread::sleep(Duration::from_millis(self.dice.below(200)));
        self.client.wish(self.bed, Wish::Resume);
    }

    fn stop_for_a_while(&mut self) {
        self.client.watched.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(self.dice.below(100)));
        self.client.watched.signal(Signal::CONT);
    }

    fn set_policy(&mut self) {
        let at = self.dice.below(POLICIES.len() as u64) as usize;
        take_turns(self.bed, POLICIES[at]);
    }

    fn die(&mut self) {
        if self.dice.below(2) == 0 && !self.held.is_empty() {
            let (name, words, number) = &self.held[0];
            self.client.begin(&format!("count {name} {number} {words}"));
            thread::sleep(Duration::from_millis(self.dice.below(30)));
        }
        self.client.watched.signal(Signal::KILL);
        eventually("it ends", PATIENCE, || self.client.watched.ended());
        *self = Self::start(self.bed, self.dice.0);
    }

    fn end(mut self) {
        self.check();
        while !self.held.is_empty() {
            self.free();
        }
        let (used, evicted) = (self.client.used(), self.client.evicted_bytes());
        assert_eq!((used, evicted), (0, 0), "all is freed");
    }
}

/// Runs the programs for this many steps each.
fn chaos(seed: u64, steps: u64) {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    thread::scope(|scope| {
        for number in 0..PROGRAMS {
            let bed = &bed;
            scope.spawn(move || {
                let mut program = Program::start(bed, seed * PROGRAMS + number);
                (0..steps).for_each(|_| program.step());
                program.end();
            });
        }
    });
    let moves = moves(&bed).into_iter();
    let evictions = moves.filter(|one| one.1 == Phase::Evicted).count();
    assert!(evictions > 0);
    // It reaps those that were killed.
    let mut last = Client::start(&bed, &[]);
    eventually("no other process is left", PATIENCE, || {
        look(&bed).processes.len() == 1
    });
    last.ok(&format!("alloc a {}", 60 * MIB));
}

#[test]
fn random_programs_and_a_random_operator_lose_nothing_and_never_hang() {
    thread::scope(|scope| {
        for seed in [1, 3] {
            scope.spawn(move || chaos(seed, 40));
        }
    });
}
