//! What follows from the samples: lanes, shares, alerts, sorting, filters, the selection.

use crossterm::event::{KeyCode, KeyEvent};
use gpushare_tui::sample::Who;
use gpushare_tui::sample::columns;
use gpushare_tui::sample::{PolicyKind, ProcessState, Sample, TraceState, TraceView, What};
use gpushare_tui::source::Source;
use gpushare_tui::source::replay::{Recorder, Replay};
use gpushare_tui::top::app::{self, Next};
use gpushare_tui::top::data::alert::Severity;
use gpushare_tui::top::data::log::Showing;
use gpushare_tui::top::once;
use gpushare_tui::top::operator::Task;
use gpushare_tui::top::options::Format;
use gpushare_tui::top::overlay::Overlay;
use gpushare_tui::top::state::filter::Filter;
use gpushare_tui::top::state::{Screen, State};

use crate::support::{held_together, state, story, traced};

fn names(state: &State) -> Vec<&str> {
    state.rows().iter().map(|row| row.process.name()).collect()
}

fn press(state: &mut State, key: KeyCode) -> Next {
    app::key(state, KeyEvent::from(key))
}

#[test]
fn shares_of_the_lock_follow_the_turns() {
    let state = state();
    let spent: Vec<_> = state
        .data()
        .on(0)
        .iter()
        .map(|who| state.data().spent(*who, 0))
        .collect();
    let hold: f32 = spent.iter().map(|cell| cell.hold).sum();
    assert!(
        (0.98..=1.01).contains(&hold),
        "there is always a holder: {hold}"
    );
    assert!(
        (0.30..0.42).contains(&spent[0].hold),
        "2.1 of 5.75 s: {:?}",
        spent[0]
    );
    assert!(spent[0].wait > 0.5);
    assert_eq!(spent[5].hold, 0.0);
}

#[test]
fn a_dashboard_started_late_shows_the_past_from_the_ring() {
    let mut late = State::default();
    let mut samples: Vec<_> = story().collect();
    let events = samples
        .iter_mut()
        .flat_map(|sample| std::mem::take(&mut sample.events))
        .collect();
    let mut last = samples.pop().unwrap();
    last.events = events;
    late.update(last);
    let who = late.data().on(0)[0];
    let early = state();
    let (a, b) = (late.data().spent(who, 0), early.data().spent(who, 0));
    assert!((a.hold - b.hold).abs() < 0.02, "{a:?} {b:?}");
}

#[test]
fn each_trouble_is_one_sentence() {
    let state = state();
    let kinds: Vec<_> = state.data().alerts.iter().map(|alert| alert.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "denials").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| **kind == "unmanaged").count(), 1);
    let denied = state
        .data()
        .alerts
        .iter()
        .find(|alert| alert.kind == "denials")
        .unwrap();
    assert!(
        denied
            .sentence
            .contains("notebook-bob was denied 5 allocations"),
        "{}",
        denied.sentence
    );
    assert_eq!(denied.severity, Severity::Warning);
}

/// The kinds of alerts after the story, with each sample changed.
fn alerts_when(change: impl Fn(&mut Sample)) -> Vec<&'static str> {
    let mut state = State::default();
    for mut sample in story() {
        change(&mut sample);
        state.update(sample);
    }
    state.data().alerts.iter().map(|alert| alert.kind).collect()
}

