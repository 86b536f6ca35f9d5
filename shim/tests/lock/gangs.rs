//! Two ranks on two devices whose kernels wait for each other, with a competing process on each device.

use std::{collections::BTreeMap, time::Duration};

use gpushare_testbed::{Watched, eventually};
use rustix::process::Signal;
use shm_layout::{Change, Event, EventKind, Reason, Segments, Set, ShareEdit};

use crate::stage::{PATIENCE, Stage, events, last_line, number};

const TURNS: &str = "timeslice=50ms order=fair";
/// Time of a step without competition, in microseconds: eight kernels and eight collectives.
const STEP_US: u64 = 8 * 6000;

fn started(stage: &Stage, policy: &str, words: &str, variables: &[(&str, &str)]) -> Watched {
    let mut command = stage.program("rank.c", policy);
    command
        .args(words.split_whitespace())
        .env("DEVICES", "2")
        .env("QUEUE_MS", "6")
        .env("QUEUE", "3")
        .envs(variables.iter().copied());
    Watched::spawn_for(&mut command, Duration::from_secs(120))
}

fn contenders(stage: &Stage, policy: &str) -> [Watched; 2] {
    [0, 1].map(|device| {
        let mut contender = started(stage, policy, &format!("{device} 1000000 alone"), &[]);
        assert_eq!(contender.line(), "ready");
        contender
    })
}

fn ranks(stage: &Stage, policy: &str, gang: &str, steps: u64) -> [Watched; 2] {
    let file = stage.segments().with_file_name("collectives");
    let file = file.to_str().expect("a temporary directory");
    ["0", "1"].map(|rank| {
        let variables = [
            ("COLLECTIVES", file),
            ("RANK", rank),
            ("GPUSHARE_GANG", gang),
        ];
        started(stage, policy, &format!("{rank} {steps}"), &variables)
    })
}

/// Returns how much longer ranks take with competing processes than alone, and the stage.
fn slowdown(policy: &str, gang: &str, steps: u64) -> (f64, Stage) {
    let stage = Stage::new();
    let contenders = contenders(&stage, policy);
    let took = ranks(&stage, policy, gang, steps).map(|rank| number(&last_line(rank), "took"));
    drop(contenders);
    let most = took.into_iter().max().unwrap_or(0);
    (most as f64 / (steps * STEP_US) as f64, stage)
}

/// Limit for ranks with as many turns as the other processes, and a hand-over with a wait for the other rank at each turn.
/// Ranks whose turns do not coincide take three to sixteen times as long as alone, by chance.
const HALF: f64 = 2.7;

/// Returns the slowdown of the best of a few runs, and the overlapping kernels of each. A run in which a drain exceeded its
/// grace does not count: the machine is then too busy to run a keeper, and the policy promises nothing.
fn together(policy: &str) -> (f64, Vec<usize>) {
    let (mut best, mut overlaps) = (f64::INFINITY, Vec::new());
    for _ in 0..6 {
        let (slowdown, stage) = slowdown(policy, "both", 25);
        let late = |event: &Event| {
            matches!(
                event.kind,
                EventKind::Forced | EventKind::Release(Reason::Forced)
            )
        };
        let segments = Segments::open_viewer(&stage.segments()).expect("our own segments");
        if events(&segments).iter().any(late) {
            continue;
        }
        overlaps.push(stage.overlaps());
        best = slowdown.min(best);
        if best < HALF {
            break;
        }
    }
    (best, overlaps)
}

#[test]
fn two_ranks_have_their_turns_together_and_lose_no_more_than_the_contenders_take() {
    let (slowdown, overlaps) = together(TURNS);
    assert!(overlaps.iter().all(|count| *count == 0), "{overlaps:?}");
    assert!(slowdown < HALF, "{slowdown:.2}, {overlaps:?}");
}

#[test]
fn two_ranks_lose_no_more_when_the_next_one_begins_a_little_earlier() {
    let (slowdown, overlaps) = together(&format!("{TURNS} overlap=2ms"));
    assert!(slowdown < HALF, "{slowdown:.2}, {overlaps:?}");
}

