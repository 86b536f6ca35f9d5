//! The death of a broker, and the start of another.

use std::os::unix::process::ExitStatusExt as _;

use crate::support::*;

/// The steps of taking a slot, its accounts, a device and memory on it.
const STEPS: [&str; 11] = [
    "page:handed",
    "page:mapped",
    "page:told",
    "register:claimed",
    "register:filled",
    "register:published",
    "page:begun",
    "page:named",
    "page:placed",
    "device:entered",
    "reserve:done",
];

/// Makes a machine with a group whose limit is 4 GiB.
fn with_a_team() -> Option<Machine> {
    let machine = Machine::new()?;
    machine
        .run(0, &["group", "create", "team", "memory=4GiB"])
        .done();
    Some(machine)
}

/// Starts a member of that group and waits until it has its slot.
fn member(machine: &Machine, label: &str) -> Tenant {
    let tenant = machine.plays(ALICE, "tenant", &[label, "team"]);
    let said = tenant.hear();
    assert!(said.starts_with("slot "), "{said}");
    tenant
}

/// In a child: a member of a group that dies at this step.
pub fn dies(at: &str) {
    shm_layout::crash::arm(at);
    tenant("gone", Some("team"));
}

#[cfg(debug_assertions)]
#[test]
fn who_dies_at_any_step_of_the_way_in_keeps_nothing_whichever_broker_is_there_then() {
    let Some(mut machine) = with_a_team() else {
        return;
    };
    // A living process is needed, or no memory would remain to be found again.
    let mut witness = machine.joined(ALICE, "witness");
    for (step, also_the_broker) in STEPS
        .iter()
        .flat_map(|step| [(*step, false), (*step, true)])
    {
        let mut gone = machine.plays(MALLORY, "dies", &[step]);
        if step.starts_with("reserve") {
            assert!(gone.hear().starts_with("slot "));
            gone.tell("take 3GiB");
        }
        let mut status = None;
        eventually(step, PATIENCE, || {
            status = gone.child.try_wait().expect("ours");
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.signal()), Some(9), "{step}");
        if also_the_broker {
            machine.kill_broker();
            let line = machine.serve(&[]);
            assert!(line.contains("found the memory"), "{step}: {line}");
        }
        let mut member = member(&machine, "member");
        eventually("the group has its memory", PATIENCE, || {
            member.ask("take 4GiB") == "granted"
        });
        assert_eq!(member.ask("take 1MiB"), "denied", "{step}");
        drop(member);
        eventually("all slots but one are given back", PATIENCE, || {
            witness.ask("look") == "1 []"
        });
    }
}

#[test]
fn a_killed_broker_is_missed_by_nobody_and_the_next_one_finds_everything() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.tenant(ALICE, "train");
    let slot = alice.hear();
    machine
        .run(0, &["quota", "set", "name:train", "4GiB"])
        .done();
    assert_eq!(alice.ask("take 1GiB"), "granted");
    machine.kill_broker();
    // The last settings stay in force.
    assert_eq!(alice.ask("take 5GiB"), "denied");
    let late = machine.tenant(MALLORY, "late").hear();
    assert!(late.contains("does not answer"), "{late}");

    let line = machine.serve(&[]);
    assert!(line.contains("found the memory"), "{line}");
    let seen = machine.process("train");
    assert_eq!(seen["pid"], alice.pid());
    assert_eq!(seen["devices"][0]["used_bytes"], GIB);
    machine
        .run(0, &["quota", "set", "name:train", "8GiB"])
        .done();
    assert_eq!(alice.ask("take 5GiB"), "granted");
    let other = machine.tenant(MALLORY, "other").hear();
    assert_ne!(other, slot);
    assert_eq!(machine.audit().len(), 2);
}

#[test]
fn a_group_keeps_its_limit_over_the_death_of_its_broker_whoever_writes() {
    let Some(mut machine) = with_a_team() else {
        return;
    };
    let (mut first, mut second) = (member(&machine, "first"), member(&machine, "second"));
    assert_eq!(first.ask("take 1GiB"), "granted");
    machine.kill_broker();
    // This process has not received the other's accounts yet.
    assert_eq!(second.ask("take 1GiB"), "granted");
    assert_eq!(second.ask("take 3GiB"), "denied");
    machine.serve(&[]);
    let mut third = member(&machine, "third");
    let eraser = machine.plays(MALLORY, "eraser", &[]);
    assert_eq!(eraser.hear(), "begins");
    assert_eq!(third.ask("take 3GiB"), "denied");
    assert_eq!(third.ask("take 1GiB"), "granted");
    assert_eq!(second.ask("take 2GiB"), "denied");
    let maps = format!("/proc/{}/maps", first.pid());
    eventually(
        "the first one has the accounts of all three mapped",
        PATIENCE,
        || {
            let maps = std::fs::read_to_string(&maps).expect("it lives");
            maps.matches("gpushare-account").count() == 3
        },
    );
    machine.kill_broker();
    assert_eq!(first.ask("take 2GiB"), "denied");
    assert_eq!(first.ask("take 1GiB"), "granted");
    for all in [&mut first, &mut second, &mut third] {
        assert_eq!(all.ask("take 1B"), "denied");
    }
}

