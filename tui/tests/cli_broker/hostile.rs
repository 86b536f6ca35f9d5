//! Attacks by a malicious tenant on other tenants, and their limits.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, SealFlags, fallocate, fcntl_add_seals, flock};
use rustix::process::Signal;
use shm_layout::socket::{Connection, send};
use shm_layout::wire::{self, Field, Message, Verb};
use shm_layout::{ABI_VERSION, Change, LockPolicy, QuotaValue, SlotId, text};

use crate::support::*;

/// In a child: returns the descriptors that the broker gives a workload.
pub fn handed() -> [OwnedFd; 3] {
    let open = Message::new(Verb::Open)
        .with(Field::Abi, ABI_VERSION)
        .with(Field::Access, "workload");
    let connection = Connection::to(&dir()).expect("it serves");
    let (_, handed) = connection.ask(&open).expect("permitted");
    handed.try_into().expect("three descriptors")
}

/// In a child: returns the accounts of the process in the first slot, which every tenant may read. Asks for those of a slot that
/// no table has, too.
fn accounts_of_the_first() -> File {
    let slots = wire::slots([(u16::MAX, 1), (0, 1)].into_iter());
    let ask = Message::new(Verb::Accounts).with(Field::Slots, slots);
    let connection = Connection::to(&dir()).expect("it serves");
    let (_, handed) = connection.ask(&ask).expect("permitted");
    handed.into_iter().next().expect("one").into()
}

fn again(file: &impl std::os::fd::AsRawFd, write: bool) -> std::io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(write).open(path)
}

/// In a child: tries to harm others, and reports the successful attempts.
pub fn vandal() {
    let [state, control, identity] = handed().map(File::from);
    let accounts = accounts_of_the_first();
    let mut done = Vec::new();
    let mut tries = |what: &str, worked: bool| {
        if worked {
            done.push(what.to_owned());
        }
    };
    // The file may be opened again, but not be written in any way.
    for file in [Some(&accounts), again(&accounts, true).ok().as_ref()] {
        let Some(file) = file else { continue };
        tries("wrote accounts", file.write_at(&[1; 64], 0).is_ok());
        tries("cut accounts", file.set_len(0).is_ok());
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        tries("cleared accounts", fallocate(file, punch, 0, 4096).is_ok());
        let mapped = memmap2::MmapOptions::new().len(4096).map_raw(file);
        tries("mapped accounts to write", mapped.is_ok());
    }
    tries("cut", state.set_len(0).is_ok());
    tries("cut a little", state.set_len(4096).is_ok());
    tries("grew", state.set_len(1 << 30).is_ok());
    tries("sealed", fcntl_add_seals(&state, SealFlags::WRITE).is_ok());
    for (name, file) in [("control", &control), ("identity", &identity)] {
        tries(
            &format!("wrote {name}"),
            file.write_at(&[1; 64], 4096).is_ok(),
        );
        tries(&format!("cut {name}"), file.set_len(0).is_ok());
        tries(&format!("reopened {name}"), again(file, true).is_ok());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        tries(
            &format!("opened {name} to all"),
            fs::set_permissions(path, mode).is_ok(),
        );
    }
    let dir = dir();
    tries("made a file", fs::write(dir.join("x"), "x").is_ok());
    tries("removed", fs::remove_file(dir.join("socket")).is_ok());
    tries(
        "renamed",
        fs::rename(dir.join("socket"), dir.join("y")).is_ok(),
    );
    say(format_args!("did {}", done.join(", ")));
    sleep_on();
}

/// In a child: holds every possible lock on the received files.
pub fn locker() {
    let files = handed().map(File::from);
    let mut held = Vec::new();
    for file in files {
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Locks of all bytes: exclusive on a writable file, shared on a read-only one.
        let _ = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        let _ = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
        held.push(file);
    }
    let dir = File::open(dir()).expect("may be entered");
    let _ = flock(&dir, FlockOperation::NonBlockingLockExclusive);
    say("holds");
    sleep_on();
}

/// In a child: writes random bytes over the whole state repeatedly for a time.
pub fn scribbler(seconds: u64) {
    let [state, ..] = handed().map(File::from);
    let size = state.metadata().expect("open").len();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0_u8; 1 << 16];
    let until = Instant::now() + Duration::from_secs(seconds);
    say("begins");
    while Instant::now() < until {
        for at in (0..size).step_by(block.len()) {
            for word in block.chunks_mut(8) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                word.copy_from_slice(&seed.to_le_bytes());
            }
            let length = block.len().min((size - at) as usize);
            state
                .write_all_at(&block[..length], at)
                .expect("a tenant may write");
        }
    }
    say("written");
    sleep_on();
}

