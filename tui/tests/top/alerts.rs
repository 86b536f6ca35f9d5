//! Alerts, their conditions and their texts.

use gpushare_control::audit::Place;
use gpushare_control::change::summary;
use gpushare_observe::finding::{Finding, Severity};
use gpushare_sample::nvml::Slowdown;
use gpushare_sample::{EditLine, ProcessState, Sample, What};
use gpushare_top::state::State;
use shm_layout::{CardSlice, PolicyKind, Unsliced};

use crate::support::{state, story};

const S: u64 = 1_000_000_000;

#[test]
fn each_trouble_is_one_sentence() {
    let state = state();
    let kinds: Vec<_> = state
        .data()
        .alerts
        .iter()
        .map(|alert| alert.kind.id)
        .collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "denials").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| **kind == "unmanaged").count(), 1);
    let denied = state
        .data()
        .alerts
        .iter()
        .find(|alert| alert.kind.id == "denials")
        .unwrap();
    assert!(
        denied
            .sentence()
            .contains("notebook-bob was denied 5 allocations"),
        "{denied:?}"
    );
    assert_eq!(denied.kind.severity, Severity::Warning);
}

/// Returns the kinds of alerts after the story, with each sample changed.
fn alerts_when(change: impl Fn(&mut Sample)) -> Vec<&'static str> {
    let mut state = State::default();
    for mut sample in story() {
        change(&mut sample);
        state.update(sample);
    }
    state
        .data()
        .alerts
        .iter()
        .map(|alert| alert.kind.id)
        .collect()
}

#[test]
fn every_rule_finds_what_it_looks_for() {
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 24] = [
        ("tampered", |s| {
            s.processes[0].vouched = Some(shm_layout::Vouched::default());
            s.damaged = vec![3];
        }),
        ("elsewhere", |s| {
            s.processes[6].elsewhere = Some("/dev/shm/old".into())
        }),
        ("unsliced", |s| {
            let holding = &mut s.processes[1].devices[0];
            holding.view.policy.0.kind = PolicyKind::HwTimeslice(4_000_000);
            holding.view.card_slice = CardSlice::Refused(Unsliced::Driver, 0);
        }),
        ("traced", |s| s.processes[1].trace.wanted = Some(1_000)),
        ("late", |s| {
            s.processes[1].devices[0].counters.drain_timeouts = s.time_ns / 1_000_000_000
        }),
        ("faults", |s| s.processes[1].devices[0].counters.faults = 2),
        ("unsized", |s| {
            s.processes[2].devices[0].counters.unaccounted = 1
        }),
        ("violation", |s| s.devices[0].violations = 1),
        ("stuck", |s| s.processes[0].state = ProcessState::Stuck),
        ("hog", |s| s.devices[0].nvml.util_percent = Some(0)),
        ("near", |s| s.processes[1].devices[0].used = 39 << 30),
        ("over_quota", |s| s.processes[1].devices[0].used = 41 << 30),
        ("invalid", |s| s.processes[2].invalid = true),
        ("refused", |s| {
            s.unmanaged = 3;
            s.unmanaged_ns = s.time_ns;
        }),
        ("unobeyed", |s| s.processes[3].acked = 812),
        ("overcommit", |s| {
            s.processes[0].devices[0].quota.bytes = Some(120 << 30)
        }),
        ("unaccounted", |s| s.devices[0].used_bytes = Some(130 << 30)),
        ("lost", |s| s.events_lost = 5),
        ("thrashing", |s| {
            let now = s.time_ns;
            s.devices[0].view.total_bytes = 80 << 30;
            for process in &mut s.processes[1..3] {
                let counters = &mut process.devices[0].counters;
                (counters.evictions, counters.evictions_in_hour) = (9, 9);
                counters.moving_ns = now / 8;
            }
        }),
        ("xid", |s| {
            let figures = &mut s.devices[0].nvml;
            (figures.xids, figures.xid) = (Some(1), Some(79));
            s.devices[0].nvml.xid_unix_ms = Some(s.unix_ms - 1000);
        }),
        ("slowed", |s| {
            s.devices[0].nvml.slowed_by = Some(Slowdown::Heat)
        }),
        ("link", |s| {
            let figures = &mut s.devices[0].nvml;
            (figures.pcie_generation, figures.pcie_max_generation) = (Some(5), Some(5));
            (figures.pcie_width, figures.pcie_max_width) = (Some(8), Some(16));
        }),
        ("starving", |s| s.processes[4].share.weight = 1000),
        ("forced", |s| {
            for event in s
                .events
                .iter_mut()
                .filter(|e| matches!(e.what, What::Release { .. }))
            {
                event.what = What::Forced { held_ns: 1 };
            }
        }),
    ];
    // The story itself has starving, denied and unmanaged processes.
    let usual = alerts_when(|_| {});
    for (kind, change) in changes {
        assert!(
            kind == "starving" || !usual.contains(&kind),
            "{kind} without a reason"
        );
        assert!(alerts_when(change).contains(&kind), "{kind} is not found");
    }
}

