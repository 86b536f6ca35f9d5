//! A tenant that writes over whose turn it is, and what the others lose by it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use shm_layout::{Identity, LaunchLimits, Segments, clock, register};

use crate::cli_support::uuid;
use crate::hostile::{handed, offset};
use crate::support::*;

/// How long an attack lasts.
const SECONDS: u64 = 4;

/// The words that say whose turn it is.
struct Words {
    state: File,
    device: u64,
    slots: u64,
    slot: u64,
}

impl Words {
    fn write(&self, at: u64, word: u64) {
        let written = self.state.write_all_at(&word.to_ne_bytes(), at);
        written.expect("a tenant may write");
    }

    fn of_device(&self, field: &str) -> u64 {
        self.device + offset("Device", field).0
    }

    /// Of the first entry of a slot.
    fn of_entry(&self, slot: u64, field: &str) -> u64 {
        let entry = offset("Slot", "entries").0 + offset("DeviceEntry", field).0;
        self.slots + slot * self.slot + entry
    }
}

/// In a child: a tenant with a slot of its own that takes turns which are not its own, by what it writes.
pub fn thief(how: &str) {
    let [state, ..] = handed().map(File::from);
    let (slots, all) = offset("State", "slots");
    let words = Words {
        state,
        device: offset("State", "devices").0,
        slots,
        slot: all / 256,
    };
    let segments = Segments::open_workload(&dir()).expect("it serves");
    let (identity, limits) = (Identity::of_self("thief"), LaunchLimits::default());
    let process = register(&segments, &identity, &limits).expect("a slot");
    let entry = process.add_device(uuid(7), 0, "Test GPU", 16 * GIB, 0);
    let entry = entry.expect("room for a device");
    let (me, process) = (process.slot(), &process);
    let mine = me.to_word();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _mark = process.attach_keeper().expect("a keeper's mark");
            loop {
                process.heartbeat(clock::now());
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        say("begins");
        let until = Instant::now() + Duration::from_secs(SECONDS);
        let mut turn = 0_u64;
        while Instant::now() < until {
            turn += 1;
            match how {
                // Always its own turn, and always another one.
                "owner" => words.write(words.of_device("owner"), turn << 48 | mine),
                // The victim's turn, which cannot be taken up.
                "void" => {
                    words.write(words.of_device("owner"), 1 << 48 | 1 | 1 << 16);
                    words.write(words.of_device("inside"), 1 << 48 | 1 | 1 << 16 | 1 << 15);
                }
                // In line since ever, by its own account; the victim came late and is far ahead.
                "queue" => {
                    words.write(words.of_device("waiters"), 1 << me.index);
                    words.write(words.of_entry(me.index.into(), "pulse_ns"), clock::now());
                    words.write(words.of_entry(me.index.into(), "lock_since"), 0);
                    words.write(words.of_entry(me.index.into(), "vtime"), 0);
                    words.write(words.of_entry(0, "lock_since"), u64::MAX >> 1);
                    words.write(words.of_entry(0, "vtime"), u64::MAX >> 1);
                    words.write(words.of_entry(0, "cap_until"), u64::MAX >> 1);
                    words.write(words.of_device("owner"), turn << 48 | mine);
                }
                other => panic!("there is no such way to steal: {other}"),
            }
        }
        let _ = entry;
        say("done");
        std::process::exit(0);
    });
}

/// The longest that a victim is kept from the device, in ticks: beside another process, and beside a thief.
fn stalls(policy: &[&str], role: &str, word: &str) -> Option<(u64, u64)> {
    let machine = Machine::new()?;
    machine
        .run(0, &[&["policy", "set", "all"], policy].concat())
        .done();
    let mut alice = machine.tenant(ALICE, "victim");
    assert_eq!(alice.hear(), "slot 0 1");
    let order = format!("turns {}", SECONDS - 1);
    let ticks = |said: String| said.parse::<u64>().expect("a number");
    let alone = ticks(alice.ask(&order));
    let thief = machine.plays(MALLORY, role, &[word]);
    assert_eq!(thief.hear(), "begins");
    let beside = ticks(alice.ask(&order));
    drop(thief);
    if beside > 50 {
        let doctor = machine.run(0, &["doctor"]);
        let says = doctor.out.contains("others go without turns");
        assert!(says, "{doctor:?}");
    }
    assert_eq!(alice.ask("lock"), "held");
    assert_eq!(alice.ask("unlock"), "released");
    Some((alone, beside))
}

fn keeps_no_victim(policy: &[&str], role: &str, word: &str) {
    let Some((alone, beside)) = stalls(policy, role, word) else {
        return;
    };
    eprintln!("{policy:?} {role} {word}: {alone} ticks alone, {beside} beside it");
    let second = 1000 / TICK.as_millis() as u64;
    assert!(beside <= alone + second, "{beside} ticks of {TICK:?}");
}

#[test]
fn who_writes_that_every_turn_is_its_own_keeps_a_victim_waiting_for_a_second_at_most() {
    keeps_no_victim(&["timeslice=5ms", "order=fifo"], "thief", "owner");
}

#[test]
fn who_writes_that_no_turn_can_be_taken_up_keeps_a_victim_waiting_for_a_second_at_most() {
    keeps_no_victim(&["timeslice=5ms"], "thief", "void");
}

#[test]
fn who_writes_over_the_order_of_a_queue_keeps_a_victim_waiting_for_a_second_at_most() {
    for order in ["fair", "fifo", "priority", "shortest"] {
        let order = format!("order={order}");
        keeps_no_victim(&["timeslice=5ms", &order], "thief", "queue");
    }
}

#[test]
fn who_writes_random_bytes_over_the_state_keeps_a_victim_waiting_for_a_second_at_most() {
    keeps_no_victim(&["timeslice=5ms"], "scribbler", &SECONDS.to_string());
}
