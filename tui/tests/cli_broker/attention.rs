//! A tenant that uses up the broker's time, and the effect on others.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shm_layout::socket::{Connection, send};
use shm_layout::wire::{Field, Message, Verb};
use shm_layout::{ABI_VERSION, SlotId};

use crate::hostile::offset;
use crate::support::*;
use crate::turns::Words;

/// The mark that the kernel writes for a dead keeper.
const DEAD: u32 = 0x4000_0000;

fn mark_dead(words: &Words, slots: impl Iterator<Item = u64>) {
    let (keeper, _) = offset("Slot", "keeper");
    for slot in slots {
        words.write_32(words.of_slot(slot) + keeper, DEAD);
    }
}

/// In a child: asks the broker for a slot. Returns the slot, the received descriptors, and the connection on which the child
/// reports that the accounts are mapped.
fn registered() -> (SlotId, Vec<OwnedFd>, Connection) {
    let open = Message::new(Verb::Open)
        .with(Field::Abi, ABI_VERSION)
        .with(Field::Access, "workload")
        .with(Field::Label, "many");
    let connection = Connection::to(&dir()).expect("it serves");
    let (answer, handed) = connection.ask(&open).expect("permitted");
    let number = |field| answer.number::<u32>(field);
    let slot = number(Field::Slot).zip(number(Field::Epoch));
    let (index, epoch) = slot.unwrap_or_else(|| panic!("{answer:?}"));
    let index = index as u16;
    (SlotId { index, epoch }, handed, connection)
}

/// In a child: maps the accounts that came with a slot.
fn accounts(handed: Vec<OwnedFd>) -> memmap2::MmapRaw {
    let memory = File::from(handed.into_iter().next_back().expect("the accounts"));
    let mapped = memmap2::MmapOptions::new().len(4096).map_raw(&memory);
    mapped.expect("its own")
}

/// In a child: a process with very many mappings and as many slots as a user may have, with their keepers marked dead.
pub fn hoarder(slots: usize) {
    const MAPPINGS: usize = 60_000;
    // The kernel does not join neighbouring mappings with different permissions.
    let mappings = (0..MAPPINGS).map(|index| {
        let mapping = memmap2::MmapOptions::new().len(4096).map_anon();
        let mapping = mapping.expect("room");
        match index % 2 {
            0 => (Some(mapping), None),
            _ => (None, Some(mapping.make_read_only().expect("its own"))),
        }
    });
    let mappings: Vec<_> = mappings.collect();
    let words = Words::of_state();
    let (claim, _) = offset("Slot", "claim");
    let held = (0..slots).map(|_| {
        let (slot, handed, _connection) = registered();
        let index = slot.index.into();
        // The broker would take an unused slot back when the process asks for the next one.
        words.write(
            words.of_slot(index) + claim,
            u64::from(slot.epoch) << 32 | 2,
        );
        (index, accounts(handed))
    });
    let held: Vec<(u64, _)> = held.collect();
    mark_dead(&words, held.iter().map(|(slot, _)| *slot));
    let maps = fs::read("/proc/self/maps").expect("our own").len();
    say(format_args!("marked {maps}"));
    sleep_on();
    drop((mappings, held));
}

/// Returns the number of bytes that a process has read, from files and from `/proc`.
fn read_by(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("root sees it");
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    let read = read.and_then(|read| read.parse().ok());
    read.expect("the kernel counts it")
}

#[test]
fn a_process_with_many_slots_and_mappings_has_them_read_once_and_keeps_nobody_waiting() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let begun = Instant::now();
    let hoarder = machine.plays(MALLORY, "hoarder", &["180"]);
    let said = hoarder.hear();
    let maps = said.strip_prefix("marked ").expect(&said);
    let maps: u64 = maps.parse().expect("a number");
    let (before, marked) = (read_by(machine.broker_pid()), Instant::now());
    eprintln!("{maps} bytes of mappings, after {:?}", begun.elapsed());
    for _ in 0..4 {
        drop(machine.joined(ALICE, "late"));
        machine.processes();
    }
    let mut read = 0;
    eventually("it is looked at", PATIENCE, || {
        read = read_by(machine.broker_pid()) - before;
        read > maps
    });
    std::thread::sleep(Duration::from_secs(3));
    read = read_by(machine.broker_pid()) - before;
    let passed = marked.elapsed().as_secs() + 1;
    eprintln!("{} looks in {passed} s", read / maps);
    // One poll per round; a poll reads all slots of the process.
    assert!(
        read / maps <= 2 * passed,
        "{} looks in {passed} s",
        read / maps
    );
}