#[test]
fn memory_that_fits_and_that_of_one_process_take_no_turns() {
    let told = |total: u64, movers: usize, waits: u64| {
        let mut state = State::default();
        for mut sample in story() {
            let now = sample.time_ns;
            sample.devices[0].view.total_bytes = total << 30;
            sample.processes.truncate(2);
            for process in &mut sample.processes[..movers] {
                let counters = &mut process.devices[0].counters;
                (counters.evictions, counters.evictions_in_hour) = (9, 9);
                counters.moving_ns = now / 4;
            }
            let holding = &mut sample.processes[0].devices[0].view;
            holding.memory_wait = (waits > 0).then(|| shm_layout::MemoryWait {
                bytes: waits << 30,
                ..Default::default()
            });
            state.update(sample);
        }
        let mut alerts = state.data().alerts.iter();
        let found = alerts.find(|alert| alert.kind.id == "thrashing");
        found.map(|alert| alert.sentence())
    };
    assert_eq!(told(40, 1, 0), None, "one process");
    assert_eq!(told(80, 2, 0), None, "40.9 and 30.2 GiB fit");
    let crowded = told(80, 2, 20).expect("what it waits for does not");
    let words = "2 processes with 91.0G take turns on 80.0G";
    assert!(crowded.contains(words), "{crowded}");
}

#[test]
fn a_stopped_process_that_lost_the_lock_by_force_gets_no_longer_grace_but_the_command_that_continues_it()
 {
    let mut state = State::default();
    for mut sample in story() {
        for event in &mut sample.events {
            if matches!(event.what, What::Release { .. }) {
                event.what = What::Forced { held_ns: 1 };
            }
        }
        sample.processes[1].state = ProcessState::Stopped;
        state.update(sample);
    }
    let told = |name: &str| {
        let mut alerts = state.data().alerts.iter();
        let alert = alerts.find(|a| a.kind.id == "forced" && a.sentence().contains(name));
        let alert = alert.expect("an alert");
        (alert.sentence(), alert.remedy.clone().expect("a remedy"))
    };
    let (sentence, remedy) = told("vllm-worker");
    assert!(sentence.contains("is stopped by a signal"), "{sentence}");
    assert_eq!(remedy.text, "gpushare kill 41849 --signal CONT resumes it");
    assert!(remedy.edits.is_empty(), "{remedy:?}");
    let (sentence, remedy) = told("train-7b");
    assert!(sentence.contains("did not yield GPU0"), "{sentence}");
    assert!(remedy.text.contains("grace="), "{remedy:?}");
}

#[test]
fn an_error_of_a_mig_instances_process_is_shown_on_that_instance_alone() {
    let shown_on = |name: &str| -> Vec<Option<usize>> {
        let mut state = State::default();
        for mut sample in story() {
            let named = sample.processes.iter().find(|one| one.name() == name);
            let pid = named.map_or(Some(1), |process| process.pid);
            let at_ms = sample.unix_ms - 1000;
            for device in &mut sample.devices {
                device.flags |= shm_layout::DEVICE_MIG;
                let figures = &mut device.nvml;
                figures.mig_parent = Some(0);
                (figures.xids, figures.xid) = (Some(1), Some(31));
                (figures.xid_pid, figures.xid_unix_ms) = (pid, Some(at_ms));
            }
            state.update(sample);
        }
        let alerts = state.data().alerts.iter();
        let xids = alerts.filter(|alert| alert.kind.id == "xid");
        xids.map(|alert| alert.gpu).collect()
    };
    assert_eq!(shown_on("notebook-bob"), [Some(0)]);
    assert_eq!(shown_on("one that has ended").len(), 2);
}

