//! The line about the newest edit: before and after.

use gpushare_sample::{DeviceSample, EditLine, Holding, LockPolicy, ProcessSample, Sample};
use gpushare_top::state::{Screen, State};

use crate::hands::{lines, press};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A server of a higher priority, a training and a batch job, second by second.
struct Mix {
    state: State,
    second: u64,
    launches: [u64; 3],
    steps: [shm_layout::Histogram; 3],
    policy: LockPolicy,
}

impl Mix {
    fn new() -> Self {
        Self {
            state: State::default(),
            second: 100,
            launches: [1000; 3],
            steps: Default::default(),
            policy: LockPolicy::default(),
        }
    }

    fn pass(&mut self, seconds: u64, rates: [u32; 3], server_step_ns: u64, edits: &[EditLine]) {
        for _ in 0..seconds {
            self.second += 1;
            let mut sample = Sample::default();
            sample.snapshot.time_ns = self.second * S;
            let mut device = DeviceSample::default();
            device.view.policy.0 = self.policy;
            sample.snapshot.devices.push(device);
            let jobs = [("serve", 5), ("train", 0), ("batch", 0)]
                .into_iter()
                .enumerate();
            for (at, (name, priority)) in jobs {
                self.launches[at] += u64::from(rates[at]);
                self.steps[at].add(if at == 0 { server_step_ns } else { 5 * MS }, rates[at]);
                let mut process = ProcessSample::default();
                (process.view.slot.index, process.view.slot.epoch) = (at as u16, 1);
                process.view.identity.label = name.into();
                process.view.heartbeat_ns = self.second * S;
                process.view.share.priority = priority;
                let mut holding = Holding::default();
                holding.view.counters.launches = self.launches[at];
                holding.view.lock.steps = self.steps[at].clone();
                process.view.devices.push(holding);
                sample.snapshot.processes.push(process);
            }
            sample.edits = edits.to_vec();
            self.state.update(sample);
        }
    }

    fn last_line(&self, width: u16) -> String {
        let lines = lines(&self.state, (width, 24), true);
        lines.last().expect("a screen").trim().to_owned()
    }
}

fn edit(second: u64, new: &str, until_s: Option<u64>) -> EditLine {
    EditLine {
        generation: second,
        time_ns: second * S,
        target: "gpu0".into(),
        old: Some("policy off".into()),
        new: new.into(),
        until_ns: until_s.map(|until| until * S),
        ..EditLine::default()
    }
}

#[test]
fn an_edit_is_followed_by_what_each_job_did_before_and_does_since_for_half_a_minute() {
    let mut mix = Mix::new();
    mix.pass(15, [100, 100, 100], 528 * MS, &[]);
    let keys = mix.last_line(160);
    let policy = "policy overlap order=priority idle=auto max-hold=10s grace=200ms sync-skips=0";
    mix.pass(1, [100, 161, 20], 3 * MS, &[edit(115, policy, None)]);
    mix.state.choices.notice = None;
    let line = mix.last_line(160);
    assert!(
        line.starts_with("overlap, urgent first: measuring"),
        "{line}"
    );

    mix.pass(10, [100, 161, 20], 3 * MS, &[]);
    mix.state.choices.notice = None;
    let line = mix.last_line(160);
    let told = line
        .strip_prefix("overlap, urgent first: serve p99 ")
        .expect(&line);
    let (before, rest) = told.split_once("ms -> ").expect(&line);
    let before: u64 = before.parse().expect("a number");
    assert!((450..=528).contains(&before), "right to a bucket: {line}");
    assert!(
        rest.contains("ms, train +61%, batch -80%  u undo  Enter keep"),
        "{line}"
    );
    let narrow = mix.last_line(60);
    assert!(
        narrow.starts_with("overlap, urgent first") && narrow.ends_with("u undo  Enter keep"),
        "{narrow}"
    );

    mix.pass(20, [100, 161, 20], 3 * MS, &[]);
    assert_eq!(mix.last_line(160), keys, "half a minute is over");
}

