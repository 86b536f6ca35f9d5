//! The forecasts of the dialogs, beside what then happens to jobs on the simulated GPU.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use gpushare_observe::data::Data;
use gpushare_observe::source::Source as _;
use gpushare_observe::source::live::Live;
use gpushare_observe::what_if::{Ghost, of_policy, of_share};
use gpushare_sample::{LockPolicy, Who};
use gpushare_testbed::{Testbed, Watched};

fn gpushare(bed: &Testbed, args: &[&str]) {
    let mut command: Command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    let output = command.args(args).output().expect("built");
    assert!(output.status.success(), "{args:?}: {output:?}");
}

fn job(bed: &Testbed, name: &str, rhythm: &[&str]) -> Watched {
    let mut command = bed.workload(&["--memory", "64M", "--seconds", "300"]);
    command.args(rhythm).env("GPUSHARE_NAME", name);
    Watched::spawn(&mut command)
}

/// The jobs of a device, watched.
struct Watch {
    live: Live,
    data: Data,
}

impl Watch {
    fn go_on(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let sample = self.live.next().expect("readable").expect("it lives");
            self.data.update(sample);
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn who(&self, name: &str) -> Who {
        let mut processes = self.data.sample.processes.iter();
        let found = processes.find(|process| process.name() == name);
        Who::of(found.unwrap_or_else(|| panic!("{name} is not here")))
    }

    fn policy(&self) -> LockPolicy {
        self.data.sample.devices[0].policy.0
    }

    /// Edits, and reports whether each job then gets about what was foreseen. A machine with much other work needs some more time for
    /// that.
    fn foresees(&mut self, bed: &Testbed, ghosts: &[Ghost], edit: &[&str]) -> bool {
        gpushare(bed, edit);
        for _ in 0..3 {
            self.go_on(SEEN);
            let mut worst = 0.0_f64;
            for Ghost { who, now, then } in ghosts {
                let has = f64::from(self.data.lanes.of_last(LAST_NS, *who, 0).hold);
                let (name, then) = (self.data.name(*who), then.held);
                eprintln!("{edit:?}: {name} had {now:.2}, {then:.2} foreseen, has {has:.2}");
                worst = worst.max((then - has).abs());
            }
            if worst < 0.1 {
                return true;
            }
        }
        false
    }
}

/// Tries three times: what other work the machine has may be another before and after the edit.
fn eventually_foreseen(mut attempt: impl FnMut() -> bool) {
    assert!((0..3).any(|_| attempt()), "see above");
}

/// Time for which jobs are watched after an edit, and the part of it in which their shares count.
const SEEN: Duration = Duration::from_secs(8);
const LAST_NS: u64 = 7_000_000_000;
const LIMIT: Duration = Duration::from_secs(60);
/// The policy from which each forecast for another one is made.
const FAIR: [&str; 5] = ["policy", "set", "all", "timeslice=20ms", "order=fair"];

#[test]
fn jobs_get_about_what_was_foreseen_for_another_weight_and_another_policy() {
    let bed = Testbed::new();
    gpushare(&bed, &FAIR);
    let _jobs = [
        job(&bed, "train", &["--kernel-us", "2000", "--burst", "40"]),
        job(&bed, "batch", &["--kernel-us", "4000", "--burst", "20"]),
        job(
            &bed,
            "serve",
            &["--kernel-us", "1000", "--burst", "5", "--gap-us", "20000"],
        ),
    ];
    let mut watch = Watch {
        live: Live::new(bed.dir(), false),
        data: Data::default(),
    };
    let is_known = |watch: &Watch| {
        let seen = of_policy(
            &watch.data,
            0,
            &LockPolicy {
                kind: gpushare_sample::PolicyKind::Always,
                ..LockPolicy::default()
            },
        );
        watch.data.sample.processes.len() == 3 && seen.is_some_and(|seen| seen.is_ok())
    };
    let start = Instant::now();
    while !is_known(&watch) {
        watch.go_on(Duration::from_secs(1));
        assert!(
            start.elapsed() < LIMIT,
            "{:?}",
            of_policy(&watch.data, 0, &watch.policy())
        );
    }
    let train = watch.who("train");
    eventually_foreseen(|| {
        gpushare(&bed, &["set", "name:train", "weight=100"]);
        watch.go_on(SEEN);
        let mut share = watch.data.process(train).expect("it lives").share;
        share.weight = 300;
        let foreseen = of_share(&watch.data, 0, train, share).expect("they contend");
        let edit = ["set", "name:train", "weight=300"];
        watch.foresees(&bed, &foreseen.expect("turns"), &edit)
    });

    for words in [
        ["timeslice=5ms", "order=priority"],
        ["timeslice=50ms", "order=fifo"],
    ] {
        let edit = gpushare_control::policy::parse(&words.map(str::to_owned));
        let edit = edit.expect("well formed").expect("a policy");
        eventually_foreseen(|| {
            gpushare(&bed, &FAIR);
            watch.go_on(SEEN);
            let policy = edit.apply(watch.policy()).expect("valid");
            let foreseen = of_policy(&watch.data, 0, &policy).expect("they contend");
            let set = ["policy", "set", "all", words[0], words[1]];
            let is_so = watch.foresees(&bed, &foreseen.expect("turns"), &set);
            assert_eq!(watch.policy().order, policy.order);
            is_so
        });
    }

    // Where jobs submit beside each other nothing is foreseen, before and after.
    let turns = watch.policy();
    let beside = LockPolicy {
        kind: gpushare_sample::PolicyKind::Overlap(None),
        ..turns
    };
    let why = of_policy(&watch.data, 0, &beside).expect("they contend");
    assert!(why.expect_err("no turns").contains("beside each other"));
    gpushare(&bed, &["policy", "set", "all", "overlap"]);
    watch.go_on(Duration::from_secs(2));
    let why = of_policy(&watch.data, 0, &turns).expect("they contend");
    assert!(why.expect_err("no turns").contains("beside each other"));
}