#[test]
fn every_rule_finds_what_it_looks_for() {
    type Change = fn(&mut Sample);
    let changes: [(&str, Change); 17] = [
        ("elsewhere", |s| {
            s.processes[6].elsewhere = Some("/dev/shm/old".into())
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
fn rows_sort_by_any_column_and_absent_values_go_last() {
    let mut state = state();
    state.choices.sort = columns::position("used").unwrap();
    assert_eq!(names(&state)[..2], ["train-7b", "vllm-worker"]);
    press(&mut state, KeyCode::Char('r'));
    assert_eq!(names(&state)[0], "notebook-dave");
    state.choices.sort = columns::position("quota").unwrap();
    let last: Vec<_> = names(&state)[5..].to_vec();
    assert_eq!(last, ["ci-job-3312", "render"], "those without a quota");
}

#[test]
fn filters_name_columns_or_just_a_word() {
    let mut state = state();
    let mut listed = |text: &str| {
        state.choices.filter = Filter::parse(text).unwrap();
        let mut names: Vec<_> = names(&state).into_iter().map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(listed("user=alice"), ["vllm-worker"]);
    assert_eq!(listed("user = alice"), ["vllm-worker"]);
    assert_eq!(listed("used > 20G user!= alice"), ["train-7b"]);
    assert_eq!(listed("user =alice vllm"), ["vllm-worker"]);
    assert_eq!(listed("notebook"), ["notebook-bob", "notebook-dave"]);
    assert_eq!(listed("used>20G"), ["train-7b", "vllm-worker"]);
    assert_eq!(listed("used>20G user!=alice"), ["train-7b"]);
    assert_eq!(listed("denials>=1"), ["notebook-bob"]);
    assert_eq!(listed("state=hold").len(), 1);
    assert_eq!(listed("name~ci-"), ["ci-job-3312"]);
    assert_eq!(listed("group=prod").len(), 2);
    assert_eq!(listed(""), listed("gpu=0"));
    assert!(Filter::parse("size>3").unwrap_err().contains("no column"));
    assert!(
        Filter::parse("used>much")
            .unwrap_err()
            .contains("not a number")
    );
}

#[test]
fn the_selection_follows_the_process_and_not_the_row() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    let chosen = state.choices.selected;
    press(&mut state, KeyCode::Char('r'));
    assert_eq!(state.choices.selected, chosen);
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    sample.processes.retain(|p| Some(Who::of(p)) != chosen);
    state.update(sample);
    assert_eq!(state.choices.selected, None, "it has gone");
}

#[test]
fn the_first_key_selects_the_row_one_expects() {
    for (key, row) in [
        (KeyCode::Down, 0),
        (KeyCode::Up, 6),
        (KeyCode::Home, 0),
        (KeyCode::End, 6),
    ] {
        let mut state = state();
        press(&mut state, key);
        let rows: Vec<Who> = state.rows().iter().map(|row| row.who).collect();
        assert_eq!(state.choices.selected, Some(rows[row]), "{key:?}");
    }
}

#[test]
fn one_goes_from_the_waits_to_a_process_and_back() {
    let mut state = state();
    press(&mut state, KeyCode::Char('m'));
    assert_eq!(state.choices.screen, Screen::Waits);
    let order: Vec<Who> = state.waits().lines.iter().map(|line| line.who).collect();
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Down);
    assert_eq!(
        state.choices.selected,
        Some(order[1]),
        "the order of this screen"
    );
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.choices.screen, Screen::Detail(order[1]));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.choices.screen, Screen::Waits);
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.choices.screen, Screen::Main);
}

#[test]
fn the_waits_name_who_held_longest_as_the_worst() {
    let state = state();
    let worst = state.waits().worst().unwrap();
    assert_eq!(
        worst.behind,
        state.data().on(0)[0],
        "train-7b holds longest"
    );
    let span = state.waits().span_ns.unwrap();
    assert!((20..=30).contains(&(span / 1_000_000_000)), "{span}");
    assert!(
        worst.ns < span,
        "no process waits longer than there was time"
    );
}

#[test]
fn the_first_device_with_somebody_on_it_is_shown() {
    let mut sample = story().last().unwrap();
    for process in &mut sample.processes {
        process.devices[0].gpu = 1;
    }
    sample.devices.swap(0, 1);
    let mut state = State::default();
    state.update(sample);
    assert_eq!(state.choices.gpu, 1);
    press(&mut state, KeyCode::Tab);
    state.update(story().last().unwrap());
    assert_ne!(state.choices.gpu, 0, "who has chosen is followed");
}

#[test]
fn a_frozen_screen_stands_still_and_catches_up() {
    let mut samples = story();
    let mut state = State::default();
    state.update(samples.next().unwrap());
    press(&mut state, KeyCode::Char('f'));
    let then = state.data().sample.time_ns;
    samples.for_each(|sample| state.update(sample));
    assert_eq!(state.data().sample.time_ns, then);
    press(&mut state, KeyCode::Char('f'));
    assert!(state.data().sample.time_ns > then);
}

