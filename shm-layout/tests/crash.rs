//! A process may die between any two instructions. Here it dies at each named step, and the surviving processes must recover.
//!
//! The child is this test binary again. It kills itself with SIGKILL at its step; the parent then checks the remaining state.
#![cfg(debug_assertions)]

mod common;

use std::{os::unix::process::ExitStatusExt as _, path::Path, thread};

use common::*;
use rustix::process::Signal;
use shm_layout::*;

const MS: u64 = 1_000_000;
const ACTION: &str = "GPUSHARE_TEST_ACTION";
/// Before the name of a step at which the child stops instead of dying.
const STOP: &str = "stop at ";

/// Plays the child's part in a child process.
fn child() {
    let Some((point, dir)) = role() else { return };
    let action = std::env::var(ACTION).expect("an action");
    match point.strip_prefix(STOP) {
        Some(point) => crash::stop_at(point),
        None => crash::arm(&point),
    }
    act(&action, &dir, &point);
    say("survived");
    std::process::exit(7);
}

fn act(action: &str, dir: &Path, point: &str) {
    if action == "create" {
        drop(Segments::open_workload(dir));
        return;
    }
    let segments = Segments::open_workload(dir).expect("segments");
    match action {
        "edit" => return edit(dir),
        "reap" => {
            reap(&segments, clock::now());
            return;
        }
        _ => {}
    }
    let limits = LaunchLimits {
        settings: SettingValues {
            priority: Some(5),
            reserve: Some(Reserve::Mib(4)),
            ..SettingValues::default()
        },
        group: Some("children".to_owned()),
        ..LaunchLimits::default()
    };
    let (process, entry) = with_limits(&segments, "child", &limits);
    thread::scope(|scope| {
        let (send, ready) = std::sync::mpsc::channel();
        let process = &process;
        scope.spawn(move || {
            let _mark = process.attach_keeper().expect("a robust list");
            send.send(()).expect("heard");
            loop {
                process.heartbeat(clock::now());
                thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        ready.recv().expect("a keeper");
        let ledger = process.ledger(entry);
        ledger.charge_unchecked(MIB);
        match action {
            "reserve" => drop(ledger.reserve(5)),
            "guarantee" => drop(ledger.follow_reserve()),
            "hold" => {
                assert!(process.lock(entry).try_acquire(clock::now()));
                say("holding");
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).expect("told");
                process.lock(entry).release(Reason::Slice, clock::now());
            }
            "wait" => {
                say("waiting");
                process.lock(entry).acquire(&|| false);
                process.lock(entry).release(Reason::Slice, clock::now());
            }
            "active" => {
                process.lock(entry).begin_activity(clock::now());
                say("active");
                process.lock(entry).end_activity(clock::now());
            }
            "line" | "return" => {
                let bytes = 4 * MIB;
                let kind = match action {
                    "line" => WantKind::Allocation,
                    _ => WantKind::Return { margin: 0 },
                };
                let denial = ledger.reserve(bytes).err().expect("there is no room");
                let place = ledger.enqueue(Want { bytes, kind }, denial, clock::now());
                say("in line");
                if point == "line:left" {
                    return;
                }
                let _ = place.wait(&|| false);
            }
            "part" => {
                let place = ledger.enqueue_return(4 * MIB, 0, clock::now());
                say("in line");
                let mut looks = std::iter::repeat_with(|| {
                    let now = clock::now();
                    place.take_part(MIB, now).or_else(|| {
                        place.sleep(now);
                        None
                    })
                });
                let part = looks.find_map(|part| part).expect("it comes");
                place.put_back(part, MIB);
            }
            "evict" => {
                ledger.evict(u64::MAX, 0);
                ledger.charge_unchecked(2 * MIB);
                ledger.returned(MIB);
            }
            "give up" => {
                let looks = std::cell::Cell::new(0);
                process
                    .lock(entry)
                    .acquire(&|| looks.replace(looks.get() + 1) > 1);
            }
            _ => {}
        }
        say("survived");
        std::process::exit(7);
    });
}

fn edit(dir: &Path) {
    let operator = shm_layout::Operator::open(dir).expect("operator");
    let value = QuotaValue::Bytes(2000);
    let change = Change::DeviceLimit { uuid: GPU, value };
    operator.edit(None, &change, clock::now()).expect("edited");
}

fn spawn(test: &str, dir: &Dir, point: &str, action: &str) -> Kid {
    Kid::spawn(test, dir, point, &[(ACTION, action)])
}

/// Checks that the child died at its step and not for another reason.
fn dies(mut kid: Kid, point: &str) {
    let status = kid.wait();
    assert_eq!(status.signal(), Some(9), "never reached {point}: {status}");
}

/// Checks that nothing of the dead process is left and that everything works.
fn healthy(dir: &Dir, point: &str) {
    let segments = dir.open();
    reap(&segments, clock::now());
    let view = look(&segments);
    assert!(view.processes.is_empty(), "{point}: {:?}", view.processes);
    assert_eq!(view.violations, 0, "{point}");
    for device in &view.devices {
        assert_eq!(device.owner, None, "{point}");
        assert!(device.waiters.is_empty(), "{point}");
    }
    dir.limit(100);
    let all: Vec<_> = (0..MAX_PROCESSES)
        .map(|_| register(&segments, &Identity::default(), &LaunchLimits::default()))
        .collect();
    assert!(all.iter().all(Result::is_ok), "{point}: a slot was lost");
    drop(all);
    let (process, entry) = process(&segments, "survivor");
    process
        .ledger(entry)
        .reserve(100)
        .expect("no byte was lost")
        .commit();
    let lock = process.lock(entry);
    assert!(lock.try_acquire(clock::now()), "{point}: the lock was lost");
    lock.release(Reason::Explicit, clock::now());
    assert_eq!(look(&segments).violations, 0, "{point}");
}

#[test]
fn a_creator_may_die_at_any_step() {
    child();
    for point in [
        "create:made",
        "create:allocated",
        "create:initialised",
        "create:named",
        "pair:state",
    ] {
        let dir = Dir::new();
        dies(
            spawn("a_creator_may_die_at_any_step", &dir, point, "create"),
            point,
        );
        healthy(&dir, point);
    }
}

#[test]
fn who_sets_old_settings_aside_may_die_at_any_step() {
    child();
    let test = "who_sets_old_settings_aside_may_die_at_any_step";
    for point in ["create:named", "pair:state", "pair:set-aside"] {
        let dir = Dir::new();
        dir.policy(LockPolicy::default());
        std::fs::remove_file(dir.path().join("state")).expect("ours");
        dies(spawn(test, &dir, point, "create"), point);
        let anew = look(&dir.open());
        assert_eq!((anew.default_policy, anew.generation), (None, 0), "{point}");
        healthy(&dir, point);
    }
}

#[test]
fn a_newcomer_may_die_at_any_step() {
    child();
    for point in [
        "register:locked",
        "register:claiming",
        "register:claimed",
        "register:filled",
        "register:published",
        "device:joined",
        "device:entered",
        "keeper:attached",
        "event:writing",
        "group:writing",
        "group:entered",
    ] {
        let dir = Dir::new();
        dies(
            spawn("a_newcomer_may_die_at_any_step", &dir, point, ""),
            point,
        );
        healthy(&dir, point);
    }
}

#[test]
fn who_takes_over_a_devices_place_may_die_at_any_step() {
    child();
    const TEST: &str = "who_takes_over_a_devices_place_may_die_at_any_step";
    for point in ["device:going", "device:unready", "device:joined"] {
        let dir = Dir::new();
        let segments = dir.open();
        let stays = fill_devices(&segments);
        dies(spawn(TEST, &dir, point, ""), point);
        let (survivor, entry) = process(&segments, "survivor");
        let again = stays.add_device([1; 16], 0, "", 1, 0);
        assert_eq!(again.map(Entry::device), Ok(0), "{point}");
        assert_ne!(entry.device(), 0, "{point}");
        let places = look(&segments).devices;
        assert!(
            places.iter().any(|device| device.uuid == GPU),
            "{point}: {places:?}"
        );
        drop((survivor, stays));
        healthy(&dir, point);
    }
}

#[test]
fn a_process_may_die_at_any_step_of_a_reservation() {
    child();
    for (point, value) in [
        ("reserve:begin", QuotaValue::Inherit),
        ("reserve:done", QuotaValue::Inherit),
        ("reserve:announced", QuotaValue::Bytes(2 * MIB)),
        ("reserve:decided", QuotaValue::Bytes(2 * MIB)),
        ("reserve:done", QuotaValue::Bytes(2 * MIB)),
    ] {
        let dir = Dir::new();
        dir.edit(&Change::DeviceLimit { uuid: GPU, value });
        dies(
            spawn(
                "a_process_may_die_at_any_step_of_a_reservation",
                &dir,
                point,
                "reserve",
            ),
            point,
        );
        healthy(&dir, point);
    }
}

#[test]
fn what_a_process_had_reserved_is_free_when_it_has_died_at_any_step() {
    child();
    const TEST: &str = "what_a_process_had_reserved_is_free_when_it_has_died_at_any_step";
    for point in ["guarantee:announced", "guarantee:given"] {
        let dir = Dir::new();
        dir.limit(8 * MIB);
        dies(spawn(TEST, &dir, point, "guarantee"), point);
        let segments = dir.open();
        let (survivor, entry) = process(&segments, "survivor");
        reap(&segments, clock::now());
        let ledger = survivor.ledger(entry);
        assert!(!ledger.has_reserves(), "{point}");
        assert!(ledger.reserve(8 * MIB).is_ok(), "{point}");
        drop(survivor);
        healthy(&dir, point);
    }
}

#[test]
fn a_process_that_lost_its_processor_on_the_way_to_the_lock_did_not_hold_it_meanwhile() {
    child();
    const TEST: &str =
        "a_process_that_lost_its_processor_on_the_way_to_the_lock_did_not_hold_it_meanwhile";
    for (point, waits) in [("acquire:asked", 0), ("acquire:looked", 1)] {
        let dir = Dir::new();
        let segments = dir.open();
        let (holder, entry) = process(&segments, "holder");
        acquire(&holder, entry);
        let mut kid = spawn(TEST, &dir, &format!("{STOP}{point}"), "wait");
        kid.hear("waiting");
        eventually("it stops", PATIENCE, || kid.is_stopped());
        assert_eq!(look(&segments).devices[0].waiters.len(), waits, "{point}");
        holder.lock(entry).release(Reason::Slice, clock::now());
        let released = clock::now();
        kid.signal(Signal::CONT);
        kid.hear("survived");
        let state = segments.state();
        let mut events = EventReader::from_start(state);
        let holds = std::iter::from_fn(|| events.next(state)?.ok())
            .filter(|event| event.kind == EventKind::Hold);
        let last = holds.last().expect("it had the lock");
        assert!(last.time_ns >= released, "{point}: {last:?}");
    }
}

#[test]
fn a_holder_may_die_at_any_step_of_a_release_and_the_waiter_gets_the_lock() {
    child();
    const TEST: &str = "a_holder_may_die_at_any_step_of_a_release_and_the_waiter_gets_the_lock";
    for point in [
        "release:leaving",
        "pass:swapped",
        "pass:woken",
        "release:passed",
    ] {
        let dir = Dir::new();
        let segments = dir.open();
        let mut kid = spawn(TEST, &dir, point, "hold");
        kid.hear("holding");
        let (waiter, entry) = process(&segments, "waiter");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock(entry).acquire(&|| false));
            eventually("it waits", PATIENCE, || {
                look(&segments).devices[0].waiters.len() == 1
            });
            std::io::Write::write_all(kid.0.stdin.as_mut().expect("its input"), b"release\n")
                .expect("told");
            assert!(
                matches!(waiting.join().expect("no panic"), Acquire::Held { .. }),
                "{point}"
            );
        });
        dies(kid, point);
        assert_eq!(look(&segments).violations, 0, "{point}");
        waiter.lock(entry).release(Reason::Explicit, clock::now());
        drop(waiter);
        healthy(&dir, point);
    }
}

