//! A tenant that overwrites the words of the lock, and the effect on others.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shm_layout::{Identity, LaunchLimits, Segments, clock, register};

use crate::cli_support::uuid;
use crate::hostile::{handed, offset};
use crate::support::*;

/// Duration of an attack, in seconds.
const SECONDS: u64 = 4;

/// The words of `state` that tenants may write.
pub struct Words {
    state: File,
    device: u64,
    slots: u64,
    slot: u64,
}

impl Words {
    pub fn of_state() -> Self {
        let [state, ..] = handed().map(File::from);
        let (slots, all) = offset("State", "slots");
        Self {
            state,
            device: offset("State", "devices").0,
            slots,
            slot: all / 256,
        }
    }

    pub fn write(&self, at: u64, word: u64) {
        let written = self.state.write_all_at(&word.to_ne_bytes(), at);
        written.expect("a tenant may write");
    }

    pub fn write_32(&self, at: u64, word: u32) {
        let written = self.state.write_all_at(&word.to_ne_bytes(), at);
        written.expect("a tenant may write");
    }

    pub fn of_slot(&self, slot: u64) -> u64 {
        self.slots + slot * self.slot
    }

    pub fn of_device(&self, field: &str) -> u64 {
        self.device + offset("Device", field).0
    }

    /// Returns the offset of a field in the first entry of a slot.
    pub fn of_entry(&self, slot: u64, field: &str) -> u64 {
        let entry = offset("Slot", "entries").0 + offset("DeviceEntry", field).0;
        self.of_slot(slot) + entry
    }
}

/// In a child: writes once that the first slot's process has used a maximum of time.
pub fn spoiler() {
    let words = Words::of_state();
    words.write(words.of_entry(0, "vtime"), u64::MAX >> 1);
    say("spoilt");
    sleep_on();
}

/// In a child: repeatedly writes that the keeper of a slot's process is alive.
pub fn pulser(slot: u64) {
    let [state, ..] = handed().map(File::from);
    let (slots, all) = offset("State", "slots");
    let (heartbeat, _) = offset("Slot", "heartbeat_ns");
    say("begins");
    loop {
        let at = slots + slot * (all / 256) + heartbeat;
        let written = state.write_all_at(&clock::now().to_ne_bytes(), at);
        written.expect("a tenant may write");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// In a child: a tenant with a slot that takes turns by overwriting words.
pub fn thief(how: &str) {
    let words = Words::of_state();
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
                // Always its own turn, with a new number each time.
                "owner" => words.write(words.of_device("owner"), turn << 48 | mine),
                // A turn of the victim that it cannot enter.
                "void" => {
                    words.write(words.of_device("owner"), 1 << 48 | 1 | 1 << 16);
                    words.write(words.of_device("inside"), 1 << 48 | 1 | 1 << 16 | 1 << 15);
                }
                // By its own words it has waited from the beginning; the victim came late and has used much time.
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
                // Always active without any time used; the victim has used all time and has only begun to wait.
                "share" => {
                    words.write(words.of_device("active"), 1 << me.index | 1);
                    words.write(words.of_entry(me.index.into(), "pulse_ns"), clock::now());
                    words.write_32(words.of_entry(me.index.into(), "lock_state"), 3);
                    words.write(words.of_entry(me.index.into(), "vtime"), 0);
                    words.write(words.of_entry(0, "vtime"), u64::MAX >> 1);
                    words.write(words.of_entry(0, "lock_since"), u64::MAX >> 1);
                    words.write(words.of_entry(0, "charged_ns"), 0);
                    words.write(words.of_entry(0, "cap_until"), u64::MAX >> 1);
                    words.write_32(words.of_entry(0, "lock_state"), 3);
                }
                other => panic!("there is no such way to steal: {other}"),
            }
        }
        let _ = entry;
        say("done");
        std::process::exit(0);
    });
}