#[test]
fn a_quota_dialog_sends_the_edit_for_the_process_it_was_opened_on() {
    let mut state = state();
    state.choices.selected = Some(state.data().on(0)[1]);
    press(&mut state, KeyCode::Char('e'));
    // The selection moves while the dialog is open: the edit must not.
    state.choices.selected = Some(state.data().on(0)[0]);
    for _ in 0..8 {
        press(&mut state, KeyCode::Backspace);
    }
    for key in "32G".chars() {
        press(&mut state, KeyCode::Char(key));
    }
    let Next::Do(Task::Edit(request)) = press(&mut state, KeyCode::Enter) else {
        panic!("no edit was sent");
    };
    assert_eq!(request.target, "41849 vllm-worker gpu0");
    assert_eq!(request.target_start_time, Some(1000));
    let shm_layout::Change::ProcessQuota { slot, value, .. } = request.change else {
        panic!("not a quota");
    };
    assert_eq!((slot.index, slot.epoch), (1, 7));
    assert_eq!(value, shm_layout::QuotaValue::Bytes(32 << 30));
}

#[test]
fn a_wrong_value_is_not_sent() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('e'));
    for key in "Q".chars() {
        press(&mut state, KeyCode::Char(key));
    }
    assert!(matches!(press(&mut state, KeyCode::Enter), Next::Continue));
    assert!(
        matches!(state.overlay, Some(Overlay::Dialog(_))),
        "the dialog stays open"
    );
}

#[test]
fn read_only_sends_nothing() {
    let mut state = state();
    state.choices.read_only = true;
    press(&mut state, KeyCode::Down);
    for key in ['e', 'p', 'w'] {
        press(&mut state, KeyCode::Char(key));
        assert!(
            matches!(press(&mut state, KeyCode::Enter), Next::Continue),
            "{key}"
        );
        press(&mut state, KeyCode::Esc);
    }
    press(&mut state, KeyCode::Char('P'));
    assert!(state.overlay.is_none(), "P does not even ask");
}

#[test]
fn a_policy_dialog_sends_what_is_filled_in() {
    let mut state = state();
    press(&mut state, KeyCode::Char('p'));
    press(&mut state, KeyCode::Right);
    let Next::Do(Task::Edit(request)) = press(&mut state, KeyCode::Enter) else {
        panic!("no edit was sent");
    };
    let shm_layout::Change::Policy { device, policy, .. } = request.change else {
        panic!("not a policy");
    };
    assert!(device.is_some(), "this GPU only");
    assert_eq!(policy.unwrap().kind, shm_layout::PolicyKind::Always);
}

#[test]
fn a_policy_dialog_tells_what_somebody_else_set_meanwhile() {
    let mut state = state();
    press(&mut state, KeyCode::Char('p'));
    let mut sample = state.data().sample.clone();
    sample.devices[0].policy.0.kind = PolicyKind::Launches(7);
    state.update(sample);
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("no dialog");
    };
    let first = &dialog.checks(state.data())[0].text;
    assert!(first.starts_with("changed in the meantime: "), "{first}");
    assert!(first.contains("was launches=7"), "{first}");
}

#[test]
fn the_printed_document_names_who_waited_for_whom() {
    let mut out = Vec::new();
    once::print(&mut out, &state(), Format::Json, None, true).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let lock = &document["devices"][0]["lock"];
    let first = &lock["waits"][0];
    assert_eq!(first["for_pid"], 41822, "{lock}");
    assert_eq!(first["waited_ns"], 9_750_000_000_u64, "{lock}");
    assert!(first["share_percent"].as_f64().unwrap() > 40.0, "{lock}");
    let sentence = lock["longest_wait"].as_str().unwrap();
    assert!(sentence.contains("for A 41822 train-7b"), "{sentence}");
    assert!(lock["handoff_p50_us"].as_f64().unwrap() > 32.0, "{lock}");
    assert!(document["devices"][1]["lock"]["longest_wait"].is_null());

    let mut out = Vec::new();
    once::print(&mut out, &state(), Format::Csv, None, true).unwrap();
    let csv = String::from_utf8(out).unwrap();
    let column = csv
        .lines()
        .next()
        .unwrap()
        .split(',')
        .position(|key| key == "behind");
    let b = csv
        .lines()
        .find(|line| line.contains("vllm-worker"))
        .unwrap();
    assert_eq!(b.split(',').nth(column.unwrap()), Some("41822"), "{csv}");
}

