//! Tests with real processes: killed, stopped, forked, re-executed, and many at once.

mod common;

use std::{path::Path, thread, time::Duration};

use common::*;
use rustix::process::Signal;
use shm_layout::*;

/// Plays the child's part in a child process.
fn child() {
    let Some((action, dir)) = role() else { return };
    act(&action, &dir);
    std::process::exit(0);
}

fn act(action: &str, dir: &Path) {
    let segments = Segments::open_workload(dir).expect("segments");
    if action == "fill and die" {
        let process = register(&segments, &Identity::default(), &LaunchLimits::default());
        let process = process.expect("a slot");
        for index in 0..DEVICES_PER_PROCESS as u8 {
            process
                .add_device([index + 220; 16], index, "", 1, 0)
                .expect("room");
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
    if action == "register" {
        let (_process, _) = process(&segments, "one of many");
        say("registered");
        sleep_on();
    }
    let (process, entry) = process(&segments, action);
    let process: &'static Registration = Box::leak(Box::new(process));
    let (send, ready) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let _mark = process.attach_keeper().expect("a robust list");
        send.send(()).expect("heard");
        loop {
            process.heartbeat(clock::now());
            thread::sleep(Duration::from_millis(50));
        }
    });
    ready.recv().expect("a keeper");
    process.ledger(entry).charge_unchecked(MIB);
    assert!(process.lock(entry).try_acquire(clock::now()));
    match action {
        "hold" => say("holding"),
        "hold much" => {
            let ballast = vec![1u8; 256 << 20];
            std::hint::black_box(&ballast);
            say("holding");
            sleep_on();
        }
        "exec" => {
            say("holding");
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("told");
            let error = std::os::unix::process::CommandExt::exec(
                std::process::Command::new("sleep").arg("60"),
            );
            panic!("not executed: {error}");
        }
        "fork" => {
            // The forked child outlives its parent and keeps everything that it inherited.
            if fork() == 0 {
                say("holding");
                thread::sleep(Duration::from_secs(60));
            }
        }
        "forked exit" => {
            let child = fork();
            if child == 0 {
                // A forked child must not use what it inherited.
                drop(register_again(process));
                std::process::exit(0);
            }
            let mut status = 0;
            wait_for(child, &mut status);
            assert_eq!(status, 0, "the child ended well");
            say("holding");
        }
        "close" => {
            // A daemon closes every descriptor that it did not open itself.
            let mut line = String::new();
            say("holding");
            std::io::stdin().read_line(&mut line).expect("told");
            for fd in 3..256 {
                close(fd);
            }
            say("closed");
        }
        _ => unreachable!("no such part: {action}"),
    }
    sleep_on();
}

#[expect(unsafe_code, reason = "closes what others opened, as some programs do")]
fn close(fd: i32) {
    // SAFETY: from here on this child uses only the standard descriptors.
    unsafe { libc::close(fd) };
}

#[expect(unsafe_code, reason = "forks as some programs do")]
fn fork() -> i32 {
    // SAFETY: the child of this single-purpose process only sleeps, registers and exits.
    unsafe { libc::fork() }
}

#[expect(unsafe_code, reason = "waits for what fork gave")]
fn wait_for(child: i32, status: &mut i32) {
    // SAFETY: the status is ours to write.
    unsafe { libc::waitpid(child, status, 0) };
}

/// Leaves, in a forked child, the parent's slot and takes a slot of its own.
fn register_again(parent: &'static Registration) -> Registration {
    let segments = parent.segments().clone();
    let own = process(&segments, "forked child").0;
    assert_ne!(own.slot(), parent.slot());
    own
}

fn tell(kid: &mut Kid) {
    std::io::Write::write_all(kid.0.stdin.as_mut().expect("its input"), b"go\n").expect("told");
}

fn holder(test: &str, dir: &Dir, action: &str) -> Kid {
    let mut kid = Kid::spawn(test, dir, action, &[]);
    kid.hear("holding");
    kid
}