/// In a child: writes zeros over the whole state until it is ended.
pub fn eraser() {
    let [state, ..] = handed().map(File::from);
    let size = state.metadata().expect("open").len();
    let block = vec![0_u8; 1 << 16];
    say("begins");
    loop {
        for at in (0..size).step_by(block.len()) {
            let length = block.len().min((size - at) as usize);
            let written = state.write_all_at(&block[..length], at);
            written.expect("a tenant may write");
        }
    }
}

/// In a child: asks for edits that it may not make, with a user id that may make them outside a container.
pub fn meddler() {
    let mut done = Vec::new();
    let mut tries = |what: String, change: Change| {
        if may_edit(&change) {
            done.push(what);
        }
    };
    tries(
        "set a policy".to_owned(),
        Change::Policy {
            device: None,
            policy: Some(LockPolicy::default()),
            until: None,
        },
    );
    for index in 0..4 {
        let slot = SlotId { index, epoch: 1 };
        let label = "x".to_owned();
        tries(format!("named {index}"), Change::Label { slot, label });
        let on = Some(1000);
        tries(format!("traced {index}"), Change::Trace { slot, on });
    }
    // The last one, because a success ends the broker.
    let connection = Connection::to(&dir()).expect("it serves");
    if connection.ask(&Message::new(Verb::Upgrade)).is_ok() {
        done.push("took over".to_owned());
    }
    say(format_args!("did {}", done.join(", ")));
    sleep_on();
}

/// Returns offset and size of a field, from the layout's map.
pub fn offset(of: &str, field: &str) -> (u64, u64) {
    let map = shm_layout::map();
    let part = map
        .split("\n\n")
        .find(|part| part.contains(&format!("::{of}: ")))
        .expect("there");
    let line = part
        .lines()
        .find(|line| line.contains(&format!("  {field}:")))
        .expect("there");
    let mut numbers = line
        .split_ascii_whitespace()
        .map(|number| number.parse().expect("a number"));
    (
        numbers.next().expect("offset"),
        numbers.next().expect("size"),
    )
}

/// In a child: takes slots without the broker, and writes another identity into the first slot.
pub fn forger() {
    let [state, ..] = handed().map(File::from);
    let (slots, all) = offset("State", "slots");
    let size = all / 256;
    let (identity, length) = offset("Slot", "identity");
    // The victim's identity, as the victim wrote it.
    state
        .write_all_at(&vec![0x41; length as usize], slots + identity)
        .expect("a tenant may write");
    let live =
        |index: u64| state.write_all_at(&(7_u64 << 32 | 2).to_le_bytes(), slots + index * size);
    live(9).expect("a tenant may write");
    // The victim's claim too.
    live(0).expect("a tenant may write");
    say("forged");
    for _ in orders() {
        live(9).expect("a tenant may write");
        say("again");
    }
}

/// In a child: repeatedly marks all slots as taken, with a wrong epoch.
pub fn claimer() {
    let [state, ..] = handed().map(File::from);
    let (slots, all) = offset("State", "slots");
    let size = all / 256;
    say("claims");
    loop {
        for index in 0..256 {
            let written =
                state.write_all_at(&(7_u64 << 32 | 2).to_le_bytes(), slots + index * size);
            written.expect("a tenant may write");
        }
    }
}

/// In a child: writes the parent's values into the first process's account on its first device.
pub fn liar() {
    let [state, ..] = handed().map(File::from);
    let (slots, _) = offset("State", "slots");
    let (entries, _) = offset("Slot", "entries");
    let (used, _) = offset("DeviceEntry", "used");
    for bytes in orders() {
        let bytes: u64 = bytes.parse().expect("a number");
        let written = state.write_all_at(&bytes.to_le_bytes(), slots + entries + used);
        written.expect("a tenant may write");
        say("told");
    }
}

/// In a child: clears the first device's queue on command.
pub fn mugger() {
    let [state, ..] = handed().map(File::from);
    let (devices, _) = offset("State", "devices");
    let (waiters, length) = offset("Device", "waiters");
    for _ in orders() {
        let written = state.write_all_at(&vec![0; length as usize], devices + waiters);
        written.expect("a tenant may write");
        say("struck off");
    }
}