#[test]
fn a_trace_is_asked_about_before_it_begins_and_before_it_ends() {
    let mut state = state();
    state.choices.selected = Some(state.data().on(0)[1]);
    press(&mut state, KeyCode::Char('t'));
    assert!(matches!(press(&mut state, KeyCode::Esc), Next::Continue));
    assert!(state.overlay.is_none(), "no means no");
    press(&mut state, KeyCode::Char('t'));
    let Next::Do(Task::Trace(chosen)) = press(&mut state, KeyCode::Char('y')) else {
        panic!("no trace is begun");
    };
    assert_eq!(
        (chosen.slot.index, chosen.title.as_str()),
        (1, "41849 vllm-worker")
    );

    // Asked for by an operator, or by the launch.
    for room in [Some(1000), None] {
        update_trace(&mut state, traced(TraceState::On, room, 0, false));
        press(&mut state, KeyCode::Char('t'));
        let Next::Do(Task::Edit(request)) = press(&mut state, KeyCode::Enter) else {
            panic!("no trace is ended");
        };
        let shm_layout::Change::Trace { slot, on: None } = request.change else {
            panic!("something else is edited");
        };
        assert_eq!((slot.index, slot.epoch), (1, 7));
    }
}

/// A newer sample, in which the second process's trace stands so.
fn update_trace(state: &mut State, trace: TraceView) {
    let mut sample = state.data().sample.clone();
    sample.time_ns += 1;
    sample.processes[1].trace = trace;
    state.update(sample);
}

#[test]
fn a_process_that_only_writes_logs_is_not_said_to_be_traced() {
    let mut state = state();
    let said = |state: &State| {
        let alerts = state.data().alerts.iter();
        let mut traced = alerts.filter(|alert| alert.kind == "traced");
        traced.next().map(|alert| alert.sentence.clone()).unwrap()
    };
    update_trace(&mut state, traced(TraceState::Off, None, 7, true));
    assert!(said(&state).contains("writes logs of its calls"));
    update_trace(&mut state, traced(TraceState::On, None, 7, true));
    assert!(said(&state).contains("is traced"));
}

#[test]
fn a_recording_goes_back_to_what_was() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = Recorder::create(file.path()).unwrap();
    story().for_each(|sample| recorder.add(&sample).unwrap());
    let mut replay = Replay::open(file.path()).unwrap();
    let mut state = State::default();
    while let Some(sample) = replay.next().unwrap() {
        state.update(sample);
    }
    let (end, events) = (state.data().sample.time_ns, newest(&state));
    let Next::Wind(by_ns) = press(&mut state, KeyCode::Char(',')) else {
        panic!("it is not wound");
    };
    app::wound(&mut state, replay.wind(by_ns).unwrap());
    let now = state.data().sample.time_ns;
    assert!(end - now >= 10_000_000_000, "{end} {now}");
    assert!(
        newest(&state) < events,
        "what is to come has not happened yet"
    );
    let hold = held_together(&state);
    assert!(
        (0.9..=1.01).contains(&hold),
        "the shares are those of then: {hold}"
    );
    app::wound(&mut state, None);
    assert!(
        state.choices.notice.is_some(),
        "a living machine cannot be wound"
    );
}

fn newest(state: &State) -> u64 {
    let mut events = state.data().log.newest(Showing::All, None);
    events.next().map_or(0, |event| event.time_ns)
}