#[test]
fn a_killed_holder_loses_the_lock_its_bytes_and_its_slot() {
    child();
    for action in ["hold", "hold much"] {
        let dir = Dir::new();
        let segments = dir.open();
        let kid = holder(
            "a_killed_holder_loses_the_lock_its_bytes_and_its_slot",
            &dir,
            action,
        );
        let (waiter, entry) = process(&segments, "waiter");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock(entry).acquire(&|| false));
            eventually("it waits", PATIENCE, || {
                look(&segments).devices[0].waiters.len() == 1
            });
            kid.signal(Signal::KILL);
            assert!(matches!(
                waiting.join().expect("no panic"),
                Acquire::Held { .. }
            ));
        });
        let view = look(&segments);
        assert_eq!((view.devices[0].takeovers, view.violations), (1, 0));
        eventually("its slot is reaped", PATIENCE, || {
            reap(&segments, clock::now());
            look(&segments).processes.len() == 1
        });
        assert_eq!(segments.state().events().lost(), 0);
    }
}

#[test]
fn a_stopped_holder_is_forced_out_and_finds_out_when_it_comes_back() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    dir.policy(LockPolicy {
        kind: PolicyKind::Timeslice(1_000_000),
        grace_ns: 20_000_000,
        ..LockPolicy::default()
    });
    let kid = holder(
        "a_stopped_holder_is_forced_out_and_finds_out_when_it_comes_back",
        &dir,
        "hold",
    );
    kid.signal(Signal::STOP);
    let (waiter, entry) = process(&segments, "waiter");
    acquire(&waiter, entry);
    let view = look(&segments);
    let stopped = view
        .processes
        .iter()
        .find(|one| one.identity.label == "hold")
        .expect("it lives");
    assert_eq!(stopped.devices[0].lock.forced, 1);
    assert_eq!(stopped.devices[0].lock.state, LockState::Idle);
    kid.signal(Signal::CONT);
    assert_eq!((view.devices[0].forced, view.violations), (1, 0));
}

#[test]
fn a_stopped_waiter_is_passed_over() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let (holder, entry) = process(&segments, "holder");
    assert!(holder.lock(entry).try_acquire(clock::now()));
    let kid = Kid::spawn("a_waiter_for_the_stop_test", &dir, "wait", &[]);
    eventually("it waits", PATIENCE, || {
        look(&segments).devices[0].waiters.len() == 1
    });
    kid.signal(Signal::STOP);
    eventually("it counts as stopped", PATIENCE, || {
        !holder.lock(entry).contended()
    });
    assert_eq!(holder.lock(entry).release(Reason::Idle, clock::now()), None);
    kid.signal(Signal::CONT);
    eventually("it takes part again", PATIENCE, || {
        look(&segments).devices[0].owner.is_some()
    });
}

#[test]
fn a_waiter_for_the_stop_test() {
    let Some((_, dir)) = role() else { return };
    let segments = Segments::open_workload(&dir).expect("segments");
    let (process, entry) = process(&segments, "waiter");
    process.lock(entry).acquire(&|| false);
    sleep_on();
}

#[test]
fn exec_gives_everything_back() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let mut kid = holder("exec_gives_everything_back", &dir, "exec");
    tell(&mut kid);
    let (waiter, entry) = process(&segments, "waiter");
    acquire(&waiter, entry);
    eventually("its slot is reaped", PATIENCE, || {
        reap(&segments, clock::now());
        look(&segments).processes.len() == 1
    });
    assert!(
        kid.0.try_wait().expect("it is ours").is_none(),
        "the new program lives on"
    );
}

#[test]
fn a_forked_child_keeps_nothing_of_its_dead_parent() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let kid = holder(
        "a_forked_child_keeps_nothing_of_its_dead_parent",
        &dir,
        "fork",
    );
    kid.signal(Signal::KILL);
    let (waiter, entry) = process(&segments, "waiter");
    acquire(&waiter, entry);
    eventually("its slot is reaped", PATIENCE, || {
        reap(&segments, clock::now());
        look(&segments).processes.len() == 1
    });
}