#[test]
fn where_users_share_a_machine_what_one_of_them_does_to_the_lock_is_called_no_bug_and_the_users_are_named()
 {
    let mut state = State::default();
    let told = |state: &State| -> Vec<(String, String)> {
        let alerts = state.data().alerts.iter();
        let of_lock = alerts.filter(|alert| matches!(alert.kind.id, "violation" | "tampered"));
        of_lock
            .map(|alert| (alert.sentence(), alert.remedy.clone().unwrap().text))
            .collect()
    };
    for (second, violations) in [(100, 5), (101, 7), (102, 7), (140, 7)] {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = second * 1_000_000_000;
        sample.snapshot.devices.push(Default::default());
        sample.snapshot.devices[0].violations = violations;
        for (slot, user) in [(1, "mallory"), (2, "alice"), (3, "alice")] {
            let mut process = gpushare_sample::ProcessSample::default();
            (process.view.slot.index, process.view.slot.epoch) = (slot, 1);
            process.view.vouched = Some(shm_layout::Vouched::default());
            process.user = user.into();
            sample.snapshot.processes.push(process);
        }
        state.update(sample);
        match second {
            100 => assert_eq!(told(&state), [], "that was before we looked"),
            140 => assert_eq!(told(&state), [], "that was long ago"),
            _ => {
                let all = told(&state);
                let [(sentence, remedy)] = &all[..] else {
                    panic!("{all:?}");
                };
                assert!(
                    sentence.starts_with("GPU0: ") && sentence.ends_with("2 times"),
                    "{sentence}"
                );
                assert!(
                    remedy.starts_with("one of alice and mallory does it"),
                    "{remedy}"
                );
            }
        }
    }
}

#[test]
fn memory_on_a_card_that_rests_is_a_note_after_a_minute_with_the_edit_that_frees_it() {
    let mut state = State::default();
    let parked = |state: &State| {
        let mut alerts = state.data().alerts.iter();
        alerts.find(|alert| alert.kind.id == "parked").cloned()
    };
    for second in 100..=170 {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = second * S;
        let mut device = gpushare_sample::DeviceSample::default();
        device.view.total_bytes = 80 << 30;
        device.nvml.util_percent = Some(0);
        (device.nvml.pstate, device.nvml.clock_mhz) = (Some(8), Some(345));
        sample.snapshot.devices.push(device);
        let mut process = gpushare_sample::ProcessSample::default();
        process.view.slot.epoch = 1;
        process.view.identity.label = "notebook".into();
        let mut holding = gpushare_sample::Holding::default();
        holding.view.used = 20 << 30;
        process.view.devices.push(holding);
        sample.snapshot.processes.push(process);
        state.update(sample);
        assert_eq!(parked(&state).is_some(), second >= 160, "{second}");
    }
    let note = parked(&state).unwrap();
    let sentence = note.sentence();
    assert_eq!(
        sentence,
        "GPU0 has done nothing for 1m, and 20.0G of it are held, at P8, 345 MHz, 0% busy"
    );
    let remedy = note.remedy.unwrap();
    assert_eq!(remedy.text, "evict A notebook when it is idle for 1m");
    let command = remedy.edits[0].command(&state.data().sample).unwrap();
    assert!(command.ends_with(" evict-after=1m"), "{command}");
}

/// Two jobs whose launches go on without turns, second by second.
struct Pair {
    state: State,
    second: u64,
    launches: [u64; 2],
}

impl Pair {
    fn new() -> Self {
        Self {
            state: State::default(),
            second: 100,
            launches: [1000; 2],
        }
    }

    /// Lets some seconds pass in which the jobs make these launches a second under a policy. The samples report `edits`.
    fn pass(&mut self, seconds: u64, policy: &str, rates: [u64; 2], edits: &[EditLine]) {
        for _ in 0..seconds {
            self.second += 1;
            let mut sample = Sample::default();
            sample.snapshot.time_ns = self.second * S;
            sample.snapshot.devices.push(Default::default());
            sample.snapshot.devices[0].uuid = gpushare_base::text::uuids::format([1; 16], false);
            sample.snapshot.devices[0].policy.0 = policy.parse().unwrap();
            for (slot, rate) in rates.into_iter().enumerate() {
                self.launches[slot] += rate;
                let mut process = gpushare_sample::ProcessSample::default();
                (process.view.slot.index, process.view.slot.epoch) = (slot as u16, 1);
                let mut holding = gpushare_sample::Holding::default();
                holding.view.counters.launches = self.launches[slot];
                process.view.devices.push(holding);
                sample.snapshot.processes.push(process);
            }
            sample.edits = edits.to_vec();
            self.state.update(sample);
        }
    }

