//! Random failures: several processes contend for the lock and memory while they are killed, stopped and edited at random. The
//! invariants are checked from outside.
//!
//! `cargo test -p shm-layout --test chaos -- --seconds 600` runs longer, and `--seed N` repeats a run's choices. In a run of
//! the whole workspace `GPUSHARE_CHAOS_SECONDS` and `GPUSHARE_CHAOS_SEED` set the same values. There is no test harness,
//! because it would refuse these words.

#![expect(
    clippy::print_stdout,
    reason = "there is no harness to say how it went"
)]

mod common;
#[path = "chaos/words.rs"]
mod words;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use common::*;
use rustix::process::Signal;
use shm_layout::*;

const TEST: &str = "chaos_leaves_no_second_holder_no_lost_slot_and_nobody_stuck";
const MS: u64 = 1_000_000;

/// A small random generator; it only chooses the order of the failures.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A workload: holds some memory, allocates some more, and gives up at times.
fn work(dir: &Path, seed: u64) -> ! {
    let segments = Segments::open_workload(dir).expect("segments");
    let (process, entry) = process(&segments, "worker");
    let process: &'static Registration = Box::leak(Box::new(process));
    let (send, ready) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let _mark = process.attach_keeper().expect("a robust list");
        send.send(()).expect("heard");
        let mut ticks = 0;
        loop {
            process.heartbeat(clock::now());
            process.acknowledge(process.control_generation());
            ticks += 1;
            if ticks % 4 == 0 {
                reap(process.segments(), clock::now());
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    ready.recv().expect("a keeper");
    let mut dice = Dice(seed | 1);
    loop {
        let bytes = dice.roll(50);
        let reservation = process.ledger(entry).reserve(bytes);
        let looks = std::cell::Cell::new(0);
        let patience = if dice.roll(5) == 0 {
            dice.roll(3)
        } else {
            u64::MAX
        };
        let give_up = || looks.replace(looks.get() + 1) >= patience;
        let lock = process.lock(entry);
        if let Acquire::Held { .. } = lock.acquire(&give_up) {
            if dice.roll(3) == 0 {
                thread::sleep(Duration::from_micros(dice.roll(2000)));
            }
            lock.release(Reason::Count, clock::now());
        }
        drop(reservation);
        if dice.roll(4) == 0 {
            thread::sleep(Duration::from_micros(dice.roll(500)));
        }
    }
}

fn spawn(dir: &Dir, dice: &mut Dice) -> Kid {
    Kid::spawn(TEST, dir, &dice.roll(u64::MAX).to_string(), &[])
}

fn edit(operator: &Operator, view: &Snapshot, dice: &mut Dice) {
    let kind = match dice.roll(3) {
        0 => PolicyKind::Always,
        1 => PolicyKind::Timeslice(MS),
        _ => PolicyKind::Launches(3),
    };
    let order = Order::ALL[dice.roll(Order::ALL.len() as u64) as usize];
    let policy = LockPolicy {
        kind,
        order,
        max_hold_ns: 50 * MS,
        grace_ns: 20 * MS,
        ..LockPolicy::default()
    };
    let slot = match view.processes.len() as u64 {
        0 => SlotId { index: 0, epoch: 1 },
        count => view.processes[dice.roll(count) as usize].slot,
    };
    let change = match dice.roll(4) {
        0 => Change::Policy {
            device: Some(GPU),
            policy: Some(policy),
            until: None,
        },
        1 => Change::ProcessQuota {
            slot,
            device: None,
            value: QuotaValue::Bytes(dice.roll(60)),
            until: None,
        },
        2 => Change::DeviceLimit {
            uuid: GPU,
            value: QuotaValue::Bytes(100 + dice.roll(100)),
        },
        _ => Change::ProcessShare {
            slot,
            share: ShareEdit {
                weight: Set::To(1 + dice.roll(1000) as u32),
                priority: Set::To(dice.roll(40) as i32 - 20),
                cap: if dice.roll(3) == 0 {
                    Set::To(20 + dice.roll(81) as u32)
                } else {
                    Set::Inherit
                },
                paused: Set::To(dice.roll(6) == 0),
                ..ShareEdit::default()
            },
        },
    };
    // The edit fails if the target has ended, which is allowed.
    let _ = operator.edit(None, &change, clock::now());
}

fn main() {
    if let Some((seed, dir)) = role() {
        work(&dir, seed.parse().expect("a seed"));
    }
    let wanted = words::Wanted::of_arguments(TEST);
    if !wanted.run {
        return;
    }
    let seconds = wanted.seconds.unwrap_or(6);
    let seed = wanted.seed.unwrap_or(clock::now());
    println!("{TEST}: {seconds} s, --seed {seed}");
    chaos(seconds, seed);
    println!("test {TEST} ... ok");
}

fn chaos(seconds: u64, seed: u64) {
    let mut dice = Dice(seed | 1);
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let mut kids: Vec<Kid> = (0..6).map(|_| spawn(&dir, &mut dice)).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        let index = dice.roll(kids.len() as u64) as usize;
        match dice.roll(10) {
            0 | 1 => {
                kids[index] = spawn(&dir, &mut dice);
            }
            2 | 3 => kids[index].signal(Signal::STOP),
            4..=6 => kids[index].signal(Signal::CONT),
            _ => edit(&operator, &look(&segments), &mut dice),
        }
        let view = look(&segments);
        assert_eq!(view.violations, 0, "two holders");
        let held: u64 = view
            .processes
            .iter()
            .flat_map(|one| &one.devices)
            .map(|one| one.used)
            .sum();
        assert!(held <= 6 * 50 * 2, "bytes pile up: {held}");
        thread::sleep(Duration::from_millis(dice.roll(20)));
    }
    everybody_goes_on(&dir, &operator, &kids);
    for kid in &mut kids {
        kid.signal(Signal::KILL);
        kid.wait();
    }
    reap(&segments, clock::now());
    let view = look(&segments);
    assert!(view.processes.is_empty(), "a slot was lost");
    assert_eq!((view.violations, view.devices[0].owner), (0, None));
    let (process, entry) = process(&segments, "last");
    dir.limit(10);
    assert!(process.ledger(entry).reserve(10).is_ok(), "a byte was lost");
}

/// Checks that after all failures are undone every living process gets the lock again.
fn everybody_goes_on(dir: &Dir, operator: &Operator, kids: &[Kid]) {
    let segments = dir.viewer();
    kids.iter().for_each(|kid| kid.signal(Signal::CONT));
    eventually("all have come and the dead are gone", PATIENCE, || {
        reap(operator.segments(), clock::now());
        look(&segments)
            .processes
            .iter()
            .filter(|one| !one.devices.is_empty())
            .count()
            == kids.len()
    });
    for process in look(&segments).processes {
        let plain = Change::ProcessShare {
            slot: process.slot,
            share: ShareEdit {
                weight: Set::Inherit,
                priority: Set::Inherit,
                cap: Set::Inherit,
                paused: Set::Inherit,
                boost: Set::Inherit,
                ..ShareEdit::default()
            },
        };
        operator.edit(None, &plain, clock::now()).expect("it lives");
    }
    let counts = || -> Vec<u64> {
        look(&segments)
            .processes
            .iter()
            .flat_map(|one| &one.devices)
            .map(|one| one.lock.acquisitions)
            .collect()
    };
    let before = counts();
    eventually("every process gets the lock again", PATIENCE, || {
        counts()
            .iter()
            .zip(&before)
            .all(|(now, before)| now > before)
    });
}