#[test]
fn a_forked_child_that_leaves_takes_nothing_from_its_parent() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let _kid = holder(
        "a_forked_child_that_leaves_takes_nothing_from_its_parent",
        &dir,
        "forked exit",
    );
    assert_eq!(reap(&segments, clock::now()), 0);
    let view = look(&segments);
    assert_eq!(view.processes.len(), 1);
    assert_eq!(view.processes[0].alive, Liveness::Live);
    assert_eq!(view.devices[0].owner, Some(view.processes[0].slot));
}

/// Starts a program as the first process of a new pid namespace, and kills the namespace with it.
const NAMESPACE: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];

#[test]
fn equal_thread_ids_in_sibling_pid_namespaces_confuse_nobody() {
    child();
    let possible = std::process::Command::new(NAMESPACE[0])
        .args(&NAMESPACE[1..])
        .arg("true")
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return;
    }
    let test = "equal_thread_ids_in_sibling_pid_namespaces_confuse_nobody";
    let dir = Dir::new();
    let segments = dir.open();
    let start = |role: &str| Kid::spawn_through(&NAMESPACE, test, &dir, role, &[]);
    let mut first = start("hold");
    first.hear("holding");
    let mut second = start("register");
    second.hear("registered");
    let view = look(&segments);
    let pids: Vec<u32> = view.processes.iter().map(|one| one.identity.pid).collect();
    assert_eq!(pids[0], pids[1], "each is the first of its namespace");
    assert_ne!(
        view.processes[0].identity.pid_ns,
        view.processes[1].identity.pid_ns
    );
    let holder = view.devices[0].owner;
    second.signal(Signal::KILL);
    eventually("the second one's slot is reaped", PATIENCE, || {
        reap(&segments, clock::now()) == 1
    });
    let view = look(&segments);
    assert_eq!(
        (view.devices[0].owner, view.processes[0].alive),
        (holder, Liveness::Live)
    );
    first.signal(Signal::KILL);
    let (waiter, entry) = process(&segments, "waiter");
    acquire(&waiter, entry);
}

#[test]
fn closing_every_descriptor_changes_nothing() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let mut kid = holder("closing_every_descriptor_changes_nothing", &dir, "close");
    tell(&mut kid);
    kid.hear("closed");
    assert_eq!(reap(&segments, clock::now()), 0);
    let view = look(&segments);
    assert_eq!(view.processes[0].alive, Liveness::Live);
    assert_eq!(view.devices[0].owner, Some(view.processes[0].slot));
}

#[test]
fn two_hundred_processes_register_at_once() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let mut all: Vec<Kid> = (0..200)
        .map(|_| {
            Kid::spawn(
                "two_hundred_processes_register_at_once",
                &dir,
                "register",
                &[],
            )
        })
        .collect();
    for kid in &mut all {
        kid.hear("registered");
    }
    let view = look(&segments);
    assert_eq!(view.processes.len(), 200);
    assert_eq!(view.unmanaged, 0);
    for kid in &all {
        kid.signal(Signal::KILL);
    }
    for kid in &mut all {
        kid.wait();
    }
    assert_eq!(reap(&segments, clock::now()), 200);
    assert!(look(&segments).processes.is_empty());
}

#[test]
fn a_full_table_is_a_clear_error_and_is_counted() {
    let dir = Dir::new();
    let segments = dir.open();
    let take = || register(&segments, &Identity::default(), &LaunchLimits::default());
    let all: Vec<_> = (0..MAX_PROCESSES)
        .map(|_| take().expect("a slot"))
        .collect();
    let error = take().err().expect("full");
    assert!(
        matches!(
            error,
            RegisterError::Full {
                capacity: MAX_PROCESSES
            }
        ),
        "{error}"
    );
    let view = look(&segments);
    assert_eq!(view.unmanaged, 1);
    assert!(view.unmanaged_ns > 0 && view.unmanaged_ns <= view.time_ns);
    drop(all);
    let again = take().expect("a slot again");
    assert!(again.slot().epoch > 1, "a re-used slot has a new epoch");
}

