//! What the operator changes while programs run, they obey, and say so.

use gpushare_testbed::eventually;
use shm_layout::{Change, PolicyKind, Set};

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
    eventually("nobody holds the lock", PATIENCE, || {
        stage.snapshot().devices[0].owner.is_none()
    });
    let handoffs = stage.snapshot().devices[0].handoffs;
    let before = stage.kernels().len();
    eventually("both go on", PATIENCE, || {
        stage.kernels().len() > before + 100
    });
    assert_eq!(stage.snapshot().devices[0].handoffs, handoffs);
}

#[test]
fn a_paused_program_launches_nothing_until_it_is_resumed() {
    let stage = Stage::new();
    let spinner = stage.started("timeslice=5ms", "60 200 2");
    let slot = stage.slot_of(spinner.pid());
    let pause = |paused| Change::ProcessShare {
        slot,
        weight: Set::Keep,
        priority: Set::Keep,
        cap: Set::Keep,
        paused: Set::To(paused),
        boost: Set::Keep,
    };
    stage.edit(&pause(true));
    let before = stage.kernels().len();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let after = stage.kernels().len();
    assert!(after <= before + 1, "{before} kernels, then {after}");
    stage.edit(&pause(false));
    eventually("it goes on", PATIENCE, || {
        stage.kernels().len() > after + 20
    });
}

#[test]
fn a_waiter_is_let_go_when_the_policy_ends() {
    let stage = Stage::new();
    let greedy = "timeslice=60s idle=60s max-hold=60s";
    let _holder = stage.started(greedy, "60 100 0");
    let mut waiter = gpushare_testbed::Watched::spawn(&mut stage.spinner(greedy, "0.2 100 0"));
    eventually("it waits", PATIENCE, || {
        !stage.snapshot().devices[0].waiters.is_empty()
    });
    stage.policy("off");
    assert_eq!(waiter.line(), "ready");
}
