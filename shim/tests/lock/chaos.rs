//! Random failures: programs are killed, stopped and reconfigured. There are never two holders, no program hangs, and nothing
//! is left behind. `GPUSHARE_CHAOS_SECONDS` makes the test run longer, for a tenth of the time of shm-layout's test, and
//! `GPUSHARE_CHAOS_SEED` changes the choices.

use std::time::{Duration, Instant};

use gpushare_testbed::{Watched, eventually};
use rustix::process::Signal;
use shm_layout::{Segments, clock, reap};

use crate::stage::{PATIENCE, Stage};

const PROGRAMS: usize = 5;
const POLICIES: [&str; 6] = [
    "timeslice=1ms",
    "launches=3",
    "always",
    "off",
    "timeslice=3ms order=fifo",
    "timeslice=2ms order=priority sync-skips=2",
];

/// A repeatable sequence of random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }
}

#[test]
fn whatever_happens_to_programs_there_is_one_holder_at_a_time() {
    let stage = Stage::new();
    let words = [
        "86400 200 3",
        "86400 300 0",
        "86400 100 5 streams",
        "86400 200 4 ptds",
        "86400 50 1",
    ];
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let tenths = asked("GPUSHARE_CHAOS_SECONDS").unwrap_or(40);
    let length = Duration::from_millis(tenths * 100);
    let start = |index: usize| {
        let mut command = stage.spinner("", words[index % words.len()]);
        Watched::spawn_for(command.env_remove("TIMELINE"), length + 4 * PATIENCE)
    };
    let mut programs: Vec<Watched> = (0..PROGRAMS).map(start).collect();
    for program in &mut programs {
        assert_eq!(program.line(), "ready");
    }
    let mut dice = Dice(asked("GPUSHARE_CHAOS_SEED").unwrap_or(7));
    let began = Instant::now();
    while began.elapsed() < length {
        let index = dice.roll(PROGRAMS);
        match dice.roll(4) {
            0 => {
                programs[index].signal(Signal::KILL);
                programs[index] = start(index);
            }
            1 => {
                programs[index].signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(30));
                programs[index].signal(Signal::CONT);
            }
            _ => stage.policy(POLICIES[dice.roll(POLICIES.len())]),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    stage.policy("timeslice=2ms");
    let handoffs = || stage.snapshot().devices[0].handoffs;
    let before = handoffs();
    eventually("the lock still goes round", PATIENCE, || {
        handoffs() > before + 20
    });
    assert_eq!(
        stage.snapshot().devices[0].violations,
        0,
        "two holders at once"
    );
    drop(programs);
    eventually("no slot is taken any more", PATIENCE, || {
        let segments = Segments::open_workload(&stage.segments()).expect("our own segments");
        reap(&segments, clock::now());
        stage.snapshot().processes.is_empty()
    });
}
