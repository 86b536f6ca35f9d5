//! Threads and processes that allocate at the same moment, by every function: together they never exceed a limit by a byte.

use gpushare_testbed::{Testbed, Watched, cc};
use shm_layout::{Change, QuotaValue, Set, clock};

use crate::client::{Client, MIB, app, look};

const RIVALS: u64 = 6;
const LIMIT: u64 = 64 * MIB;

/// Returns the number of rounds: few enough for a busy machine, or `GPUSHARE_RACE_ROUNDS`.
fn rounds() -> u64 {
    let asked = std::env::var("GPUSHARE_RACE_ROUNDS").ok();
    asked.and_then(|rounds| rounds.parse().ok()).unwrap_or(200)
}

/// Runs the competitors as this many processes with several threads each, and checks their grants.
fn race(bed: &Testbed, processes: u64, variables: &[(&str, &str)]) {
    let program = cc(&app("race.c"), "race", &["-ldl"]);
    let threads = RIVALS / processes;
    let rounds = rounds();
    let mut rivals: Vec<_> = (0..processes)
        .map(|process| {
            let mut command = bed.preloaded(&program);
            command
                .envs(variables.iter().copied())
                .arg(bed.dir().join("race"));
            let numbers = [RIVALS, process * threads, threads, rounds, LIMIT];
            command.args(numbers.map(|number| number.to_string()));
            Watched::spawn(&mut command)
        })
        .collect();
    let line = rivals[0].line();
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [over, most, granted, denied] = numbers[..] else {
        panic!("{line}")
    };
    assert_eq!(
        over, 0,
        "rounds over the limit of {LIMIT}; the most was {most}"
    );
    assert!(most > LIMIT / 2, "they came near it: {most}");
    assert!(
        granted > rounds && denied > rounds,
        "{granted} granted, {denied} denied"
    );
    for rival in rivals {
        assert!(rival.wait_output().status.success());
    }
    assert!(
        look(bed)
            .processes
            .iter()
            .all(|process| process.devices.iter().all(|device| device.used == 0))
    );
}

#[test]
fn threads_of_one_process_never_exceed_its_quota() {
    let bed = Testbed::new();
    race(&bed, 1, &[("GPUSHARE_MEMORY", "64MiB")]);
}

#[test]
fn processes_of_a_group_never_exceed_the_groups_quota() {
    let bed = Testbed::new();
    let operator = shm_layout::Operator::open(bed.dir()).expect("made at need");
    let memory = Set::To(QuotaValue::Bytes(LIMIT));
    let change = Change::Group {
        name: "rivals".into(),
        settings: shm_layout::GroupEdit {
            memory,
            ..shm_layout::GroupEdit::default()
        },
        remove: false,
    };
    operator
        .edit(None, &change, clock::now())
        .expect("a valid edit");
    race(&bed, RIVALS, &[("GPUSHARE_GROUP", "rivals")]);
}

#[test]
fn processes_on_a_device_never_exceed_its_limit() {
    let bed = Testbed::new();
    let mut first = Client::start(&bed, &[]);
    first.ok("info");
    let operator = shm_layout::Operator::open(bed.dir()).expect("there");
    let uuid = look(&bed).devices[0].uuid;
    let change = Change::DeviceLimit {
        uuid,
        value: QuotaValue::Bytes(LIMIT),
    };
    operator
        .edit(None, &change, clock::now())
        .expect("a valid edit");
    race(&bed, RIVALS, &[]);
}

/// Runs two threads that add a reference to memory and remove its last one at the same moment.
fn race_for_the_last_reference(way: &str) {
    let bed = Testbed::new();
    let program = cc(&app("references_race.c"), "references_race", &["-ldl"]);
    let mut command = bed.preloaded(&program);
    command.env("GPUSHARE_MEMORY", "16MiB");
    command.args([way, "8", &(20 * rounds()).to_string()]);
    let output = Watched::spawn(&mut command).wait_output();
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}");
    let numbers = line.split_whitespace().map(|word| word.parse::<u64>());
    let numbers: Vec<u64> = numbers.map(|number| number.expect("a number")).collect();
    let [most, refused] = numbers[..] else {
        panic!("{line}")
    };
    assert!(most <= 8, "{most} pieces of 2 MiB under 16 MiB");
    assert!(most == 8 && refused >= 2, "it came to the limit: {line}");
}

#[test]
fn memory_that_is_retained_while_it_is_unmapped_stays_charged() {
    race_for_the_last_reference("0");
}

#[test]
fn memory_that_is_mapped_while_it_is_released_stays_charged() {
    race_for_the_last_reference("1");
}
