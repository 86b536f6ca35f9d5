use shm_layout::{CardSlice, Histogram};

use super::super::{RULES, advise};
use super::*;
use gpushare_sample::{DeviceSample, EventLine, Holding, ProcessSample, Reason, Sample, What};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// The activity of a job in ten seconds.
#[derive(Clone, Copy)]
struct Did {
    name: &'static str,
    priority: i32,
    weight: u32,
    cap: Option<u32>,
    mps: bool,
    has_card_slice: bool,
    submission_ns: u64,
    held: f64,
    waited: f64,
    turns: u64,
    idle_ends: u64,
    launches: u64,
}

const NORMAL: Did = Did {
    name: "a",
    priority: 0,
    weight: 100,
    cap: None,
    mps: false,
    has_card_slice: false,
    submission_ns: 0,
    held: 0.0,
    waited: 0.0,
    turns: 0,
    idle_ends: 0,
    launches: 1000,
};

fn named(name: &'static str) -> Did {
    Did { name, ..NORMAL }
}

fn histogram(ns: u64, count: u64) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.add(ns, u32::try_from(count).expect("few"));
    histogram
}

/// Returns a machine at a moment, after a part of each job's activity.
fn sample(policy: &str, util: Option<u32>, jobs: &[Did], time_ns: u64, part: f64) -> Sample {
    let mut sample = Sample::default();
    sample.snapshot.time_ns = time_ns;
    let mut device = DeviceSample {
        uuid: "GPU-1".into(),
        ..DeviceSample::default()
    };
    device.view.policy.0 = policy.parse().expect("well formed");
    device.nvml.util_percent = util;
    sample.snapshot.devices.push(device);
    for (at, did) in jobs.iter().enumerate() {
        let count = |whole: u64| (whole as f64 * part) as u64;
        let time = |share: f64| (share * part * 10.0 * S as f64) as u64;
        let mut process = ProcessSample {
            pid: Some(100 + at as u32),
            ..ProcessSample::default()
        };
        process.view.slot.index = at as u16;
        process.view.slot.epoch = 1;
        process.view.identity.label = did.name.into();
        process.view.registered_ns = S;
        process.view.share.priority = did.priority;
        process.view.share.weight = did.weight;
        process.view.share.cap = did.cap;
        let mut holding = Holding::default();
        holding.view.mps = Some(did.mps);
        holding.view.submission_ns = did.submission_ns;
        if did.has_card_slice {
            holding.view.card_slice = CardSlice::Available;
        }
        holding.view.counters.launches = count(did.launches);
        let lock = &mut holding.view.lock;
        lock.acquisitions = count(did.turns);
        (lock.held_ns, lock.waited_ns) = (time(did.held), time(did.waited));
        if did.turns > 0 {
            lock.holds = histogram(time(did.held) / count(did.turns).max(1), count(did.turns));
            lock.waits = histogram(time(did.waited) / count(did.turns).max(1), count(did.turns));
        }
        lock.releases[Reason::Idle as usize] = count(did.idle_ends);
        process.view.devices.push(holding);
        sample.snapshot.processes.push(process);
    }
    sample
}

fn evidence(policy: &str, util: Option<u32>, jobs: &[Did]) -> Evidence {
    let first = sample(policy, util, jobs, 1000 * S, 1.0);
    let last = sample(policy, util, jobs, 1010 * S, 2.0);
    Evidence::between(&first, &last).remove(0)
}

/// Returns two jobs that do alike, and one beside them.
fn beside(many: Did, one: Did) -> [Did; 3] {
    let other = Did {
        name: "other",
        ..many
    };
    [many, one, other]
}

fn advised(policy: &str, jobs: &[Did]) -> Option<Finding> {
    advise(&evidence(policy, Some(99), jobs))
}

/// Returns the rule that matches and the policy that it proposes.
fn rule(policy: &str, jobs: &[Did]) -> (&'static str, String) {
    let advice = advised(policy, jobs).unwrap_or_else(|| panic!("no advice under {policy}"));
    let cost = advice.cost.as_ref().expect("nothing is free");
    assert!(!cost.losers.first.is_empty(), "a job pays: {advice:?}");
    let amount = cost.to_string();
    assert!(
        cost.measured.is_some() || amount.ends_with("(not measured here)"),
        "{amount}"
    );
    let said = advice.proposal().expect("a remedy");
    assert_eq!(said.matches(". ").count(), 0, "one sentence: {said}");
    assert!(advice.kind.basis.contains("H100") || advice.kind.basis.contains("H200"));
    let remedy = advice.remedy.expect("a remedy");
    let words = remedy.policy().expect("a policy").to_owned();
    let parts: Vec<&str> = words.split(' ').collect();
    let edit = shm_layout::text::parse_policy(&parts).expect("a policy");
    edit.apply(Default::default()).expect("a policy that fits");
    (advice.kind.id, words)
}

