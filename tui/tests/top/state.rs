//! State derived from the samples: lanes, shares, sorting, filters, the selection.

use crossterm::event::KeyCode;
use gpushare_observe::filter::Filter;
use gpushare_sample::{
    EventLine, LockState, PolicyKind, ProcessState, Sample, SlotId, What, Who, columns,
};

use gpushare_top::once;
use gpushare_top::options::Format;
use gpushare_top::screencast;
use gpushare_top::state::{Screen, State};
use ratatui::style::Color;

use crate::hands::{S, lines, tap};
use crate::support::{coloured, names, state, story};

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
fn rows_sort_by_any_column_and_absent_values_go_last() {
    let mut state = state();
    state.choices.sort = columns::position("used").unwrap();
    assert_eq!(names(&state)[..2], ["train-7b", "vllm-worker"]);
    tap(&mut state, KeyCode::Char('r'));
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
    tap(&mut state, KeyCode::Down);
    let chosen = state.choices.selected;
    tap(&mut state, KeyCode::Char('r'));
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
        tap(&mut state, key);
        let rows: Vec<Who> = state.rows().iter().map(|row| row.who).collect();
        assert_eq!(state.choices.selected, Some(rows[row]), "{key:?}");
    }
}

#[test]
fn one_goes_from_the_waits_to_a_process_and_back() {
    let mut state = state();
    tap(&mut state, KeyCode::Char('m'));
    assert_eq!(state.choices.screen, Screen::Waits);
    let order: Vec<Who> = state.waits().lines.iter().map(|line| line.who).collect();
    tap(&mut state, KeyCode::Down);
    tap(&mut state, KeyCode::Down);
    assert_eq!(
        state.choices.selected,
        Some(order[1]),
        "the order of this screen"
    );
    tap(&mut state, KeyCode::Enter);
    assert_eq!(state.choices.screen, Screen::Detail(order[1]));
    tap(&mut state, KeyCode::Esc);
    assert_eq!(state.choices.screen, Screen::Waits);
    tap(&mut state, KeyCode::Esc);
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
    tap(&mut state, KeyCode::Tab);
    state.update(story().last().unwrap());
    assert_ne!(state.choices.gpu, 0, "who has chosen is followed");
}

#[test]
fn a_frozen_screen_stands_still_and_catches_up() {
    let mut samples = story();
    let mut state = State::default();
    state.update(samples.next().unwrap());
    tap(&mut state, KeyCode::Char('f'));
    let then = state.data().sample.time_ns;
    samples.for_each(|sample| state.update(sample));
    assert_eq!(state.data().sample.time_ns, then);
    tap(&mut state, KeyCode::Char('f'));
    assert!(state.data().sample.time_ns > then);
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
    // Long after its last launch the process is idle.
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
    let heading = |state: &State| lines(state, (80, 24), true).join("\n");
    assert!(!heading(&state).contains("LEFT"));
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    sample.processes[1].devices[0].quota_until_ns = Some(sample.time_ns + 540_000_000_000);
    state.update(sample);
    let seen = heading(&state);
    assert!(seen.contains("LEFT") && seen.contains("9m"), "{seen}");
    state.choices.selected = Some(state.data().on(0)[1]);
    tap(&mut state, KeyCode::Char('e'));
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
    let line = &lines(&state, (120, 40), true)[8];
    assert!(
        line.contains("set by: default   p: all settings   A B: timeslice=2s (launch)"),
        "{line}"
    );
}

