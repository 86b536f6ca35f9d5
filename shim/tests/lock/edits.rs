//! Edits by an operator while programs run: the programs apply and acknowledge them.

use std::time::Duration;

use gpushare_testbed::{Watched, eventually};
use shm_layout::{Change, PolicyKind, Set, ShareEdit, SlotId, clock};

use crate::stage::{PATIENCE, Stage};

#[test]
fn a_policy_takes_effect_while_two_programs_run_and_ends_again() {
    let stage = Stage::new();
    let one = stage.started("", "60 500 4");
    let other = stage.started("", "60 500 4");
    stage.policy("timeslice=3ms");
    for program in [&one, &other] {
        let (policy, _) = stage.process(program.pid()).devices[0].policy;
        assert_eq!(policy.kind, PolicyKind::Timeslice(3_000_000));
    }
    eventually("the lock goes to and fro", PATIENCE, || {
        stage.snapshot().devices[0].handoffs >= 10
    });
    for program in [&one, &other] {
        let process = stage.process(program.pid());
        assert!(process.devices[0].lock.held_ns > 0);
        assert!(process.devices[0].lock.waited_ns > 0);
    }
    stage.policy("off");
    eventually("no process holds the lock", PATIENCE, || {
        stage.snapshot().devices[0].owner.is_none()
    });
    let handoffs = stage.snapshot().devices[0].handoffs;
    let before = stage.kernels().len();
    eventually("both go on", PATIENCE, || {
        stage.kernels().len() > before + 100
    });
    assert_eq!(stage.snapshot().devices[0].handoffs, handoffs);
}

/// Returns an edit that pauses a process or caps its share of the time.
fn share(slot: SlotId, paused: Set<bool>, cap: Set<u32>) -> Change {
    Change::ProcessShare {
        slot,
        share: ShareEdit {
            cap,
            paused,
            ..ShareEdit::default()
        },
    }
}

#[test]
fn a_cap_set_while_a_program_runs_holds_it_back_until_it_is_taken_off() {
    let stage = Stage::new();
    let spinner = stage.started("timeslice=5ms", "60 200 2");
    let slot = stage.slot_of(spinner.pid());
    let of_the_time = || {
        let looked = || {
            let (now, process) = (clock::now(), stage.process(spinner.pid()));
            (now, process.devices[0].lock.held_ns)
        };
        let (begun, before) = looked();
        std::thread::sleep(Duration::from_secs(1));
        let (ended, after) = looked();
        (after - before) as f64 / (ended - begun) as f64
    };
    stage.edit(&share(slot, Set::Keep, Set::To(10)));
    // The process first spends its credit from the time before the cap.
    let mut capped = 1.0;
    eventually("it has less than half of the time", PATIENCE, || {
        capped = of_the_time();
        capped < 0.5
    });
    stage.edit(&share(slot, Set::Keep, Set::Inherit));
    eventually("it has the device to itself again", PATIENCE, || {
        of_the_time() > capped * 1.5
    });
}

/// Checks that a paused spinner launches nothing until it is resumed.
fn is_paused(words: &str, devices: &str) {
    let stage = Stage::new();
    let mut command = stage.spinner("timeslice=5ms", words);
    let mut spinner = Watched::spawn(command.env("DEVICES", devices));
    assert_eq!(spinner.line(), "ready");
    let slot = stage.slot_of(spinner.pid());
    let pause = |paused| share(slot, Set::To(paused), Set::Keep);
    stage.edit(&pause(true));
    let mut after = stage.kernels().len();
    // What was submitted before the pause still runs.
    eventually("no kernel begins for a while", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut after, stage.kernels().len());
        before == after
    });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stage.kernels().len(), after);
    stage.edit(&pause(false));
    eventually("it goes on", PATIENCE, || {
        stage.kernels().len() > after + 20
    });
}

#[test]
fn a_paused_program_launches_nothing_until_it_is_resumed() {
    is_paused("60 200 2", "1");
}

#[test]
fn a_paused_program_launches_nothing_without_a_current_context_either() {
    for devices in ["1", "2"] {
        is_paused("60 200 0 no-context", devices);
    }
}

/// Checks that a process does not keep a lock that is granted just as the policy ends.
#[test]
fn nobody_keeps_a_lock_that_arrives_after_the_policy_has_ended() {
    let stage = Stage::new();
    let _programs = ["", ""].map(|policy| stage.started(policy, "60 500 4"));
    for _ in 0..10 {
        let handoffs = stage.snapshot().devices[0].handoffs;
        stage.policy("timeslice=1ms idle=60s");
        eventually("the lock goes to and fro", PATIENCE, || {
            stage.snapshot().devices[0].handoffs > handoffs + 2
        });
        stage.policy("off idle=60s");
        eventually("no process holds the lock", PATIENCE, || {
            stage.snapshot().devices[0].owner.is_none()
        });
    }
}

#[test]
fn a_waiter_is_let_go_when_the_policy_ends() {
    let stage = Stage::new();
    let greedy = "timeslice=60s idle=60s max-hold=60s";
    let _holder = stage.started(greedy, "60 100 0");
    let mut waiter = Watched::spawn(&mut stage.spinner(greedy, "0.2 100 0"));
    eventually("it waits", PATIENCE, || {
        !stage.snapshot().devices[0].waiters.is_empty()
    });
    stage.policy("off");
    assert_eq!(waiter.line(), "ready");
}