const NOTHING: Option<Finding> = None;

#[test]
fn no_job_and_one_job_need_nothing() {
    assert_eq!(advised("off", &[]), NOTHING);
    assert_eq!(advised("timeslice=5ms", &[named("a")]), NOTHING);
    assert!(content(&evidence("off", None, &[named("train")])).contains("100 train runs alone"));
    let idle = Did {
        launches: 0,
        ..named("b")
    };
    assert_eq!(
        advised("off", &[named("a"), idle]),
        NOTHING,
        "one that did nothing does not count"
    );
}

#[test]
fn who_waits_for_memory_is_named_where_no_policy_helps() {
    let mut last = sample("off", None, &[named("train"), named("b")], 1010 * S, 2.0);
    last.snapshot.processes[1].view.devices[0].view.memory_wait = Some(Default::default());
    let first = sample("off", None, &[named("train"), named("b")], 1000 * S, 1.0);
    let evidence = Evidence::between(&first, &last).remove(0);
    let said = content(&evidence);
    assert!(said.contains("no policy helps 101 b: memory"), "{said}");
}

#[test]
fn a_client_of_mps_with_long_kernels_is_to_run_without_it() {
    let long = Did {
        mps: true,
        submission_ns: 90 * MS,
        ..named("long")
    };
    let short = Did {
        submission_ns: MS / 20,
        ..Did {
            name: "short",
            ..long
        }
    };
    let found = |jobs: &[Did]| {
        let found = advise(&evidence("overlap", None, jobs))?;
        (found.kind.id == "long_kernels").then_some(found)
    };
    let finding = found(&[long, short]).expect("a finding");
    for part in ["100 long", "90ms", "101 short waits"] {
        assert!(finding.what.contains(part), "{}", finding.what);
    }
    let remedy = finding.remedy.expect("a remedy");
    assert!(remedy.text.contains("--no-mps") && remedy.edits.is_empty());
    let without = |did: Did| Did { mps: false, ..did };
    assert_eq!(
        found(&[long, without(short)]),
        None,
        "the driver divides the time"
    );
    assert_eq!(found(&[without(long), short]), None);
    assert_eq!(
        found(&[
            long,
            Did {
                name: "other",
                ..long
            }
        ]),
        None,
        "none is shorter"
    );
    let medium = Did {
        submission_ns: 4 * MS,
        ..long
    };
    assert_eq!(found(&[medium, short]), None);
}

#[test]
fn jobs_under_mps_are_not_to_take_turns() {
    let job = Did {
        mps: true,
        held: 0.5,
        waited: 0.5,
        turns: 100,
        ..named("a")
    };
    let found = rule("timeslice=5ms", &[job, Did { name: "b", ..job }]);
    assert_eq!(found, ("turns_under_mps", "overlap order=fair".into()));
    let urgent = Did { priority: 5, ..job };
    assert_eq!(
        rule("timeslice=5ms", &[job, urgent]).1,
        "overlap order=priority"
    );
    assert_eq!(
        advised("off", &[job, Did { name: "b", ..job }]),
        NOTHING,
        "nor advised to"
    );
}

#[test]
fn priorities_want_a_policy_that_acts_on_them() {
    let jobs = [
        Did {
            priority: 5,
            ..named("serve")
        },
        named("train"),
    ];
    for policy in ["off", "timeslice=20ms order=fair", "overlap order=fair"] {
        let found = rule(policy, &jobs);
        assert_eq!(
            found,
            ("priorities", "overlap order=priority".into()),
            "{policy}"
        );
    }
    assert_eq!(advised("overlap order=priority", &jobs), NOTHING);
    let advice = advised("off", &jobs).expect("advice");
    assert_eq!(
        advice.what,
        "100 serve has priority 5, and the policy (off: nobody waits, gpushare only counts) does not act on it"
    );
    let gainers = &advice.remedy.as_ref().expect("a remedy").gainers;
    assert_eq!(gainers.len(), 1, "only the urgent one gains");
    assert_eq!(advice.cost.expect("a cost").losers.first, ["101 train"]);
}

#[test]
fn an_urgent_job_that_waits_for_turns_had_better_overlap() {
    let serve = Did {
        priority: 5,
        held: 0.1,
        waited: 0.2,
        turns: 100,
        ..named("serve")
    };
    let train = Did {
        held: 0.9,
        waited: 0.1,
        turns: 100,
        ..named("train")
    };
    let found = rule("timeslice=2ms order=priority", &[serve, train]);
    assert_eq!(found, ("urgent_waits", "overlap order=priority".into()));
    let content = Did {
        waited: 0.01,
        ..serve
    };
    assert_eq!(
        advised("timeslice=2ms order=priority", &[content, train]),
        NOTHING
    );
}