#[test]
fn ranks_that_are_no_gang_hold_each_other_up() {
    let worst = (0..3)
        .map(|_| slowdown(TURNS, "none", 6).0)
        .fold(0.0, f64::max);
    assert!(worst > HALF, "{worst:.2}: the tests above could not fail");
}

fn kernels(stage: &Stage) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for kernel in stage.kernels() {
        *counts.entry(kernel.pid).or_default() += 1;
    }
    counts
}

#[test]
fn a_rank_that_is_stopped_or_dies_stops_no_contender() {
    for signal in [Signal::STOP, Signal::KILL] {
        let stage = Stage::new();
        let contenders = contenders(&stage, TURNS);
        let [mut first, mut second] = ranks(&stage, TURNS, "both", 1_000_000);
        assert_eq!(
            (first.line(), second.line()),
            ("ready".into(), "ready".into())
        );
        second.signal(signal);
        let before = kernels(&stage);
        eventually("both contenders go on", PATIENCE, || {
            let now = kernels(&stage);
            contenders
                .iter()
                .all(|one| now[&one.pid()] > before[&one.pid()] + 100)
        });
    }
}

/// The first rank has such a small weight that it holds back for the other process on its device. The second rank has no reason
/// of its own to hold back.
#[test]
fn ranks_hold_back_together_under_overlap_and_get_on() {
    let policy = "overlap=10ms order=fair";
    let stage = Stage::new();
    let contenders = contenders(&stage, policy);
    let [mut first, mut second] = ranks(&stage, policy, "both", 1_000_000);
    assert_eq!(
        (first.line(), second.line()),
        ("ready".into(), "ready".into())
    );
    stage.edit(&Change::ProcessShare {
        slot: stage.slot_of(first.pid()),
        share: ShareEdit {
            weight: Set::To(10),
            ..ShareEdit::default()
        },
    });
    let waited = |one: &Watched| -> u64 {
        let devices = stage.process(one.pid()).devices;
        devices.iter().map(|device| device.lock.waited_ns).sum()
    };
    eventually("both ranks have been held back", PATIENCE, || {
        waited(&first) > 100_000_000 && waited(&second) > 100_000_000
    });
    let before = kernels(&stage);
    eventually("all get on", PATIENCE, || {
        let now = kernels(&stage);
        let all = contenders.iter().chain([&first, &second]);
        all.into_iter()
            .all(|one| now[&one.pid()] > before[&one.pid()] + 20)
    });
}

#[test]
fn members_of_a_group_that_one_session_started_are_a_gang_and_those_of_another_are_not() {
    let stage = Stage::new();
    let words = ["0", "1000000", "alone"];
    let variables = [
        ("GPUSHARE_GROUP", "serve"),
        ("DEVICES", "2"),
        ("QUEUE_MS", "6"),
        ("QUEUE", "3"),
    ];
    let member = |gang: Option<&str>| {
        let mut command = stage.program("rank.c", TURNS);
        command.args(words).envs(variables);
        command.envs(gang.map(|gang| ("GPUSHARE_GANG", gang)));
        let mut member = Watched::spawn_for(&mut command, Duration::from_secs(120));
        assert_eq!(member.line(), "ready");
        member
    };
    let members = [None, None, Some("none")].map(member);
    let program = stage.program("rank.c", TURNS).get_program().to_owned();
    let mut elsewhere = stage.started_by("setsid", TURNS);
    elsewhere.arg(program).args(words).envs(variables);
    let mut elsewhere = elsewhere.spawn().expect("util-linux has it");
    eventually("all four are seen", PATIENCE, || {
        stage.snapshot().processes.len() == 4
    });
    let processes = stage.snapshot().processes;
    elsewhere.kill().expect("it runs until it is killed");
    elsewhere.wait().expect("it has been killed");
    let gang = |pid: u32| {
        let mut all = processes.iter();
        all.find(|one| one.identity.pid == pid)
            .map(|one| one.gang)
            .expect("it was seen")
    };
    let [first, second, alone] = members.each_ref().map(|member| gang(member.pid()));
    assert_ne!(first, 0);
    assert_eq!((first, alone), (second, 0));
    let other = gang(elsewhere.id());
    assert!(other != 0 && other != first, "{other:x} beside {first:x}");
}