/// In a child: marks the keepers of all slots dead, repeatedly.
pub fn marker() {
    let words = Words::of_state();
    say("begins");
    loop {
        mark_dead(&words, 0..256);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// In a child: takes a slot, maps its accounts, and reports the slot.
fn begun() -> memmap2::MmapRaw {
    let (slot, handed, connection) = registered();
    let page = accounts(handed);
    drop(connection);
    say(format_args!("{}:{}", slot.index, slot.epoch));
    page
}

/// In a child: has a slot and maps its accounts but not the state.
pub fn newcomer() {
    let page = begun();
    sleep_on();
    drop(page);
}

/// In a child: has a slot, and executes another program.
pub fn changer() {
    let page = begun();
    if orders().next().is_some() {
        let error = Command::new("sleep").arg("1000").exec();
        panic!("{error}");
    }
    drop(page);
}

#[test]
fn who_has_not_mapped_the_state_yet_keeps_its_slot_whoever_says_that_it_is_dead() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let marker = machine.plays(MALLORY, "marker", &[]);
    assert_eq!(marker.hear(), "begins");
    let mut changer = machine.plays(ALICE, "changer", &[]);
    let goes = changer.hear();
    let newcomer = machine.plays(ALICE, "newcomer", &[]);
    let stays = newcomer.hear();
    let is_there = |slot: &str| {
        let ask = Message::new(Verb::Accounts).with(Field::Slots, slot);
        let asked = Connection::to(&machine.dir()).expect("it serves").ask(&ask);
        !asked.expect("answered").1.is_empty()
    };
    eventually("both have begun", PATIENCE, || {
        is_there(&stays) && is_there(&goes)
    });
    changer.tell("go");
    let has_gone = || !is_there(&goes);
    eventually(
        "who became another program has lost its slot",
        PATIENCE,
        has_gone,
    );
    // A few more rounds of the broker.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(is_there(&stays), "it was taken back");
}

/// In a child: connects repeatedly, sends as many requests as the socket accepts, and reads no reply.
pub fn piper() {
    const CONNECTIONS: usize = 50;
    let address = SocketAddrUnix::new(dir().join("socket")).expect("short");
    let question = Message::new(Verb::Open)
        .with(Field::Abi, ABI_VERSION)
        .with(Field::Access, "viewer")
        .encode();
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connected = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("room");
        connect(&socket, &address).is_ok().then_some(socket)
    };
    say("begins");
    let mut open: Vec<Option<OwnedFd>> = (0..CONNECTIONS).map(|_| None).collect();
    loop {
        for place in &mut open {
            *place = place.take().or_else(connected);
            // Sends until the socket is full.
            let ended = place.as_ref().map(|socket| {
                loop {
                    if let Err(error) = send(socket.as_fd(), &question, &[]) {
                        break error;
                    }
                }
            });
            if ended.is_some_and(|error| error.kind() != std::io::ErrorKind::WouldBlock) {
                *place = None;
            }
        }
    }
}

#[test]
fn who_asks_without_end_and_reads_no_answer_keeps_nobody_out() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let (user, group) = (MALLORY.to_string(), USERS.to_string());
    let words = [
        "nice",
        "-n",
        "19",
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &group,
        "--clear-groups",
    ];
    let pipers: Vec<_> = (0..16)
        .map(|_| machine.plays_through(&words, "piper"))
        .collect();
    for piper in &pipers {
        assert_eq!(piper.hear(), "begins");
    }
    let mut failed = Vec::new();
    for _ in 0..8 {
        let begun = Instant::now();
        // Sixteen programs that spin leave a debug build little of two processors, and a tenant waits for a second only.
        let said = loop {
            let tenant = machine.tenant(ALICE, "late");
            let said = tenant.hear();
            eprintln!("{said} after {:?}", begun.elapsed());
            if said.starts_with("slot ") || begun.elapsed() > Duration::from_secs(10) {
                break said;
            }
        };
        if !said.starts_with("slot ") {
            failed.push(said);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