#[test]
fn a_policy_that_would_serve_the_jobs_better_is_one_line_when_it_lasts() {
    let mut state = State::default();
    let advised = |state: &State| {
        let mut alerts = state.data().alerts.iter();
        alerts.find(|alert| alert.kind == "advice").cloned()
    };
    for second in 100..120_u64 {
        // Two jobs that launch without a policy.
        let mut sample = Sample::default();
        sample.snapshot.time_ns = second * 1_000_000_000;
        sample.snapshot.devices.push(Default::default());
        for slot in 1..=2 {
            let mut process = gpushare_tui::sample::ProcessSample::default();
            (process.view.slot.index, process.view.slot.epoch) = (slot, 1);
            let mut holding = gpushare_tui::sample::Holding::default();
            holding.view.counters.launches = second;
            process.view.devices.push(holding);
            sample.snapshot.processes.push(process);
        }
        state.update(sample);
        if second < 110 {
            assert_eq!(advised(&state), None, "{second}: too early");
        }
    }
    let advice = advised(&state).expect("it has lasted");
    assert_eq!((advice.severity, advice.gpu), (Severity::Note, Some(0)));
    assert!(
        advice
            .sentence
            .starts_with("timeslice=5ms order=fair would serve the jobs of GPU0 better"),
        "{advice:?}"
    );
}