#[test]
fn denials_in_every_column_do_not_hide_the_holds() {
    let mut state = State::default();
    for mut sample in story() {
        let now = sample.time_ns;
        for back in 0..4 {
            sample.events.push(gpushare_sample::EventLine {
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
    let shown = lines(&state, (120, 40), false);
    let lane = shown.iter().find(|line| line.contains("A 41822  train-7b"));
    let lane = lane.unwrap();
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
    let shown = lines(&state, (80, 24), true);
    let heading = shown.iter().find(|line| line.contains("PROGRAM"));
    let heading = heading.unwrap();
    let words: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(words, ["|", "NAME", "PROGRAM", "USED", "|"]);
    let wrong = columns::positions("name,size").unwrap_err();
    assert!(wrong.contains("there is no column \"size\""), "{wrong}");
    assert!(columns::positions(" , ").is_err());
}

/// Returns the sorted lengths of the waits of a process that the story's events tell, of those that began after a moment.
fn waits_told(samples: &[Sample], who: Who, from_ns: u64) -> Vec<u64> {
    let events = samples.iter().flat_map(|sample| &sample.events);
    let own = events.filter(|event| event.slot.map(Who::Slot) == Some(who));
    let mut waits: Vec<u64> = own
        .filter_map(|event| match event.what {
            What::Hold { waited_ns } if event.time_ns - waited_ns >= from_ns => Some(waited_ns),
            _ => None,
        })
        .collect();
    waits.sort_unstable();
    waits
}

#[test]
fn percentiles_are_those_of_the_events_and_not_above_the_longest() {
    let samples: Vec<_> = story().collect();
    let state = state();
    for who in state.data().on(0) {
        let from_ns = samples.last().unwrap().time_ns - 20_000_000_000;
        let told = waits_told(&samples, who, from_ns);
        let Some(longest) = told.last() else { continue };
        let p99 = state.data().rates(who, 0).unwrap().wait_p99_ns.unwrap();
        assert!(p99 <= *longest, "{p99} above {longest}");
        assert!(p99 as f64 >= *longest as f64 * 0.9, "{p99} of {longest}");
    }
}

#[test]
fn an_edit_of_the_policy_begins_the_span_of_shares_and_percentiles() {
    const S: u64 = 1_000_000_000;
    let mut samples: Vec<_> = story().collect();
    let end_ns = samples.last().unwrap().time_ns;
    let edited_ns = end_ns - 6 * S;
    let sample = samples.iter_mut().find(|sample| sample.time_ns > edited_ns);
    let sample = sample.unwrap();
    let like = sample.events.first().cloned().unwrap_or_default();
    sample.events.push(EventLine {
        time_ns: edited_ns,
        slot: None,
        gpu: None,
        what: What::Edit { generation: 814 },
        ..like
    });
    sample.events.sort_by_key(|event| event.time_ns);
    let mut state = State::default();
    samples
        .iter()
        .cloned()
        .for_each(|sample| state.update(sample));
    let data = state.data();
    let span = data.span(0);
    assert!(span.since_edit, "{span:?}");
    assert!((5 * S..=6 * S).contains(&span.ns), "{span:?}");
    assert_eq!(
        span.words(),
        format!("{} s since the edit", (span.ns + S / 2) / S)
    );
    for who in data.on(0) {
        let told = waits_told(&samples, who, edited_ns);
        let seen = data.lanes.lengths(who, 0)[1].count();
        assert_eq!(seen, told.len() as u64, "only waits that began since then");
    }
    let holder = data.on(0).into_iter().map(|who| data.spent(who, 0).hold);
    let all: f32 = holder.sum();
    assert!(
        (0.95..=1.01).contains(&all),
        "shares of the new span: {all}"
    );
}

/// Returns the story under `overlap`: A, B and C submit beside each other all the time, and D is held back for A.
fn beside(mut sample: Sample) -> Sample {
    sample.events.clear();
    let now_ns = sample.time_ns;
    for device in &mut sample.snapshot.devices {
        device.view.owner = None;
        device.view.waiters.clear();
        device.view.policy.0.kind = PolicyKind::Overlap(None);
    }
    let first = sample.processes[0].view.slot;
    for (at, process) in sample.snapshot.processes.iter_mut().enumerate() {
        for holding in process.view.devices.iter_mut() {
            let lock = &mut holding.view.lock;
            (lock.state, lock.since_ns) = match at {
                0..3 => (LockState::Active, 1),
                3 => (LockState::Back, now_ns - 162_000_000),
                _ => (LockState::Idle, 0),
            };
            // The three are charged a third of the time each.
            lock.held_ns = if at < 3 { now_ns / 3 } else { 0 };
            lock.waited_ns = if at == 3 { now_ns } else { 0 };
            lock.waited_for = match at {
                3 => vec![(first, now_ns)],
                _ => Vec::new(),
            };
        }
    }
    sample
}

#[test]
fn under_overlap_the_header_tells_who_submits_and_who_is_held_back_for_whom() {
    let mut state = State::default();
    story().map(beside).for_each(|sample| state.update(sample));
    let screen = lines(&state, (120, 40), false).join(" ");
    assert!(
        screen.contains("3 submit, 1 held back: D embed-svc 162ms (for A)"),
        "{screen}"
    );
    for wrong in ["lock free", "queue 0", "HOLDER", "hand-offs"] {
        assert!(!screen.contains(wrong), "{wrong}: {screen}");
    }
    let data = state.data();
    let shares: Vec<f32> = data
        .on(0)
        .iter()
        .map(|who| data.spent(*who, 0).hold)
        .collect();
    assert!(shares.iter().sum::<f32>() <= 1.01, "{shares:?}");
    assert!((shares[0] - 0.333).abs() < 0.02, "{shares:?}");
    assert_eq!(data.waiting(0), 1);
}

#[test]
fn the_columns_of_the_lanes_follow_the_slice_until_the_user_zooms() {
    let sliced = |ns: u64| {
        let mut state = State::default();
        for mut sample in story() {
            for device in &mut sample.snapshot.devices {
                device.view.policy.0.kind = PolicyKind::Timeslice(ns);
            }
            state.update(sample);
        }
        state
    };
    let mut state = sliced(5_000_000);
    assert_eq!(state.choices.column_ns(state.data()), 25_000_000);
    tap(&mut state, KeyCode::Char('z'));
    let zoomed = state.choices.column_ns(state.data());
    assert_ne!(zoomed, 25_000_000);
    let state = sliced(2_000_000_000);
    assert_eq!(state.choices.column_ns(state.data()), 250_000_000);
}

/// Returns a device that `count` processes share in turns of five milliseconds for three seconds.
fn in_short_turns(count: u16) -> State {
    const TURN_NS: u64 = 5_000_000;
    let mut usual = story().last().unwrap();
    let process = usual.processes[0].clone();
    let (end_ns, turns) = (usual.time_ns, 600);
    let device = &mut usual.snapshot.devices[0].view;
    device.policy.0.kind = PolicyKind::Timeslice(TURN_NS);
    (device.owner, device.waiters) = (None, Vec::new());
    let slot = |index| SlotId { index, epoch: 7 };
    usual.snapshot.processes = (0..count)
        .map(|index| {
            let mut process = process.clone();
            process.view.slot = slot(index);
            process.pid = Some(1000 + u32::from(index));
            process.view.identity.label = format!("worker-{index}");
            process.view.devices.truncate(1);
            process.view.devices[0].view.lock.state = LockState::Wait;
            process.view.devices[0].view.lock.since_ns = end_ns;
            process
        })
        .collect();
    let event = |time_ns, index, what| EventLine {
        time_ns,
        slot: Some(slot(index)),
        gpu: Some(0),
        what,
        ..EventLine::default()
    };
    let begin_ns = end_ns - turns * TURN_NS;
    let waits = (0..count).map(|index| event(begin_ns, index, What::Wait));
    let turns = (0..turns).flat_map(|turn| {
        let index = (turn % u64::from(count)) as u16;
        let at = begin_ns + turn * TURN_NS;
        let waited_ns = TURN_NS * u64::from(count - 1);
        [
            event(at, index, What::Hold { waited_ns }),
            event(at + TURN_NS, index, What::Wait),
        ]
    });
    usual.events = waits.chain(turns).collect();
    usual.events.sort_by_key(|event| event.time_ns);
    let mut state = State::default();
    state.update(usual);
    state
}

#[test]
fn a_cell_of_a_lane_shows_the_hold_by_its_height_and_the_wait_behind_it() {
    for (count, size) in [(3, (110, 22)), (64, (200, 50)), (64, (80, 24))] {
        let state = in_short_turns(count);
        let frame = screencast::frame(&state, &coloured(), size);
        let line = |y| -> String { (0..size.0).map(|x| frame[(x, y)].symbol()).collect() };
        let top = (0..size.1)
            .find(|y| line(*y).contains("Lock lanes"))
            .unwrap();
        let end = (top..size.1)
            .find(|y| line(*y).contains("queue depth") || line(*y).starts_with('└'))
            .unwrap();
        let lanes: Vec<u16> = (top + 2..end).collect();
        assert!(lanes.len() >= 3, "{count} at {size:?}: {lanes:?}");
        for y in lanes {
            let cells: Vec<_> = (14..size.0 - 24).map(|x| &frame[(x, y)]).collect();
            let tinted = cells.iter().filter(|cell| cell.bg != Color::Reset);
            let both = tinted
                .clone()
                .filter(|cell| "▁▂▃▄▅▆▇".contains(cell.symbol()));
            assert!(
                tinted.count() > 20,
                "{count} wait nearly always: {}",
                line(y)
            );
            assert!(both.count() > 0, "and hold at times: {}", line(y));
        }
        let mono = lines(&state, size, false);
        let worker = mono
            .iter()
            .skip(top.into())
            .find(|line| line.contains("worker-1"));
        let worker = worker.unwrap();
        assert!(worker.contains('░'), "without colour too: {worker}");
        assert!(
            "▁▂▃▄▅▆▇".chars().any(|part| worker.contains(part)),
            "{worker}"
        );
    }
}

#[test]
fn rows_that_are_nearly_equal_keep_their_places() {
    let mut state = State::default();
    let used = gpushare_sample::columns::position("used").unwrap();
    state.choices.sort_by(used);
    let usual = story().last().unwrap();
    let mut order = Vec::new();
    for (second, [first, second_used]) in [
        [100, 98],
        [98, 100],
        [100, 98],
        [100, 200],
        [196, 200],
        [201, 200],
    ]
    .into_iter()
    .enumerate()
    {
        let mut sample = usual.clone();
        sample.time_ns += (second as u64 + 1) * S;
        sample.processes.truncate(2);
        for (process, used) in sample.processes.iter_mut().zip([first, second_used]) {
            process.devices[0].view.used = used << 30;
        }
        state.update(sample);
        order.push(state.rows()[0].who == state.data().on(0)[0]);
    }
    assert_eq!(order, [true, true, true, false, false, false]);
}

#[test]
fn one_key_marks_what_the_filter_shows_and_takes_the_marks_away() {
    let mut state = state();
    state.choices.filter = Filter::parse("notebook").unwrap();
    tap(&mut state, KeyCode::Char('*'));
    let listed: Vec<_> = state.rows().iter().map(|row| row.who).collect();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|who| state.choices.marked.contains(who)));
    assert_eq!(state.choices.marked.len(), 2);
    tap(&mut state, KeyCode::Char('*'));
    assert!(state.choices.marked.is_empty());
}

#[test]
fn the_share_of_a_job_is_one_number_in_the_header_the_lanes_the_table_and_its_reason() {
    let state = state();
    let screen = lines(&state, (200, 50), false);
    let line = |part: &str| screen.iter().find(|line| line.contains(part)).unwrap();
    let number = |text: &str| -> u32 { text.trim().parse().unwrap() };
    let data = state.data();
    for who in data.on(0).into_iter().take(5) {
        let process = data.process(who).unwrap();
        let named = format!("{} {} ", data.letter(who), process.name());
        let shares = line("last 20 s: ").split("last 20 s: ").nth(1).unwrap();
        let header = shares.split(&named).nth(1).unwrap();
        let header = number(header.split('%').next().unwrap());
        let rows = screen.iter().filter(|line| line.contains(process.name()));
        let lane = rows
            .clone()
            .find(|line| line.contains("HOLD  ") || line.contains("wait  "))
            .unwrap();
        let lane = lane.rsplit('%').nth(2).unwrap();
        let lane = number(lane.rsplit(' ').next().unwrap());
        let row = state.rows().into_iter().find(|row| row.who == who).unwrap();
        let hold = gpushare_sample::columns::find("hold").unwrap();
        let table = (hold.value)(&row).shown().into_owned();
        assert_eq!((header, format!("{lane}%")), (lane, table), "{named}");
    }
}