#[test]
fn a_small_job_behind_big_ones_is_to_go_first() {
    let serve = Did {
        held: 0.1,
        waited: 0.6,
        turns: 1000,
        ..named("serve")
    };
    let train = Did {
        held: 0.45,
        waited: 0.5,
        turns: 200,
        ..named("train")
    };
    let jobs = beside(train, serve);
    let found = rule("timeslice=20ms order=fair", &jobs);
    assert_eq!(found, ("small_waits", "overlap order=priority".into()));
    let advice = advised("timeslice=20ms order=fair", &jobs).expect("advice");
    let remedy = advice.remedy.expect("it is to have a priority");
    let slot = shm_layout::SlotId { index: 1, epoch: 1 };
    assert_eq!(remedy.edits[0], Edit::priority(Who::Slot(slot), 5));
    assert_eq!(remedy.gainers, [Who::Slot(slot)]);
    assert_eq!(
        advice.cost.expect("a cost").losers.first,
        ["100 train", "102 other"]
    );
    let capped = Did {
        cap: Some(10),
        ..serve
    };
    let jobs = beside(train, capped);
    let other = advised("timeslice=5ms order=fair", &jobs);
    assert_eq!(other, NOTHING, "its cap makes it wait");
    let light = Did {
        weight: 10,
        ..serve
    };
    let jobs = beside(train, light);
    assert_eq!(
        advised("timeslice=5ms order=fair", &jobs),
        NOTHING,
        "its weight does"
    );
    let alike = Did { turns: 50, ..serve };
    let jobs = beside(train, alike);
    assert_eq!(
        advised("timeslice=5ms order=fair", &jobs),
        NOTHING,
        "it uses its turns up"
    );
}

#[test]
fn a_fixed_idle_time_that_keeps_the_device_empty_is_to_be_learned() {
    let server = Did {
        held: 0.4,
        waited: 0.2,
        turns: 400,
        idle_ends: 390,
        ..named("serve")
    };
    let found = rule(
        "timeslice=5ms idle=5ms",
        &[
            server,
            Did {
                name: "b",
                ..server
            },
        ],
    );
    assert_eq!(found, ("idle_holder", "idle=auto".into()));
    let busy = Did {
        idle_ends: 10,
        ..server
    };
    assert_eq!(
        advised("timeslice=5ms idle=5ms", &[busy, Did { name: "b", ..busy }]),
        NOTHING
    );
    assert_eq!(
        advised(
            "timeslice=5ms",
            &[
                server,
                Did {
                    name: "b",
                    ..server
                }
            ]
        ),
        NOTHING
    );
}

#[test]
fn turns_of_one_launch_cost_much() {
    let job = Did {
        held: 0.5,
        waited: 0.5,
        turns: 5000,
        ..named("a")
    };
    let jobs = [job, Did { name: "b", ..job }];
    let found = rule("always order=fifo", &jobs);
    assert_eq!(found, ("short_turns", "timeslice=5ms order=fifo".into()));
    assert_eq!(rule("launches=2", &jobs).0, "short_turns");
    assert_eq!(rule("timeslice=500us", &jobs).0, "short_turns");
    let long = Did { turns: 20, ..job };
    assert_eq!(
        advised("launches=2", &[long, Did { name: "b", ..long }]),
        NOTHING,
        "kernels of seconds"
    );
}

#[test]
fn long_turns_make_equals_wait() {
    let job = Did {
        held: 0.5,
        waited: 0.5,
        turns: 25,
        ..named("a")
    };
    let jobs = [job, Did { name: "b", ..job }, Did { name: "c", ..job }];
    let found = rule("timeslice=200ms order=fair", &jobs);
    assert_eq!(found, ("long_turns", "timeslice=5ms order=fair".into()));
    let mut evidence = evidence("timeslice=200ms", Some(99), &jobs);
    evidence.handoff_ns = Some(50_000);
    let said = advise(&evidence).and_then(|advice| advice.proposal());
    let said = said.expect("advice");
    assert!(said.contains("would make that about 10ms"), "{said}");
    assert!(
        said.contains("throughput (0.97 % of the time in hand-offs of 50us)"),
        "{said}"
    );
    assert_eq!(advised("timeslice=5ms order=fair", &jobs), NOTHING);
}

#[test]
fn weights_and_equals_without_a_policy_want_turns() {
    let jobs = [
        named("a"),
        Did {
            weight: 400,
            ..named("b")
        },
    ];
    assert_eq!(
        rule("off", &jobs),
        ("weights", "timeslice=5ms order=fair".into())
    );
    assert_eq!(advised("overlap order=fair", &jobs), NOTHING);
    let equals = [named("a"), named("b")];
    assert_eq!(
        rule("off", &equals),
        ("equals", "timeslice=5ms order=fair".into())
    );
    let sliced = equals.map(|job| Did {
        has_card_slice: true,
        ..job
    });
    assert_eq!(rule("off", &sliced), ("equals", "hw-timeslice=5ms".into()));
    let spare = advise(&evidence("off", Some(40), &equals));
    assert_eq!(spare, NOTHING, "the device has time to spare");
    assert!(
        advise(&evidence("off", None, &equals)).is_some(),
        "and where NVML does not say"
    );
}