#[test]
fn a_process_may_die_as_it_takes_a_free_lock() {
    child();
    let dir = Dir::new();
    dies(
        spawn(
            "a_process_may_die_as_it_takes_a_free_lock",
            &dir,
            "acquire:taken",
            "wait",
        ),
        "acquire:taken",
    );
    let segments = dir.open();
    {
        let (waiter, entry) = process(&segments, "waiter");
        acquire(&waiter, entry);
        assert_eq!(look(&segments).devices[0].takeovers, 1);
    }
    healthy(&dir, "acquire:taken");
}

#[test]
fn a_waiter_may_die_at_any_step_and_the_next_one_gets_the_lock() {
    child();
    const TEST: &str = "a_waiter_may_die_at_any_step_and_the_next_one_gets_the_lock";
    for (point, action) in [
        ("acquire:joined", "wait"),
        ("acquire:granted", "wait"),
        ("acquire:cancelled", "give up"),
    ] {
        let dir = Dir::new();
        let segments = dir.open();
        let (holder, entry) = process(&segments, "holder");
        let (other, _) = process(&segments, "other");
        assert!(holder.lock(entry).try_acquire(clock::now()));
        let kid = spawn(TEST, &dir, point, action);
        if point == "acquire:granted" {
            eventually("it waits", PATIENCE, || {
                look(&segments).devices[0].waiters.len() == 1
            });
        } else {
            dies(kid, point);
            holder.heartbeat(clock::now());
            holder.lock(entry).release(Reason::Slice, clock::now());
            assert!(
                matches!(other.lock(entry).acquire(&|| false), Acquire::Held { .. }),
                "{point}"
            );
            drop((holder, other));
            healthy(&dir, point);
            continue;
        }
        holder.lock(entry).release(Reason::Slice, clock::now());
        assert!(
            matches!(other.lock(entry).acquire(&|| false), Acquire::Held { .. }),
            "{point}"
        );
        dies(kid, point);
        drop((holder, other));
        healthy(&dir, point);
    }
}