/// In a child: writes that the first slot's process uses no device and that all devices are small, and asks for more memory for
/// that process.
pub fn raiser() {
    let [state, ..] = handed().map(File::from);
    let (devices, all) = offset("State", "devices");
    let (total, _) = offset("Device", "total_bytes");
    let (slots, _) = offset("State", "slots");
    let (entries, _) = offset("Slot", "entries");
    let write = |at: u64, bytes: &[u8]| {
        let written = state.write_all_at(bytes, at);
        written.expect("a tenant may write");
    };
    let lie = || {
        for at in (devices..devices + all).step_by(1088) {
            write(at + total, &GIB.to_le_bytes());
        }
        // The first entry names no device; the second names the first device.
        write(slots + entries, &[0; 4]);
        write(slots + entries + 1920, &[1, 0, 0, 0]);
    };
    for order in orders() {
        let value = match order.strip_suffix('%') {
            Some(percent) => QuotaValue::Percent(percent.parse().expect("a number")),
            None => QuotaValue::Bytes(text::parse_size(&order).expect("a size")),
        };
        let mut permitted = 0;
        for device in [Some(0), None].into_iter().cycle().take(40) {
            lie();
            let slot = SlotId { index: 0, epoch: 1 };
            permitted += usize::from(may_edit(&Change::ProcessQuota {
                slot,
                device,
                value,
                until: None,
            }));
        }
        say(format_args!("permitted {permitted}"));
    }
}

/// In a child: asks for an edit. Returns true if it was made.
fn may_edit(change: &Change) -> bool {
    let ask = serde_json::json!({
        "change": change, "target": "x", "reason": null, "place": "ctl",
        "expected_generation": null, "undoes": null,
    });
    let edit = Message::new(Verb::Edit).with(Field::Json, ask);
    let connection = Connection::to(&dir()).expect("it serves");
    connection.ask(&edit).is_ok()
}

/// In a child: asks for a slot in this group by a raw message, and reports the reply.
pub fn asker(group: Option<&str>) {
    let path = rustix::net::SocketAddrUnix::new(dir().join("socket")).expect("short");
    let kind = rustix::net::SocketType::SEQPACKET;
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).expect("room");
    rustix::net::connect(&socket, &path).expect("it serves");
    let open = Message::new(Verb::Open)
        .with(Field::Abi, ABI_VERSION)
        .with(Field::Access, "workload")
        .with(Field::Label, "inside");
    let open = match group {
        Some(group) => open.with(Field::Group, group),
        None => open,
    };
    send(socket.as_fd(), &open.encode(), &[]).expect("heard");
    let mut bytes = [0; 4096];
    let flags = rustix::net::RecvFlags::empty();
    let (got, _) = rustix::net::recv(&socket, &mut bytes[..], flags).expect("answered");
    let answer = Message::decode(&bytes[..got]).expect("a message");
    match answer.text(Field::Slot) {
        Some(slot) => say(format_args!("slot {slot}")),
        None => say(answer.text(Field::Why).unwrap_or_default()),
    }
    sleep_on();
}

/// In a child: writes other names over the names of all groups, once.
pub fn renamer() {
    let [state, ..] = handed().map(File::from);
    let (groups, all) = offset("State", "groups");
    let (name, length) = offset("Group", "name");
    for index in 0..256 {
        let at = groups + index * (all / 256) + name;
        state
            .write_all_at(&vec![0x41 + index as u8 % 26; length as usize], at)
            .expect("a tenant may write");
    }
    say("renamed");
    sleep_on();
}

/// In a child: opens as many connections as it can, sends nothing or half a message, and sends descriptors.
pub fn flooder() {
    let mut open = Vec::new();
    let (one, other) = UnixStream::pair().expect("room");
    for round in 0..600 {
        let address = rustix::net::SocketAddrUnix::new(dir().join("socket")).expect("short");
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            None,
        );
        let Ok(socket) = socket else { break };
        if rustix::net::connect(&socket, &address).is_err() {
            continue;
        }
        let fds = [one.as_fd(), other.as_fd()];
        let _ = match round % 4 {
            0 => Ok(()),
            1 => send(socket.as_fd(), b"gpushare 1 op", &[]),
            2 => send(socket.as_fd(), b"gpushare 1 status\n", &fds),
            _ => send(socket.as_fd(), &[0xff; 60_000], &[]),
        };
        open.push(socket);
    }
    say(format_args!("open {}", open.len()));
    sleep_on();
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("root sees it")
        .count()
}