#[test]
fn shares_that_leave_the_device_empty_are_not_worth_it() {
    let first = Did {
        weight: 300,
        held: 1.0,
        waited: 0.02,
        ..named("first")
    };
    let second = Did {
        held: 0.3,
        waited: 0.7,
        ..named("second")
    };
    let found = |policy: &str, util, jobs: &[Did]| {
        let advice = advise(&evidence(policy, Some(util), jobs))?;
        let words = advice.remedy.as_ref()?.policy()?.to_owned();
        (advice.kind.id == "spare_time").then_some((advice, words))
    };
    let jobs = [first, second];
    let (advice, words) = found("overlap order=fair", 50, &jobs).expect("advice");
    assert_eq!(words, "off");
    assert_eq!(
        advice.what,
        "101 second is held back for the shares of others 70 % of the time, and the GPU is empty 50 % of it"
    );
    assert_eq!(advice.cost.expect("a cost").losers.first, ["100 first"]);
    let sliced = jobs.map(|job| Did {
        has_card_slice: true,
        ..job
    });
    let by_card = found("overlap order=fair", 50, &sliced);
    assert_eq!(by_card.expect("advice").1, "hw-timeslice=5ms");
    assert!(found("timeslice=5ms order=fair", 50, &jobs).is_some());
    let without = [
        ("overlap order=fair", 90, jobs, "the device is busy"),
        ("overlap order=priority", 50, jobs, "no shares"),
        ("off", 50, jobs, "nobody is held back"),
        (
            "overlap order=fair",
            50,
            [
                first,
                Did {
                    waited: 0.1,
                    ..second
                },
            ],
            "it hardly waits",
        ),
        (
            "overlap order=fair",
            50,
            [
                first,
                Did {
                    cap: Some(30),
                    ..second
                },
            ],
            "its cap does it",
        ),
    ];
    for (policy, util, jobs, why) in without {
        assert!(found(policy, util, &jobs).is_none(), "{why}");
    }
}

#[test]
fn every_row_has_a_name_of_its_own_and_says_what_it_looks_for() {
    for (at, rule) in RULES.iter().enumerate() {
        let kind = &rule.kind;
        let known = RULES[..at].iter().any(|other| other.kind.id == kind.id);
        assert!(!known, "{}", kind.id);
        assert!(
            !kind.about.is_empty() && !kind.about.ends_with('.'),
            "{}",
            kind.about
        );
    }
}

fn event(time_ns: u64, process: usize, sample: &Sample, what: What) -> EventLine {
    EventLine {
        time_ns,
        slot: sample.processes[process].slot(),
        gpu: Some(0),
        what,
        ..EventLine::default()
    }
}

#[test]
fn the_ring_tells_of_the_last_minute_since_the_last_edit() {
    let mut last = sample(
        "timeslice=20ms",
        None,
        &[named("a"), named("b")],
        1000 * S,
        1.0,
    );
    let mut events = Vec::new();
    // One long turn under another policy, then four seconds of turns of 20 ms.
    events.push(event(
        995 * S,
        0,
        &last,
        What::Release {
            reason: Reason::Slice,
            held_ns: 3 * S,
        },
    ));
    events.push(event(996 * S, 0, &last, What::Edit { generation: 2 }));
    for turn in 0..200 {
        let (holder, other) = (turn % 2, (turn + 1) % 2);
        let end = 996 * S + (turn as u64 + 1) * 20 * MS;
        let (reason, held_ns) = (Reason::Slice, 20 * MS);
        events.push(event(end, holder, &last, What::Release { reason, held_ns }));
        events.push(event(end, other, &last, What::Hold { waited_ns: 20 * MS }));
    }
    last.events = events;
    let evidence = Evidence::of_ring(&last, 0).expect("there is a lock");
    assert!((evidence.seconds - 4.0).abs() < 0.01, "{evidence:?}");
    assert_eq!(evidence.jobs.len(), 2);
    for job in &evidence.jobs {
        assert!(
            (job.held - 0.5).abs() < 0.02 && (job.waited - 0.5).abs() < 0.02,
            "{job:?}"
        );
        assert_eq!((job.turns, job.wait_p99_ns), (100, Some(20 * MS)));
    }
    assert_eq!(advise(&evidence).expect("advice").kind.id, "long_turns");
    last.events.clear();
    assert_eq!(
        Evidence::of_ring(&last, 0),
        None,
        "nothing is in it without a lock"
    );
}