    fn advised(&self) -> Option<Finding> {
        let mut alerts = self.state.data().alerts.iter();
        alerts.find(|alert| alert.kind.id == "advice").cloned()
    }
}

const IN_TURNS: &str = "timeslice=5ms order=fair";

#[test]
fn a_policy_that_would_serve_the_jobs_better_is_one_line_when_it_lasts() {
    let mut pair = Pair::new();
    pair.pass(10, "off", [1, 1], &[]);
    assert_eq!(pair.advised(), None, "too early");
    pair.pass(10, "off", [1, 1], &[]);
    let advice = pair.advised().expect("it has lasted");
    assert_eq!(
        (advice.kind.severity, advice.gpu),
        (Severity::Note, Some(0))
    );
    let sentence = advice.sentence();
    assert!(
        sentence.starts_with("GPU0: 2 equal jobs share it without a policy"),
        "{sentence}"
    );
    assert_eq!(advice.remedy.as_ref().unwrap().policy(), Some(IN_TURNS));
    let cost = advice.cost.unwrap().to_string();
    assert!(cost.ends_with("(not measured here)"), "{cost}");
}

#[test]
fn a_remedy_that_was_undone_is_not_offered_again() {
    let mut pair = Pair::new();
    pair.pass(20, "off", [1, 1], &[]);
    let remedy = pair.advised().unwrap().remedy.unwrap();
    let sample = &pair.state.data().sample;
    let request = remedy.requests(sample, None, Place::Tui).unwrap().remove(0);
    let made = EditLine {
        generation: 1,
        target: request.target.clone(),
        new: summary(&request.change),
        ..EditLine::default()
    };
    pair.pass(5, "off", [1, 1], std::slice::from_ref(&made));
    assert!(
        pair.advised().is_some(),
        "it was made once, and may be made again"
    );
    let undo = EditLine {
        generation: 2,
        undoes: Some(1),
        ..EditLine::default()
    };
    pair.pass(6, "off", [1, 1], &[made, undo]);
    assert_eq!(pair.advised(), None);
}

#[test]
fn an_undone_edit_in_the_other_direction_is_not_the_remedy() {
    for (new, offered) in [("quota 15GiB", false), ("quota 8GiB", true)] {
        let mut state = State::default();
        for mut sample in story() {
            let made = EditLine {
                generation: 1,
                target: "41876 notebook-bob gpu0".into(),
                old: Some("quota 12GiB".into()),
                new: new.into(),
                ..EditLine::default()
            };
            let undo = EditLine {
                generation: 2,
                undoes: Some(1),
                ..EditLine::default()
            };
            sample.edits.extend([made, undo]);
            state.update(sample);
        }
        let mut alerts = state.data().alerts.iter();
        let denied = alerts.find(|alert| alert.kind.id == "denials").unwrap();
        assert_eq!(denied.remedy.is_some(), offered, "{new}");
    }
}

#[test]
fn a_policy_under_which_no_job_did_more_is_not_offered_and_the_cost_of_another_is_what_was_measured()
 {
    for (rates, cost) in [
        ([50, 50], None),
        ([150, 150], Some("")),
        (
            [150, 50],
            Some("B - launches (100.0 to 50.0 a second, measured here)"),
        ),
    ] {
        let mut pair = Pair::new();
        pair.pass(10, "off", [100, 100], &[]);
        pair.pass(10, IN_TURNS, rates, &[]);
        pair.pass(20, "off", [100, 100], &[]);
        let told = pair
            .advised()
            .map(|advice| advice.cost.map_or(String::new(), |cost| cost.to_string()));
        assert_eq!(told.as_deref(), cost, "{rates:?}");
    }
}

#[test]
fn an_alert_has_its_own_age_and_is_older_than_the_dashboard_if_it_was_there_before() {
    let mut state = State::default();
    for mut sample in story() {
        sample.processes[0].state = ProcessState::Stuck;
        sample.processes[0].heartbeat_ns = sample.time_ns - 840 * S;
        state.update(sample);
    }
    let now_ns = state.data().sample.time_ns;
    let age = |kind: &str| {
        let mut alerts = state.data().alerts.iter();
        let alert = alerts.find(|alert| alert.kind.id == kind).unwrap();
        ((now_ns - alert.since_ns) / S, alert.is_older)
    };
    let (stuck, older) = age("stuck");
    assert!(
        stuck >= 840 && !older,
        "its last sign of life is known: {stuck}"
    );
    assert!(age("starving").1, "it was so at the first look");
}