/// Starts a victim that has 3 GiB of its limit of 4 GiB.
fn holder_of_3_of_4_gib(machine: &Machine) -> Tenant {
    let mut alice = machine.joined(ALICE, "victim");
    machine
        .run(0, &["quota", "set", "name:victim", "4GiB"])
        .done();
    assert_eq!(alice.ask("take 3GiB"), "granted");
    alice
}

/// Checks that the victim works, applies edits, and keeps its identity.
pub fn is_well(machine: &Machine, alice: &mut Tenant, quota: &str, bytes: u64) {
    machine
        .run(0, &["quota", "set", "name:victim", quota])
        .done();
    assert_eq!(alice.ask("quota"), format!("Some({bytes})"));
    let seen = machine.process("victim");
    assert_eq!(
        (&seen["pid"], &seen["user"]),
        (&alice.pid().into(), &ALICE.to_string().into())
    );
}

#[test]
fn what_a_tenant_is_handed_it_cannot_cut_seal_or_open_again() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "victim");
    let vandal = machine.plays(MALLORY, "vandal", &[]);
    assert_eq!(vandal.hear(), "did ");
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
}

#[test]
fn nor_can_root_without_the_right_to_mount_as_it_is_in_a_container() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let _alice = machine.joined(ALICE, "victim");
    // The capability set of root in a podman container.
    let kept = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+setfcap";
    let vandal = machine.plays_through(&["setpriv", "--bounding-set", kept], "vandal");
    let did = vandal.hear();
    // Such a root may change names in the directory, unless it is mounted read-only.
    let names = ["made a file", "removed", "renamed"];
    let rest: Vec<&str> = did
        .trim_start_matches("did ")
        .split(", ")
        .filter(|one| !one.is_empty() && !names.contains(one))
        .collect();
    assert_eq!(rest, Vec::<&str>::new(), "{did}");
}

#[test]
fn locks_on_all_that_a_tenant_may_lock_hold_up_nobody() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "victim");
    let locker = machine.plays(MALLORY, "locker", &[]);
    assert_eq!(locker.hear(), "holds");
    let begun = Instant::now();
    let late = machine.joined(ALICE, "late");
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
    drop(late);
    eventually("its slot is given back", PATIENCE, || {
        machine.processes().len() == 1
    });
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn random_bytes_over_the_state_end_nobody_and_change_no_identity_and_no_quota() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.joined(ALICE, "victim");
    let mut bob = machine.joined(ALICE, "other");
    let scribbler = machine.plays(MALLORY, "scribbler", &["1"]);
    assert_eq!(scribbler.hear(), "begins");
    // During the attack.
    let begun = Instant::now();
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
    assert_eq!(scribbler.hear(), "written");
    drop(scribbler);
    is_well(&machine, &mut alice, "2GiB", 2 * GIB);
    let said = machine.run(0, &["doctor", "--json"]);
    assert!(
        said.out.contains("damaged") || said.out.contains("forged"),
        "{said:?}"
    );
    for tenant in [&mut alice, &mut bob] {
        assert_eq!(tenant.ask("lock"), "held");
        assert_eq!(tenant.ask("unlock"), "released");
    }
    machine.joined(ALICE, "new");
    assert!(begun.elapsed() < Duration::from_secs(40));
}

#[test]
fn random_bytes_over_the_state_count_no_program_that_found_no_slot_and_the_broker_counts_those_that_did()
 {
    let Some(machine) = Machine::serving(&["--per-user", "1"]) else {
        return;
    };
    let _alice = machine.joined(ALICE, "one");
    let scribbler = machine.plays(MALLORY, "scribbler", &["1"]);
    assert_eq!(scribbler.hear(), "begins");
    assert_eq!(scribbler.hear(), "written");
    drop(scribbler);
    let shown = || machine.run(0, &["ps"]).done().err;
    let said = shown();
    assert!(!said.contains("no free slot"), "{said}");
    let refused = machine.tenant(ALICE, "two").hear();
    assert!(refused.contains("one user may have 1"), "{refused}");
    let said = shown();
    assert!(said.contains("1 program found no free slot"), "{said}");
    assert!(!said.contains("GPUSHARE_DIR"), "{said}");
}

