//! Identities: the user and container that the broker derives for a process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::*;

#[test]
fn a_process_is_who_the_kernel_says_whatever_its_slot_claims() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let alice = machine.tenant(ALICE, "train");
    assert_eq!(alice.hear(), "slot 0 1");
    let seen = machine.process("train");
    assert_eq!(seen["pid"], alice.pid());
    assert_eq!(seen["user"], ALICE.to_string());
    assert_eq!(seen["state"], "idle");
}

#[test]
fn a_user_outside_the_group_gets_a_sentence() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let said = machine.run(STRANGER, &["ps"]);
    said.refused(4, &["you may not use", "socket", "group"]);
    assert!(
        machine
            .tenant(STRANGER, "x")
            .hear()
            .starts_with("refused you may not use")
    );
}

#[test]
fn a_process_that_the_brokers_container_does_not_see_gets_a_sentence() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    machine.kill_broker();
    machine.serve_by(&format!(
        "exec unshare --pid --fork --kill-child --mount-proc {} serve --group {USERS}",
        machine.path("gpushare").display()
    ));
    let heard = machine.tenant(ALICE, "train").hear();
    assert!(heard.contains("does not see this process"), "{heard}");
    let said = machine.run(ALICE, &["ps"]);
    said.refused(1, &["does not see this process", "hostPID"]);
}

#[test]
fn no_user_takes_all_slots() {
    let Some(machine) = Machine::serving(&["--per-user", "2"]) else {
        return;
    };
    let both = [machine.tenant(MALLORY, "a"), machine.tenant(MALLORY, "b")];
    for one in &both {
        assert!(one.hear().starts_with("slot "));
    }
    let third = machine.tenant(MALLORY, "c").hear();
    assert!(third.contains("one user may have 2"), "{third}");
    assert!(machine.tenant(ALICE, "d").hear().starts_with("slot "));
    drop(both);
    eventually("a slot is free again", PATIENCE, || {
        machine.tenant(MALLORY, "e").hear().starts_with("slot ")
    });
}

#[test]
fn all_numbers_of_a_users_own_namespaces_count_for_that_user() {
    let Some(machine) = Machine::serving(&["--per-user", "2"]) else {
        return;
    };
    // A process of a rootless container with a mapped user id.
    let as_number = |number: u32| {
        let script = format!(
            "setpriv --reuid {MALLORY} --regid {USERS} --clear-groups unshare --user sleep 60 & \
             inside=/proc/$!; \
             until [ \"$(readlink $inside/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do sleep 0.01; done; \
             printf '0 {MALLORY} 1\\n1 7000000 10' > $inside/uid_map; echo 0 {USERS} 1 > $inside/gid_map; \
             exec nsenter --target $! --user --setuid {number} --setgid 0 \"$@\""
        );
        machine.plays_through(&["sh", "-c", &script, "sh"], "asker")
    };
    let both = [as_number(3), as_number(4)];
    for one in &both {
        let said = one.hear();
        assert!(said.starts_with("slot "), "{said}");
    }
    let third = as_number(5).hear();
    assert!(
        third.contains(&format!("user {MALLORY} has 2 slots")),
        "{third}"
    );
    assert!(machine.tenant(ALICE, "d").hear().starts_with("slot "));
}

#[test]
fn the_root_of_a_container_takes_no_slots_from_the_machines_root() {
    let Some(mut machine) = Machine::serving(&["--per-user", "2"]) else {
        return;
    };
    let inside = |machine: &Machine| {
        let words = ["unshare", "--pid", "--fork", "--mount-proc"];
        machine.plays_through(&words, "tenant inside")
    };
    let both = [inside(&machine), inside(&machine)];
    for one in &both {
        assert!(one.hear().starts_with("slot "));
    }
    let third = inside(&machine).hear();
    assert!(
        third.contains("root in namespaces of its own has 2 slots"),
        "{third}"
    );
    let root = [machine.tenant(0, "a"), machine.tenant(0, "b")];
    for one in &root {
        assert!(one.hear().starts_with("slot "));
    }
    // The next broker recognises the owner.
    machine.kill_broker();
    machine.serve(&["--per-user", "3"]);
    assert!(inside(&machine).hear().starts_with("slot "));
    drop(root);
    eventually("root has room", PATIENCE, || machine.processes().len() == 2);
    assert!(machine.tenant(0, "c").hear().starts_with("slot "));
}

