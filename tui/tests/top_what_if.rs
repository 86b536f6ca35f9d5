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

    /// Asserts that each job gets about what was foreseen. A machine with much other work needs some more time for that.
    fn compare(&mut self, ghosts: &[Ghost], edit: &str) {
        let mut said = String::new();
        for _ in 0..4 {
            self.go_on(SEEN);
            said = format!("{edit}:");
            let mut worst = 0.0_f64;
            for Ghost { who, now, then } in ghosts {
                let has = f64::from(self.data.lanes.of_last(LAST_NS, *who, 0).hold);
                let (name, then) = (self.data.name(*who), then.held);
                said += &format!(" {name} had {now:.2}, {then:.2} foreseen, has {has:.2};");
                worst = worst.max((then - has).abs());
            }
            eprintln!("{said}");
            if worst < 0.1 {
                return;
            }
        }
        panic!("{said}");
    }
}

/// Time for which jobs are watched after an edit, and the part of it in which their shares count.
const SEEN: Duration = Duration::from_secs(8);
const LAST_NS: u64 = 7_000_000_000;
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn jobs_get_about_what_was_foreseen_for_another_weight_and_another_policy() {
    let bed = Testbed::new();
    gpushare(
        &bed,
        &["policy", "set", "all", "timeslice=20ms", "order=fair"],
    );
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
    let mut share = watch.data.process(train).expect("it lives").share;
    share.weight = 300;
    let foreseen = of_share(&watch.data, 0, train, share).expect("they contend");
    gpushare(&bed, &["set", "name:train", "weight=300"]);
    watch.compare(&foreseen.expect("turns"), "weight=300");

    for words in [
        ["timeslice=5ms", "order=priority"],
        ["timeslice=50ms", "order=fifo"],
    ] {
        let edit = gpushare_control::policy::parse(&words.map(str::to_owned));
        let edit = edit.expect("well formed").expect("a policy");
        let policy = edit.apply(watch.policy()).expect("valid");
        let foreseen = of_policy(&watch.data, 0, &policy).expect("they contend");
        gpushare(&bed, &["policy", "set", "all", words[0], words[1]]);
        watch.compare(&foreseen.expect("turns"), &words.join(" "));
        assert_eq!(watch.policy().order, policy.order);
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