#[test]
fn random_bytes_over_the_state_give_the_victim_no_byte_more_and_soon_no_byte_less() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = holder_of_3_of_4_gib(&machine);
    let scribbler = machine.plays(MALLORY, "scribbler", &["3"]);
    assert_eq!(scribbler.hear(), "begins");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(alice.ask("take 1025MiB"), "denied");
        assert_eq!(alice.ask("lock"), "held");
        assert_eq!(alice.ask("unlock"), "released");
    }
    assert_eq!(scribbler.hear(), "written");
    eventually("what it has is shown again", PATIENCE, || {
        machine.process("victim")["devices"][0]["used_bytes"] == 3 * GIB
    });
    eventually("what fits is granted again", PATIENCE, || {
        alice.ask("take 1GiB") == "granted"
    });
    assert_eq!(alice.ask("take 1B"), "denied");
    machine.joined(ALICE, "new");
}

#[test]
fn what_a_tenant_says_of_the_victims_account_is_not_believed() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = holder_of_3_of_4_gib(&machine);
    let mut liar = machine.plays(MALLORY, "liar", &[]);
    for bytes in [0, u64::MAX, 4 * GIB] {
        assert_eq!(liar.ask(&bytes.to_string()), "told");
        assert_eq!(alice.ask("take 2GiB"), "denied");
        assert_eq!(alice.ask("take 1MiB"), "granted");
    }
    let has = 3 * GIB + (3 << 20);
    eventually("the tools see what it has", PATIENCE, || {
        machine.process("victim")["devices"][0]["used_bytes"] == has
    });
}

#[test]
fn who_is_struck_off_the_queue_stands_in_it_again() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine.run(0, &["policy", "set", "all", "always"]).done();
    let mut bob = machine.joined(ALICE, "holder");
    let mut alice = machine.joined(ALICE, "victim");
    let mut mugger = machine.plays(MALLORY, "mugger", &[]);
    assert_eq!(bob.ask("lock"), "held");
    alice.tell("lock");
    let waits = || machine.process("victim")["devices"][0]["lock"]["state"] == "wait";
    eventually("it waits", PATIENCE, waits);
    assert_eq!(mugger.ask("strike"), "struck off");
    assert_eq!(bob.ask("unlock"), "released");
    assert_eq!(alice.hear(), "held");
}

#[test]
fn who_writes_over_the_state_raises_no_quota_of_its_own() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut mallory = machine.joined(MALLORY, "mine");
    let mut raiser = machine.plays(MALLORY, "raiser", &[]);
    for limit in ["4GiB", "25%"] {
        machine.run(0, &["quota", "set", "name:mine", limit]).done();
        for more in ["8GiB", "100%"] {
            assert_eq!(raiser.ask(more), "permitted 0", "{limit} {more}");
            assert_eq!(mallory.ask("take 5GiB"), "denied", "{limit} {more}");
        }
    }
}

#[test]
fn root_without_the_rights_of_root_and_members_by_their_own_word_edit_nothing_of_others() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let victim = machine.tenant(0, "victim");
    assert_eq!(victim.hear(), "slot 0 1");
    // A process as in podman's containers: a pid namespace, root's user id, and fewer capabilities than root.
    let bounded = "-all,+chown,+dac_override,+fowner,+setgid,+setuid,+kill";
    let groups = ADMINS.to_string();
    let meddler = machine.plays_through(
        &[
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "setpriv",
            "--bounding-set",
            bounded,
            "--groups",
            &groups,
        ],
        "meddler",
    );
    assert_eq!(meddler.hear(), "did ");
    // The same requests by root succeed, which shows that the test can fail.
    let root = machine.plays(0, "meddler", &[]);
    assert_eq!(
        root.hear(),
        "did set a policy, named 0, traced 0, took over"
    );
}

#[test]
fn a_slot_that_the_broker_did_not_give_is_forged_and_the_victim_of_a_forger_keeps_its_edits() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.tenant(ALICE, "victim");
    assert_eq!(alice.hear(), "slot 0 1");
    let mut forger = machine.plays(MALLORY, "forger", &[]);
    assert_eq!(forger.hear(), "forged");
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
    let mut forged = false;
    eventually("it is shown as forged", PATIENCE, || {
        forger.ask("again");
        let all = machine.processes();
        forged = all.iter().any(|one| one["state"] == "forged");
        forged
    });
    drop(forger);
    eventually("the broker has taken it back", PATIENCE, || {
        machine.processes().len() == 1
    });
    is_well(&machine, &mut alice, "2GiB", 2 * GIB);
}