#[test]
fn a_device_that_no_process_uses_gives_its_place_to_another_and_one_that_is_used_keeps_it() {
    child();
    let dir = Dir::new();
    let segments = dir.open();
    let stays = fill_devices(&segments);
    let used: Vec<_> = (1..MAX_DEVICES / DEVICES_PER_PROCESS)
        .map(|part| {
            let (process, _) = process(&segments, "");
            for index in 0..DEVICES_PER_PROCESS as u8 - 1 {
                let uuid = [part as u8 * 50 + index; 16];
                process.add_device(uuid, index, "", 1, 0).expect("room");
            }
            process
        })
        .collect();
    let places = look(&segments).devices;
    assert_eq!(places.len(), MAX_DEVICES);
    assert_eq!((places[0].uuid, places[1].uuid), ([1; 16], GPU));
    // Devices of dead processes count as used until their slots are freed.
    let mut kid = Kid::spawn(
        "a_device_that_no_process_uses_gives_its_place_to_another_and_one_that_is_used_keeps_it",
        &dir,
        "fill and die",
        &[],
    );
    kid.wait();
    let next = register(&segments, &Identity::default(), &LaunchLimits::default()).expect("a slot");
    for index in 0..DEVICES_PER_PROCESS as u8 {
        let entered = next.add_device([index + 240; 16], index, "New GPU", 2, 0);
        assert!(entered.is_ok(), "{index}: {entered:?}");
    }
    let last = register(&segments, &Identity::default(), &LaunchLimits::default()).expect("a slot");
    let mut entered = (0..DEVICES_PER_PROCESS as u8)
        .map(|index| last.add_device([index + 220; 16], index, "", 1, 0));
    let full = entered.find_map(Result::err).expect("all are used");
    assert_eq!(full, NoDevice::Machine);
    assert!(full.to_string().contains("end some"), "{full}");
    assert_eq!(
        stays.add_device([1; 16], 0, "", 1, 0).map(Entry::device),
        Ok(0)
    );
    drop(used);
}

#[test]
fn however_many_enter_and_leave_a_device_has_one_place_while_anyone_uses_it() {
    use std::{collections::HashMap, sync::Mutex};
    let dir = Dir::new();
    let segments = dir.open();
    let _stays = fill_devices(&segments);
    // The devices in use: their index, and the number of users.
    let used: Mutex<HashMap<Uuid, (u8, usize)>> = Mutex::default();
    thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (segments, used) = (&segments, &used);
            scope.spawn(move || {
                let mut seed = thread + 1;
                for _ in 0..150 {
                    let process =
                        register(segments, &Identity::default(), &LaunchLimits::default());
                    let process = process.expect("a slot");
                    let mut mine = Vec::new();
                    for ordinal in 0..8 {
                        seed ^= seed << 13;
                        seed ^= seed >> 7;
                        seed ^= seed << 17;
                        let uuid = [(seed % 90) as u8 + 2; 16];
                        if mine.contains(&uuid) {
                            continue;
                        }
                        let entry = process.add_device(uuid, ordinal, "", 1, 0).expect("room");
                        let mut used = used.lock().expect("no panic");
                        let known = used.entry(uuid).or_insert((entry.device(), 0));
                        assert_eq!(known.0, entry.device());
                        known.1 += 1;
                        mine.push(uuid);
                        let here = used.values().filter(|(place, _)| *place == entry.device());
                        assert_eq!(here.count(), 1);
                    }
                    let mut used = used.lock().expect("no panic");
                    for uuid in mine {
                        let known = used.get_mut(&uuid).expect("entered");
                        known.1 -= 1;
                        if known.1 == 0 {
                            used.remove(&uuid);
                        }
                    }
                }
            });
        }
    });
}

#[test]
fn a_full_set_of_devices_is_a_clear_error() {
    let dir = Dir::new();
    let segments = dir.open();
    let (process, _) = process(&segments, "");
    for index in 1..DEVICES_PER_PROCESS as u8 {
        process
            .add_device([index + 100; 16], index, "", 1, 0)
            .expect("room");
    }
    assert_eq!(
        process.add_device([200; 16], 16, "", 1, 0),
        Err(NoDevice::Process)
    );
    assert_eq!(
        process.add_device(GPU, 0, "", 1, 0).map(Entry::index),
        Ok(0),
        "known ones are found"
    );
    assert_eq!(process.entry(3).map(Entry::index), Some(3));
    assert_eq!(process.entry(77), None);
}