#[test]
fn a_comparison_is_closed_by_the_key_that_it_offers_and_a_timed_edit_shows_its_end() {
    let mut mix = Mix::new();
    mix.pass(15, [100, 100, 100], 5 * MS, &[]);
    mix.pass(
        10,
        [100, 100, 50],
        5 * MS,
        &[edit(115, "policy off for a while", Some(715))],
    );
    mix.state.choices.notice = None;
    let line = mix.last_line(160);
    assert!(
        line.contains("batch -50%  reverts in 9m50s  u undo  Enter close"),
        "{line}"
    );
    mix.state.select(1);
    press(&mut mix.state, "\n");
    assert_eq!(
        mix.state.choices.screen,
        Screen::Main,
        "the line has the key"
    );
    assert!(
        !mix.last_line(160).contains("undo  Enter"),
        "{}",
        mix.last_line(160)
    );
    press(&mut mix.state, "\n");
    assert!(matches!(mix.state.choices.screen, Screen::Detail(_)));
}

#[test]
fn no_undo_is_offered_after_an_undo_or_a_trace_and_the_new_value_comes_first() {
    let mut mix = Mix::new();
    mix.pass(15, [100, 100, 100], 5 * MS, &[]);
    let slices = edit(115, "policy timeslice=5ms order=fair", None);
    mix.pass(1, [100; 3], 5 * MS, &[slices]);
    let mut undo = edit(116, "policy inherit", None);
    (undo.target, undo.undoes) = ("all GPUs".into(), Some(115));
    undo.old = Some("policy timeslice=5ms order=fair".into());
    let mut trace = edit(117, "trace on, room for 262144 records", None);
    (trace.target, trace.old) = ("4276 serve".into(), Some("trace off".into()));
    for (made, told) in [
        (
            undo,
            "undone: all GPUs: off (was: turns of 5ms, shares by weight): measuring",
        ),
        (
            trace,
            "4276 serve: trace on, room for 262144 records (was: off): measuring",
        ),
    ] {
        mix.pass(1, [100; 3], 5 * MS, &[made]);
        mix.state.choices.notice = None;
        let line = mix.last_line(160);
        assert!(line.starts_with(told), "{line}");
        assert!(
            !line.contains("undo  ") && line.ends_with("Enter keep"),
            "{line}"
        );
    }
}

#[test]
fn the_figures_of_an_own_policy_edit_are_kept_for_advice() {
    let words = "policy overlap order=priority";
    let other: LockPolicy = words["policy ".len()..].parse().expect("a policy");
    for (own, seconds, kept) in [(true, 40, 1), (false, 40, 0), (true, 4, 0)] {
        let mut mix = Mix::new();
        mix.pass(25, [100, 100, 100], 5 * MS, &[]);
        let generation = mix.second;
        if own {
            mix.state.own_edits.insert(generation);
        }
        let before = mix.policy;
        mix.policy = other;
        mix.pass(1, [100, 161, 20], 3 * MS, &[edit(generation, words, None)]);
        mix.pass(seconds, [100, 161, 20], 3 * MS, &[]);
        // The next edit ends the comparison.
        mix.pass(1, [0; 3], MS, &[edit(mix.second, words, None)]);
        let lines = mix.state.take_measurements();
        assert_eq!(lines.len(), kept, "{lines:?}");
        for line in lines {
            assert_eq!(line.jobs, ["serve", "train", "batch"]);
            let [then, now] = line.settings.as_slice() else {
                panic!("{line:?}");
            };
            assert_eq!((then.policy, now.policy), (before, other));
            assert_eq!((then.rates[2], now.rates[2]), (100.0, 20.0));
            let effects = mix.state.data().effect_of(0, &before);
            assert!(effects.is_some(), "the next advice has it");
        }
    }
}