#[test]
fn a_slot_that_is_cleared_of_a_forged_claim_is_not_taken_from_who_gets_it_meanwhile() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let claimer = machine.plays(MALLORY, "claimer", &[]);
    assert_eq!(claimer.hear(), "claims");
    // During several rounds of the broker.
    let begun = Instant::now();
    let mut all = Vec::new();
    while begun.elapsed() < Duration::from_secs(4) {
        let tenant = machine.tenant(ALICE, "one");
        assert!(tenant.hear().starts_with("slot "));
        all.push(tenant);
        if all.len() > 8 {
            all.remove(0);
        }
    }
    for tenant in &mut all {
        // A process that has lost its slot reports that first.
        assert_eq!(tenant.ask("take 1GiB"), "granted");
    }
    drop(claimer);
    let theirs = || {
        machine
            .processes()
            .iter()
            .filter(|one| one["name"] == "one")
            .count()
    };
    eventually("those are there", PATIENCE, || theirs() == all.len());
}

#[test]
fn who_renames_a_group_gives_its_next_member_no_limit_of_its_own() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine
        .run(0, &["group", "create", "team", "memory=4GiB"])
        .done();
    let member = |label: &str| {
        let tenant = machine.plays(ALICE, "tenant", &[label, "team"]);
        assert!(tenant.hear().starts_with("slot "));
        tenant
    };
    let mut first = member("first");
    assert_eq!(first.ask("take 3GiB"), "granted");
    let renamer = machine.plays(MALLORY, "renamer", &[]);
    assert_eq!(renamer.hear(), "renamed");
    let mut second = member("second");
    assert_eq!(second.ask("take 2GiB"), "denied");
    assert_eq!(second.ask("take 1GiB"), "granted");
    eventually("both are shown in their group again", PATIENCE, || {
        let all = machine.processes();
        all.iter().filter(|one| one["group"] == "team").count() == 2
    });
}

/// Has two members of a group with 4 GiB take 64 MiB in turn until both are denied. Returns the bytes they got.
fn fill_a_group(machine: &Machine, hostile: impl FnOnce() -> Tenant) -> u64 {
    machine
        .run(0, &["group", "create", "team", "memory=4GiB"])
        .done();
    let members = ["first", "second"].map(|label| {
        let tenant = machine.plays(ALICE, "tenant", &[label, "team"]);
        assert!(tenant.hear().starts_with("slot "));
        tenant
    });
    fill(members, hostile())
}

fn fill(mut members: [Tenant; 2], hostile: Tenant) -> u64 {
    assert_eq!(hostile.hear(), "begins");
    let (mut got, mut denied) = (0, [0; 2]);
    // Each is denied often, to find values that are right only for a moment.
    while denied.iter().any(|times| *times < 200) && got <= 2 * 4 * GIB {
        for (member, denied) in members.iter_mut().zip(&mut denied) {
            match member.ask("take 64MiB").as_str() {
                "granted" => got += 64 << 20,
                other => {
                    assert_eq!(other, "denied");
                    *denied += 1;
                }
            }
        }
    }
    got
}

#[test]
fn who_writes_zeros_over_the_state_gives_a_group_no_byte_more_and_no_byte_less() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let got = fill_a_group(&machine, || machine.plays(MALLORY, "eraser", &[]));
    assert_eq!(got, 4 * GIB);
}

#[test]
fn who_writes_zeros_over_the_state_gives_all_on_a_device_together_no_byte_more_and_no_byte_less() {
    let Some(machine) = Machine::new() else {
        return;
    };
    // Two users without a group.
    let members = [(ALICE, "first"), (0, "second")].map(|(uid, label)| machine.joined(uid, label));
    let limit = machine.path("limit.toml");
    fs::write(&limit, "[limit]\n\"0\" = \"4GiB\"\n").expect("room");
    let limit = limit.display().to_string();
    machine.run(0, &["apply", &limit]).done();
    let got = fill(members, machine.plays(MALLORY, "eraser", &[]));
    assert_eq!(got, 4 * GIB);
}

#[test]
fn who_writes_random_bytes_over_the_state_gives_a_group_no_byte_more_and_no_byte_less() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let got = fill_a_group(&machine, || machine.plays(MALLORY, "scribbler", &["20"]));
    assert_eq!(got, 4 * GIB);
}