#[test]
fn an_active_process_may_die_at_any_step_and_holds_no_other_back() {
    child();
    const TEST: &str = "an_active_process_may_die_at_any_step_and_holds_no_other_back";
    for point in ["overlap:active", "overlap:resting"] {
        let dir = Dir::new();
        let segments = dir.open();
        dir.policy(LockPolicy {
            kind: PolicyKind::Overlap(None),
            order: Order::Priority,
            ..LockPolicy::default()
        });
        let (low, entry) = process(&segments, "low");
        let mut kid = spawn(TEST, &dir, "nowhere", "active");
        kid.hear("active");
        kid.wait();
        let lock = low.lock(entry);
        lock.begin_activity(clock::now());
        dies(spawn(TEST, &dir, point, "active"), point);
        let began = clock::now();
        lock.hold_back(MS, u64::MAX, &|| false);
        // The robust word of the dead process reports the death long before starvation or a stopped process would be detected.
        assert!(clock::now() - began < 400 * MS, "{point}");
        reap(&segments, clock::now());
        assert_eq!(lock.held_back_by(MS, 0, clock::now()), None, "{point}");
        lock.end_activity(clock::now());
        drop(low);
        healthy(&dir, point);
    }
}

#[test]
fn who_takes_over_may_die_as_well() {
    child();
    const TEST: &str = "who_takes_over_may_die_as_well";
    for point in ["takeover:evicted", "pass:swapped", "pass:woken"] {
        let dir = Dir::new();
        let segments = dir.open();
        let mut first = spawn(TEST, &dir, "nowhere", "hold");
        first.hear("holding");
        let second = spawn(TEST, &dir, point, "wait");
        eventually("it waits", PATIENCE, || {
            look(&segments).devices[0].waiters.len() == 1
        });
        first.signal(Signal::KILL);
        dies(first, "its parent's signal");
        dies(second, point);
        {
            let (last, entry) = process(&segments, "last");
            assert!(
                matches!(last.lock(entry).acquire(&|| false), Acquire::Held { .. }),
                "{point}"
            );
            assert_eq!(look(&segments).violations, 0, "{point}");
        }
        healthy(&dir, point);
    }
}