/// The story in turns of five milliseconds: whoever waits does so for a moment only, again and again.
fn story_of_short_turns(order: shm_layout::Order) -> State {
    const MS: u64 = 1_000_000;
    let mut state = State::default();
    for mut sample in story() {
        sample.events.clear();
        sample.devices[0].policy.0.order = order;
        let from = sample.time_ns - 250 * MS;
        for turn in 0..50 {
            // The first has nearly every turn, the next two one in fifty each.
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
                sample.events.push(gpushare_tui::sample::EventLine {
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
    let starving: Vec<_> = alerts.filter(|alert| alert.kind == "starving").collect();
    assert_eq!(starving.len(), 2, "{starving:?}");
    assert!(
        starving[0].sentence.contains("waits 98% of its time"),
        "{starving:?}"
    );
    let remedy = starving[0].remedy.as_ref().unwrap().shown();
    assert_eq!(remedy, "[p] set order=fair");
}

#[test]
fn an_alert_keeps_its_age_and_does_not_flicker() {
    const S: u64 = 1_000_000_000;
    let mut state = state();
    let mut sample = story().last().unwrap();
    let over = |state: &State| {
        let mut alerts = state.data().alerts.iter();
        alerts.find(|alert| alert.kind == "over_quota").cloned()
    };
    let start = sample.time_ns;
    for second in 1..=6 {
        sample.time_ns = start + second * S;
        // Over, under, over, under …
        sample.processes[1].devices[0].used = (39 + second % 2 * 2) << 30;
        state.update(sample.clone());
        let alert = over(&state).expect("it stays");
        assert_eq!(alert.since_ns, start + S, "{second}");
    }
    sample.time_ns = start + 11 * S;
    state.update(sample.clone());
    assert_eq!(over(&state), None, "it has not been so for a while");
    // Of a process that has gone nothing is said any more.
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

#[test]
fn a_process_at_work_without_a_lock_is_not_idle() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    let now = sample.time_ns;
    let holding = &mut sample.processes[5].devices[0];
    holding.policy.0.kind = PolicyKind::Off;
    holding.counters.last_submit_ns = now - 300_000_000;
    let works = ProcessState::of(&sample.processes[5], now, false);
    assert_eq!(works, ProcessState::Active);
    sample.processes[5].state = works;
    state.update(sample.clone());
    let word = |state: &State| {
        let rows = state.rows();
        let row = rows
            .iter()
            .find(|row| row.process.name() == "notebook-dave");
        (columns::find("state").unwrap().value)(row.unwrap())
            .raw()
            .into_owned()
    };
    assert_eq!(word(&state), "active");
    // Long after its last launch it is.
    sample.time_ns += 3_000_000_000;
    let later = ProcessState::of(&sample.processes[5], sample.time_ns, false);
    assert_eq!(later, ProcessState::Idle);
    sample.processes[5].state = later;
    state.update(sample);
    assert_eq!(word(&state), "idle");
}

#[test]
fn a_quota_with_an_end_says_how_long_it_holds_and_takes_no_column_otherwise() {
    let mut state = state();
    let heading = |state: &State| {
        let area = ratatui::layout::Rect::new(0, 0, 80, 24);
        let mut buffer = ratatui::buffer::Buffer::empty(area);
        gpushare_tui::top::view::draw_into(&mut buffer, area, state, &crate::support::look(true));
        let line = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..24).map(line).collect::<Vec<_>>().join("\n")
    };
    assert!(!heading(&state).contains("LEFT"));
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    sample.processes[1].devices[0].quota_until_ns = Some(sample.time_ns + 540_000_000_000);
    state.update(sample);
    let seen = heading(&state);
    assert!(seen.contains("LEFT") && seen.contains("9m"), "{seen}");
    state.choices.selected = Some(state.data().on(0)[1]);
    press(&mut state, KeyCode::Char('e'));
    assert!(
        heading(&state).contains("40.0 GiB for 9m"),
        "{}",
        heading(&state)
    );
}

#[test]
fn policies_of_launches_are_told_beside_the_devices_own() {
    let mut state = State::default();
    for mut sample in story() {
        sample.devices[0].policy = Default::default();
        for process in &mut sample.processes[..2] {
            process.devices[0].policy.1 = shm_layout::Source::LaunchEnv;
        }
        for process in &mut sample.processes[2..6] {
            process.devices[0].policy = Default::default();
        }
        state.update(sample);
    }
    let area = ratatui::layout::Rect::new(0, 0, 120, 40);
    let mut buffer = ratatui::buffer::Buffer::empty(area);
    gpushare_tui::top::view::draw_into(&mut buffer, area, &state, &crate::support::look(true));
    let line: String = (0..120).map(|x| buffer[(x, 6)].symbol()).collect();
    assert!(
        line.contains("set by: default   A B: timeslice=2s (launch)"),
        "{line}"
    );
}

#[test]
fn denials_in_every_column_do_not_hide_the_holds() {
    let mut state = State::default();
    for mut sample in story() {
        let now = sample.time_ns;
        for back in 0..4 {
            sample.events.push(gpushare_tui::sample::EventLine {
                time_ns: now - back * 60_000_000,
                slot: sample.processes[0].slot(),
                gpu: Some(0),
                what: What::Denial {
                    asked_bytes: 1,
                    quota_bytes: 1,
                    call: None,
                },
                ..Default::default()
            });
        }
        sample.events.sort_by_key(|event| event.time_ns);
        state.update(sample);
    }
    let area = ratatui::layout::Rect::new(0, 0, 120, 40);
    let mut buffer = ratatui::buffer::Buffer::empty(area);
    gpushare_tui::top::view::draw_into(&mut buffer, area, &state, &crate::support::look(false));
    let line = |y| {
        (0..120)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    let lane = (0..40)
        .map(line)
        .find(|line| line.contains("A 41822  train-7b"))
        .unwrap();
    assert!(
        lane.matches('█').count() > 15,
        "it held a third of the time: {lane}"
    );
    assert!(lane.contains('!'), "{lane}");
}

#[test]
fn the_columns_that_are_asked_for_are_shown_and_printed_in_their_order() {
    let mut state = state();
    state.choices.columns = Some(columns::positions("name, exe,used").unwrap());
    let mut out = Vec::new();
    once::print(&mut out, &state, Format::Csv, None, true).unwrap();
    let csv = String::from_utf8(out).unwrap();
    assert_eq!(csv.lines().next(), Some("unix_ms,name,exe,used"));
    let area = ratatui::layout::Rect::new(0, 0, 80, 24);
    let mut buffer = ratatui::buffer::Buffer::empty(area);
    gpushare_tui::top::view::draw_into(&mut buffer, area, &state, &crate::support::look(true));
    let line = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let heading = (0..24)
        .map(line)
        .find(|line| line.contains("PROGRAM"))
        .unwrap();
    let words: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(words, ["|", "NAME", "PROGRAM", "USED", "|"]);
    let wrong = columns::positions("name,size").unwrap_err();
    assert!(wrong.contains("there is no column \"size\""), "{wrong}");
    assert!(columns::positions(" , ").is_err());
}