/// In a child: sends requests repeatedly and reads no reply.
pub fn deaf() {
    let connection = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    );
    let socket = connection.expect("room");
    let address = rustix::net::SocketAddrUnix::new(dir().join("socket")).expect("short");
    rustix::net::connect(&socket, &address).expect("it serves");
    let asked = (0..100_000)
        .take_while(|_| send(socket.as_fd(), b"gpushare 1 status\n", &[]).is_ok())
        .count();
    say(format_args!("asked {asked}"));
    sleep_on();
}

#[test]
fn who_asks_and_reads_no_answer_is_let_go_and_holds_up_nobody() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = descriptors(machine.broker_pid());
    let mut alice = machine.joined(ALICE, "victim");
    let deaf = machine.plays(MALLORY, "deaf", &[]);
    let begun = Instant::now();
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let asked = deaf.hear();
    let asked = asked
        .strip_prefix("asked ")
        .and_then(|count| count.parse().ok());
    assert!(
        asked.is_some_and(|count: usize| count < 100_000),
        "{asked:?}"
    );
    eventually("it is let go", PATIENCE, || {
        descriptors(machine.broker_pid()) <= before + 2
    });
}

#[test]
fn a_flood_of_connections_keeps_nobody_out_and_leaves_nothing_open() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let before = descriptors(machine.broker_pid());
    let flooder = machine.plays(MALLORY, "flooder", &[]);
    assert!(flooder.hear().starts_with("open "));
    let begun = Instant::now();
    let mut alice = machine.joined(ALICE, "victim");
    is_well(&machine, &mut alice, "4GiB", 4 * GIB);
    assert!(begun.elapsed() < Duration::from_secs(20));
    // The broker has closed all connections of the flood, although the sender lives.
    eventually("all are let go", PATIENCE, || {
        descriptors(machine.broker_pid()) <= before + 2
    });
}

#[test]
fn a_tenant_that_stops_while_it_holds_the_lock_loses_it() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine
        .run(0, &["policy", "set", "all", "timeslice=5ms", "max-hold=1s"])
        .done();
    let mut mallory = machine.joined(MALLORY, "holder");
    let mut alice = machine.joined(ALICE, "victim");
    assert_eq!(mallory.ask("lock"), "held");
    let pid = rustix::process::Pid::from_child(&mallory.child);
    rustix::process::kill_process(pid, Signal::STOP).expect("ours");
    assert_eq!(alice.ask("lock"), "held");
    rustix::process::kill_process(pid, Signal::CONT).expect("ours");
}

#[test]
fn a_broker_that_hangs_holds_up_a_start_for_a_second_and_a_limit_is_not_lost() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let pid = rustix::process::Pid::from_raw(machine.broker_pid() as i32).expect("one runs");
    rustix::process::kill_process(pid, Signal::STOP).expect("ours");
    let begun = Instant::now();
    let said = machine.tenant(ALICE, "late").hear();
    assert!(said.contains("does not answer"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    let limited = machine.run(ALICE, &["run", "--memory", "1GiB", "true"]);
    assert_ne!(limited.code, 0, "{limited:?}");
    rustix::process::kill_process(pid, Signal::CONT).expect("ours");
    machine.joined(ALICE, "now");
}

#[test]
fn groups_that_a_tenant_makes_up_take_no_place_from_an_administrators() {
    let Some(machine) = Machine::new() else {
        return;
    };
    // More groups than an operator may define.
    let crowd: Vec<_> = (0..70)
        .map(|index| machine.plays(MALLORY, "asker", &[&format!("made-up-{index}")]))
        .collect();
    for one in &crowd {
        let said = one.hear();
        assert!(said.starts_with("slot "), "{said}");
    }
    machine
        .run(0, &["group", "create", "prod", "memory=2GiB"])
        .done();
    let members = ["first", "second"].map(|label| {
        let tenant = machine.plays(ALICE, "tenant", &[label, "prod"]);
        assert!(tenant.hear().starts_with("slot "));
        tenant
    });
    let [mut first, mut second] = members;
    assert_eq!(first.ask("take 3GiB"), "denied");
    assert_eq!(first.ask("take 1GiB"), "granted");
    assert_eq!(second.ask("take 2GiB"), "denied");
    assert_eq!(second.ask("take 1GiB"), "granted");
    assert_eq!(machine.process("second")["group"], "prod");
}