#[test]
fn who_waits_for_memory_may_die_at_any_step_and_those_behind_it_get_theirs() {
    child();
    const TEST: &str = "who_waits_for_memory_may_die_at_any_step_and_those_behind_it_get_theirs";
    for (point, action) in [
        ("line:numbered", "line"),
        ("line:joined", "line"),
        ("line:left", "line"),
        ("line:taken", "line"),
        ("line:promised", "return"),
        ("line:taken", "return"),
        ("line:taken", "part"),
        ("line:put-back", "part"),
    ] {
        let dir = Dir::new();
        let segments = dir.open();
        dir.limit(10 * MIB);
        let (holder, entry) = process(&segments, "holder");
        let (next, _) = process(&segments, "next");
        holder
            .ledger(entry)
            .reserve(9 * MIB)
            .expect("room")
            .commit();
        let mut kid = spawn(TEST, &dir, point, action);
        let has_taken = matches!(point, "line:taken" | "line:put-back");
        if has_taken {
            kid.hear("in line");
            holder.ledger(entry).release(4 * MIB);
        }
        dies(kid, point);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let ledger = next.ledger(entry);
                let bytes = 5 * MIB;
                let kind = WantKind::Allocation;
                let denial = ledger.reserve(bytes).err().expect("there is no room");
                let place = ledger.enqueue(Want { bytes, kind }, denial, clock::now());
                place.wait(&|| false).map(Reservation::commit)
            });
            eventually("it waits", PATIENCE, || {
                look(&segments).devices[0]
                    .memory_line
                    .contains(&next.slot())
            });
            let held = holder.ledger(entry).used();
            // The next waiter needs none of the bytes of the dead process, unless that process had taken the freed bytes.
            holder.ledger(entry).release(held - 4 * MIB);
            if has_taken {
                reap(&segments, clock::now());
            }
            assert_eq!(
                waiting.join().expect("no panic"),
                Ok(5 * MIB),
                "{point} of {action}"
            );
        });
        drop((holder, next));
        healthy(&dir, point);
    }
}