#[test]
fn all_numbers_in_a_container_that_root_made_count_for_the_container() {
    let Some(mut machine) = Machine::serving(&["--per-user", "2"]) else {
        return;
    };
    let Some(tree) = Tree::of(0) else {
        return;
    };
    // The container's root takes one user id after another.
    let as_number = |machine: &Machine, number: u32| {
        let script = format!(
            "mkdir -p {0} && echo $$ > {0}/cgroup.procs && exec unshare --pid --fork --kill-child --mount-proc \
             setpriv --reuid {number} --regid {USERS} --clear-groups \"$@\"",
            tree.0
                .join(format!("docker-{}.scope", "9f3c".repeat(16)))
                .display()
        );
        machine.plays_through(&["sh", "-c", &script, "sh"], "asker")
    };
    let both = [10_001, 10_002].map(|number| as_number(&machine, number));
    for one in &both {
        let said = one.hear();
        assert!(said.starts_with("slot "), "{said}");
    }
    let full = "container 9f3c9f3c9f3c has 2 slots";
    let third = as_number(&machine, 10_003).hear();
    assert!(third.contains(full), "{third}");
    assert!(machine.tenant(ALICE, "d").hear().starts_with("slot "));
    // The next broker recognises the owner.
    machine.kill_broker();
    machine.serve(&["--per-user", "2"]);
    let third = as_number(&machine, 10_004).hear();
    assert!(third.contains(full), "{third}");
}

#[test]
fn who_names_a_cgroup_as_a_container_or_a_job_is_neither() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let container = format!("docker-{}.scope", "9f3c".repeat(16));
    let inside = |uid: u32, name: &str, label: &str| {
        let (tree, tenant) = machine.in_cgroup(uid, name, label)?;
        Some((machine.process(label), tenant, tree))
    };
    // Cgroups made by root are trusted, which shows that the test can fail.
    let Some((real, ..)) = inside(0, &container, "real") else {
        return;
    };
    assert_eq!(real["container"], "9f3c9f3c9f3c");
    let (job, ..) = inside(0, "job_4711", "batch").expect("as before");
    assert_eq!(job["job"], "4711");
    let (forged, ..) = inside(MALLORY, &container, "forged").expect("as before");
    assert_eq!(forged["container"], format!("{MALLORY}/9f3c9f3c9f3c"));
    let (forged, ..) = inside(MALLORY, "job_4711", "worker").expect("as before");
    assert_eq!(forged["job"], serde_json::Value::Null);
}

#[test]
fn a_tenant_finds_nothing_of_the_broker_but_its_socket() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let names: Vec<_> = fs::read_dir(machine.dir())
        .expect("there")
        .flatten()
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let mode =
        |path: &std::path::Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&machine.dir()), 0o755);
    assert_eq!(mode(&machine.dir().join("socket")), 0o660);
    assert_eq!(mode(&machine.path("run-private")), 0o700);
    for name in ["control", "identity"] {
        assert_eq!(mode(&machine.path("run-private").join(name)), 0o600);
    }
}

#[test]
fn another_release_is_told_by_a_sentence() {
    use shm_layout::wire::{Field, Message, Verb};
    let Some(machine) = Machine::new() else {
        return;
    };
    let ask = |message: Message| {
        let connection = shm_layout::socket::Connection::to(&machine.dir()).expect("it serves");
        connection.ask(&message).expect_err("refused").to_string()
    };
    let older = Message::new(Verb::Open)
        .with(Field::Abi, 3)
        .with(Field::Access, "workload");
    let why = ask(older);
    assert!(
        why.contains("version 3") && why.contains("one release"),
        "{why}"
    );
}