#[test]
fn who_died_while_no_broker_ran_is_cleared_away_by_the_next() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let stays = machine.tenant(ALICE, "stays");
    let goes = machine.tenant(ALICE, "goes");
    assert!(stays.hear().starts_with("slot") && goes.hear().starts_with("slot"));
    machine.kill_broker();
    drop(goes);
    machine.serve(&[]);
    eventually("its slot is free", PATIENCE, || {
        machine.processes().len() == 1
    });
    assert_eq!(machine.processes()[0]["name"], "stays");
}

#[test]
fn settings_outlive_all_processes_and_the_broker() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.run(0, &["policy", "set", "all", "always"]).done();
    assert_eq!(machine.tenant(ALICE, "first").hear(), "slot 0 1");
    machine.kill_broker();
    let line = machine.serve(&[]);
    assert!(!line.contains("found the memory"), "nobody had it: {line}");
    machine.tenant(ALICE, "again").hear();
    let shown = machine.run(0, &["policy", "show"]).done();
    assert!(shown.out.contains("always"), "{shown:?}");
    eventually("the slot of the dead is given back", PATIENCE, || {
        let again = machine.tenant(ALICE, "again").hear();
        assert_ne!(again, "slot 0 1", "a life is never lived twice");
        again.starts_with("slot 0 ")
    });
}

#[test]
fn an_upgrade_takes_over_from_the_broker_that_runs() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let mut alice = machine.tenant(ALICE, "train");
    alice.hear();
    machine
        .run(0, &["quota", "set", "name:train", "4GiB"])
        .done();
    let before = machine.broker_pid();
    let mut earlier = machine.take_broker();
    let line = machine.serve(&["--upgrade"]);
    assert!(line.contains("found the memory"), "{line}");
    assert_ne!(machine.broker_pid(), before);
    eventually("the earlier one ends", PATIENCE, || {
        earlier.0.try_wait().expect("ours").is_some()
    });
    assert_eq!(machine.process("train")["pid"], alice.pid());
    machine
        .run(0, &["quota", "set", "name:train", "2GiB"])
        .done();
    assert_eq!(alice.ask("take 3GiB"), "denied");
    let second = machine.command(0, &["serve"]).output().expect("started");
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("--upgrade"),
        "{second:?}"
    );
}

#[test]
fn only_root_takes_over() {
    let Some(machine) = Machine::new() else {
        return;
    };
    machine
        .run(ALICE, &["serve", "--upgrade"])
        .refused(4, &["only root"]);
    assert_eq!(
        machine.plays(ALICE, "upgrade", &[]).hear(),
        "only root may take over from a broker"
    );
    machine.run(0, &["ps"]).done();
}

#[test]
fn without_a_broker_a_preloaded_program_runs_unmanaged_and_one_with_a_limit_does_not_begin() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.kill_broker();
    let bed = gpushare_testbed::Testbed::new();
    let run = |limit: Option<&str>| {
        let mut command = bed.workload(&["--seconds", "1"]);
        command.env("GPUSHARE_DIR", machine.dir());
        command.envs(limit.map(|limit| ("GPUSHARE_MEMORY", limit)));
        said(&mut command)
    };
    let free = run(None).done();
    assert!(free.err.contains("does not answer"), "{free:?}");
    assert!(free.err.contains("runs unmanaged"), "{free:?}");
    let limited = run(Some("1GiB"));
    assert_ne!(limited.code, 0, "{limited:?}");
    assert!(
        limited.err.contains("CUDA is not initialised"),
        "{limited:?}"
    );
}

#[test]
fn who_starts_with_a_limit_while_no_broker_serves_is_told_to_start_one() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.bring("libgpushare.so", "libgpushare.so");
    machine.kill_broker();
    let words = ["run", "--memory", "1GiB", "true"];
    let said = machine.run(ALICE, &words);
    let said = said.refused(1, &["does not answer", "systemctl restart gpushare"]);
    // In private segments it would be invisible to all other processes.
    assert!(!said.err.contains("GPUSHARE_DIR"), "{said:?}");
}

#[test]
fn what_the_service_manager_kept_is_found_when_no_process_has_the_memory_any_more() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    assert_eq!(machine.tenant(ALICE, "gone").hear(), "slot 0 1");
    let broker = machine.broker_pid();
    let kept = std::fs::read_dir(format!("/proc/{broker}/fd")).expect("ours");
    let kept = kept.flatten().map(|entry| entry.path());
    let is_state = |path: &std::path::PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target
            .to_string_lossy()
            .starts_with("/memfd:gpushare-state")
    };
    let state = kept.into_iter().find(is_state).expect("it holds the state");
    // The form in which systemd passes it: descriptor 3, with a name.
    let script = format!(
        "exec 3<>{}; kill -9 {broker}; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=state exec {} serve --group {USERS}",
        state.display(),
        machine.path("gpushare").display()
    );
    let line = machine.serve_by(&script);
    assert!(line.contains("found the memory"), "{line}");
    assert!(machine.tenant(ALICE, "next").hear().starts_with("slot "));
}