/// Returns the longest time for which a victim cannot use the device, in ticks: with another process, and with a thief.
fn stalls(policy: &[&str], does: &str, role: &str, word: &str) -> Option<(u64, u64)> {
    let machine = Machine::new()?;
    machine
        .run(0, &[&["policy", "set", "all"], policy].concat())
        .done();
    let mut alice = machine.tenant(ALICE, "victim");
    assert_eq!(alice.hear(), "slot 0 1");
    let order = format!("{does} {}", SECONDS - 1);
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

fn second() -> u64 {
    1000 / TICK.as_millis() as u64
}

fn keeps_no_victim(policy: &[&str], does: &str, role: &str, word: &str) {
    let Some((alone, beside)) = stalls(policy, does, role, word) else {
        return;
    };
    eprintln!("{policy:?} {role} {word}: {alone} ticks alone, {beside} beside it");
    assert!(beside <= alone + 2 * second(), "{beside} ticks of {TICK:?}");
}

#[test]
fn who_writes_that_every_turn_is_its_own_keeps_a_victim_waiting_for_two_seconds_at_most() {
    for kind in ["timeslice=5ms", "launches=100", "always"] {
        keeps_no_victim(&[kind, "order=fifo"], "turns", "thief", "owner");
    }
}

#[test]
fn who_writes_that_no_turn_can_be_taken_up_keeps_a_victim_waiting_for_two_seconds_at_most() {
    for kind in ["timeslice=5ms", "launches=100"] {
        keeps_no_victim(&[kind], "turns", "thief", "void");
    }
}

#[test]
fn who_writes_over_the_order_of_a_queue_keeps_a_victim_waiting_for_two_seconds_at_most() {
    for order in ["fair", "fifo", "priority", "shortest"] {
        let order = format!("order={order}");
        keeps_no_victim(&["timeslice=5ms", &order], "turns", "thief", "queue");
    }
}

#[test]
fn who_writes_random_bytes_over_the_state_keeps_a_victim_waiting_for_two_seconds_at_most() {
    keeps_no_victim(
        &["timeslice=5ms"],
        "turns",
        "scribbler",
        &SECONDS.to_string(),
    );
}

#[test]
fn who_writes_over_the_shares_without_turns_keeps_a_victim_waiting_for_two_seconds_at_most() {
    for order in ["order=fair", "order=priority"] {
        keeps_no_victim(&["overlap", order], "beside", "thief", "share");
    }
}

/// Tests a tenant that stops itself whenever it has the lock. `helped`: a helper writes that it is alive.
fn stops_itself(policy: &str, helped: bool) {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine
        .run(0, &["policy", "set", "all", policy, "order=fair"])
        .done();
    let mut alice = machine.joined(ALICE, "victim");
    let mut mallory = machine.tenant(MALLORY, "holder");
    assert_eq!(mallory.hear(), "slot 1 1");
    let helper = helped.then(|| machine.plays(MALLORY, "pulser", &["1"]));
    let begun = helper.as_ref().map(Tenant::hear);
    assert_eq!(begun.as_deref(), helped.then_some("begins"));
    let pid = Pid::from_child(&mallory.child);
    let send = |signal| kill_process(pid, signal).expect("ours");
    alice.tell("turns 5");
    for _ in 0..2 {
        assert_eq!(mallory.ask("lock"), "held");
        send(Signal::STOP);
        std::thread::sleep(Duration::from_millis(1500));
        send(Signal::CONT);
        assert_eq!(mallory.ask("unlock"), "released");
    }
    let longest: u64 = alice.hear().parse().expect("a number");
    eprintln!("{policy}, helped {helped}: {longest} ticks");
    assert!(longest > 0, "it held nothing up: the test cannot fail");
    assert!(longest <= second(), "{longest} ticks of {TICK:?}");
}

#[test]
fn who_stops_itself_while_it_holds_keeps_nobody_waiting_for_a_second_under_any_policy() {
    for policy in ["launches=100", "always", "timeslice=5ms"] {
        for helped in [false, true] {
            stops_itself(policy, helped);
        }
    }
    // A longer slice allows a longer wait, but a process seen to be stopped loses the lock earlier.
    stops_itself("timeslice=5s", false);
}

#[test]
fn who_writes_over_a_victims_account_once_has_it_behind_for_one_turn_and_no_longer() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine
        .run(0, &["policy", "set", "all", "timeslice=5ms", "order=fair"])
        .done();
    let mut alice = machine.joined(ALICE, "victim");
    let mut others = ["one", "two"].map(|label| machine.joined(MALLORY, label));
    for other in &mut others {
        other.tell("turns 8");
    }
    assert!(alice.ask("turns 1").parse::<u64>().is_ok());
    let spoiler = machine.plays(MALLORY, "spoiler", &[]);
    assert_eq!(spoiler.hear(), "spoilt");
    // The victim is behind now and must catch up.
    let longest: u64 = alice.ask("turns 1").parse().expect("a number");
    assert!(longest <= second(), "{longest}");
    let then: u64 = alice.ask("turns 4").parse().expect("a number");
    eprintln!("{longest} ticks, then {then}");
    assert!(then < 25, "{then} ticks of {TICK:?}");
    for other in &others {
        assert!(other.hear().parse::<u64>().is_ok());
    }
}