/// Plays the story with turns of five milliseconds: each process waits only for a moment, again and again.
fn story_of_short_turns(order: shm_layout::Order) -> State {
    const MS: u64 = 1_000_000;
    let mut state = State::default();
    for mut sample in story() {
        sample.events.clear();
        // The launches of the processes; the device has no counter of its own.
        let mine = sample
            .processes
            .iter_mut()
            .flat_map(|p| &mut p.view.devices);
        mine.for_each(|holding| holding.policy.0.order = order);
        sample.devices[0].policy.0.order = order;
        let from = sample.time_ns - 250 * MS;
        for turn in 0..50 {
            // The first has nearly every turn, the next two have one in fifty each.
            let holder = match turn {
                0 => 1,
                25 => 2,
                _ => 0,
            };
            let at = from + turn * 5 * MS;
            for process in 0..3 {
                let what = match process == holder {
                    true => What::Hold { waited_ns: 0 },
                    false => What::Wait,
                };
                let slot = sample.processes[process].slot();
                sample.events.push(gpushare_sample::EventLine {
                    time_ns: at,
                    slot,
                    gpu: Some(0),
                    what,
                    ..Default::default()
                });
            }
        }
        for process in 0..6 {
            let now = sample.time_ns;
            let lock = &mut sample.processes[process].devices[0].lock;
            let state = match process {
                0 => shm_layout::LockState::Hold,
                1 | 2 => shm_layout::LockState::Wait,
                _ => shm_layout::LockState::Idle,
            };
            (lock.state, lock.since_ns) = (state, now);
        }
        state.update(sample);
    }
    state
}

#[test]
fn who_waits_nearly_always_is_seen_to_starve_however_short_each_wait_is() {
    let state = story_of_short_turns(shm_layout::Order::Priority);
    let alerts = state.data().alerts.iter();
    let starving: Vec<_> = alerts.filter(|alert| alert.kind.id == "starving").collect();
    assert_eq!(starving.len(), 2, "{starving:?}");
    assert!(
        starving[0].sentence().contains("waits 98% of its time"),
        "{starving:?}"
    );
    let remedy = starving[0].remedy.as_ref().unwrap();
    assert_eq!(
        (remedy.text.as_str(), remedy.policy()),
        ("set order=fair", Some("order=fair"))
    );
    let cost = starving[0].cost.as_ref().unwrap();
    assert_eq!(
        cost.losers.first,
        ["A train-7b"],
        "the one that has nearly every turn"
    );
}

#[test]
fn an_alert_keeps_its_age_and_does_not_flicker() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    let over = |state: &State| {
        let mut alerts = state.data().alerts.iter();
        alerts.find(|alert| alert.kind.id == "over_quota").cloned()
    };
    let start = sample.time_ns;
    for second in 1..=6 {
        sample.time_ns = start + second * S;
        // Alternately over and under the quota.
        sample.processes[1].devices[0].used = (39 + second % 2 * 2) << 30;
        state.update(sample.clone());
        let alert = over(&state).expect("it stays");
        assert_eq!(alert.since_ns, start + S, "{second}");
    }
    sample.time_ns = start + 11 * S;
    state.update(sample.clone());
    assert_eq!(over(&state), None, "it has not been so for a while");
    // A process that has ended has no alerts.
    sample.time_ns += S;
    sample.processes[1].devices[0].used = 41 << 30;
    state.update(sample.clone());
    assert!(over(&state).is_some());
    sample.time_ns += S;
    sample.processes.remove(1);
    state.update(sample);
    assert_eq!(over(&state), None);
}

#[test]
fn who_has_its_share_and_waits_all_the_same_shares_a_crowded_device() {
    let alerts = alerts_when(|_| {});
    assert!(alerts.contains(&"crowded"), "{alerts:?}");
    let alone = alerts_when(|sample| {
        for process in &mut sample.processes {
            process.share.cap = Some(2);
        }
    });
    assert!(!alone.contains(&"crowded"), "a cap makes one wait");
}