#[test]
fn a_process_may_die_at_any_step_of_an_eviction_and_of_its_return() {
    child();
    const TEST: &str = "a_process_may_die_at_any_step_of_an_eviction_and_of_its_return";
    for point in ["evict:noted", "evict:left", "evict:returned"] {
        let dir = Dir::new();
        dies(spawn(TEST, &dir, point, "evict"), point);
        healthy(&dir, point);
    }
}

const REAPING: [&str; 7] = [
    "reap:locked",
    "reap:begun",
    "reap:withdrawn",
    "reap:left",
    "reap:cleared",
    "event:writing",
    "reap:freed",
];

#[test]
fn a_reaper_may_die_at_any_step_and_no_slot_is_lost() {
    child();
    const TEST: &str = "a_reaper_may_die_at_any_step_and_no_slot_is_lost";
    for point in REAPING {
        let dir = Dir::new();
        drop(dir.open());
        let mut victim = spawn(TEST, &dir, "nowhere", "hold");
        victim.hear("holding");
        victim.signal(Signal::KILL);
        dies(victim, "its parent's signal");
        dies(spawn(TEST, &dir, point, "reap"), point);
        healthy(&dir, point);
    }
}

#[test]
fn an_editor_may_die_at_any_step_and_readers_see_the_old_or_the_new() {
    child();
    const TEST: &str = "an_editor_may_die_at_any_step_and_readers_see_the_old_or_the_new";
    for (point, done) in [
        ("edit:locked", false),
        ("edit:journalled", false),
        ("edit:odd", false),
        ("edit:written", false),
        ("edit:counted", true),
    ] {
        let dir = Dir::new();
        let generation = dir.limit(1000);
        let segments = dir.open();
        dies(spawn(TEST, &dir, point, "edit"), point);
        {
            let (process, entry) = process(&segments, "newcomer");
            let room = process
                .ledger(entry)
                .room()
                .expect("a limit holds all the while");
            assert!(room == 1000 || room == 2000, "{point}: {room}");
            if point == "edit:odd" {
                assert_eq!(room, 1000, "the journal tells what was");
            }
            assert_eq!(
                process.control_generation(),
                generation + u64::from(done),
                "{point}"
            );
        }
        // The next edit undoes a half-done edit and keeps a complete one.
        let other = Change::Policy {
            device: None,
            policy: Some(LockPolicy::default()),
            until: None,
        };
        dir.operator()
            .edit(Some(generation + u64::from(done)), &other, clock::now())
            .expect("edited");
        {
            let (process, entry) = process(&segments, "newcomer");
            assert_eq!(
                process.ledger(entry).room(),
                Some(if done { 2000 } else { 1000 }),
                "{point}"
            );
        }
        healthy(&dir, point);
    }
}
