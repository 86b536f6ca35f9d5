//! The screen of models: processes whose memory comes and goes.

use gpushare_sample::{ProcessState, Sample, Who};
use gpushare_top::state::{Screen, State};
use shm_layout::{Phase, Why};

use crate::hands::{notice, press, select, title};
use crate::support::{frame, story};

const GIB: u64 = 1 << 30;
const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Makes a card of which five processes share 64 GiB: one leaves, one has left, one comes back, one has left by the checkpoint.
pub fn moving(mut sample: Sample) -> Sample {
    let now = sample.time_ns;
    sample.devices[0].view.overcommit = true;
    sample.devices[0].view.total_bytes = 64 * GIB;
    sample.devices[0].used_bytes = Some(60 * GIB);
    let phases = [
        (Phase::Resident, 16, 44),
        (Phase::Evicting, 28, 38),
        (Phase::Restoring, 14, 31),
        (Phase::Evicted, 12, 22),
        (Phase::Evicted, 3, 9),
    ];
    for (at, (process, (phase, gib, moves))) in sample.processes.iter_mut().zip(phases).enumerate()
    {
        let is_there = matches!(phase, Phase::Resident | Phase::Evicting | Phase::Restoring);
        let residence = &mut process.view.residence;
        residence.phase = phase;
        residence.since_ns = now - 120 * MS;
        residence.expected_ns = 300 * MS;
        residence.used_ns = now - [S / 10, 2 * S, S, 40 * S, 7000 * S][at];
        residence.host_bytes = gib * GIB;
        residence.swap_ns = 600 * MS;
        residence.is_checkpoint = at == 4;
        let holding = &mut process.view.devices[0].view;
        holding.used = if is_there { gib * GIB } else { 0 };
        holding.evicted = if is_there { 0 } else { gib * GIB };
        let counters = &mut holding.counters;
        counters.evictions = moves * 3;
        counters.evictions_in_hour = moves;
        counters.wake_p50_ns = (at as u64 + 3) * 100 * MS;
        counters.wake_p99_ns = (at as u64 + 3) * 160 * MS;
        counters.wake_max_ns = (at as u64 + 3) * 170 * MS;
    }
    sample.processes[0].view.share.pinned = true;
    sample.processes[0].view.residence.why = Some(Why::Capturing);
    sample
}

#[test]
fn the_memory_of_a_card_is_shown_beside_what_the_operator_lets_all_have_of_it() {
    let limited = |mut sample: Sample| {
        sample = moving(sample);
        sample.devices[0].view.limit = Some(61 * GIB);
        sample
    };
    for (keys, shown) in [("", " 60.0G/61.0G "), ("M", "60.0G of 61.0G")] {
        let screen = frame(&after(limited, keys), 80, 24, false).to_string();
        assert!(screen.contains(shown), "{screen}");
    }
}

#[test]
fn a_long_state_is_told_by_its_beginning() {
    let restoring = |mut sample: Sample| {
        sample.processes[0].state = ProcessState::Restoring;
        sample
    };
    let screen = frame(&after(restoring, ""), 80, 24, false).to_string();
    assert!(screen.contains(" restor… "), "{screen}");
}

fn after(change: impl Fn(Sample) -> Sample, keys: &str) -> State {
    let mut state = State::default();
    story().for_each(|sample| state.update(change(sample)));
    state.choices.selected = Some(state.data().on(0)[1]);
    press(&mut state, keys);
    state
}

#[test]
fn the_screen_says_where_each_memory_is_and_what_a_request_waits() {
    let state = after(moving, "M");
    for (width, height) in [(40, 10), (80, 24), (110, 28), (200, 50)] {
        let name = format!("models-{width}x{height}");
        insta::assert_snapshot!(name, frame(&state, width, height, false));
    }
    let ascii = frame(&state, 80, 24, true).to_string();
    assert!(ascii.is_ascii(), "{ascii}");
}

#[test]
fn a_card_that_thrashes_says_so_above_the_models_with_what_would_end_it() {
    let thrashing = |sample| {
        let mut sample = moving(sample);
        let now = sample.time_ns;
        for process in &mut sample.processes[..5] {
            process.view.devices[0].view.counters.moving_ns = now / 8;
        }
        sample
    };
    let state = after(thrashing, "M");
    let text = frame(&state, 80, 24, false).to_string();
    assert!(text.contains("GPU0 moves memory for "), "{text}");
    assert!(
        text.contains("5 processes with 73.0G take turns on"),
        "{text}"
    );
    let alert = state
        .data()
        .alerts
        .iter()
        .find(|alert| alert.kind.id == "thrashing");
    let proposal = alert
        .expect("it thrashes")
        .proposal()
        .expect("a longer stay");
    assert!(proposal.starts_with("stay=2400ms"), "{proposal}");
}

#[test]
fn one_goes_from_the_models_to_a_process_and_back_and_pins_it() {
    let mut state = after(moving, "M");
    assert_eq!(state.choices.screen, Screen::Models);
    select(&mut state, "embed-svc");
    press(&mut state, "\n");
    assert!(matches!(state.choices.screen, Screen::Detail(_)));
    press(&mut state, "\x1b");
    assert_eq!(state.choices.screen, Screen::Models);
    press(&mut state, "i");
    assert!(
        title(&state).contains("Pin D 41903 embed-svc"),
        "{}",
        title(&state)
    );
    press(&mut state, "n");
    select(&mut state, "train-7b");
    press(&mut state, "E");
    assert!(
        notice(&state).contains("train-7b is pinned"),
        "{}",
        notice(&state)
    );
    press(&mut state, "M");
    assert_eq!(state.choices.screen, Screen::Main);
}

#[test]
fn a_process_without_memory_is_not_listed_and_no_key_acts_on_it() {
    let empty = |mut sample: Sample| {
        for process in &mut sample.processes {
            for holding in &mut process.view.devices {
                (holding.view.used, holding.view.evicted) = (0, 0);
            }
        }
        sample
    };
    let mut state = after(empty, "M");
    assert!(state.models().is_empty());
    let text = frame(&state, 80, 24, false).to_string();
    assert!(text.contains("no process holds memory on GPU0"), "{text}");
    press(&mut state, "i");
    assert!(state.overlay.is_none(), "it opens {}", title(&state));
}

#[test]
fn without_anything_that_moves_memory_the_screen_says_what_would() {
    let state = after(|sample| sample, "M");
    let text = frame(&state, 80, 24, false).to_string();
    assert!(text.contains("overcommit=on"), "{text}");
}

#[test]
fn the_order_of_the_models_is_that_of_their_letters() {
    let state = after(moving, "M");
    let rows: Vec<Who> = state.models().iter().map(|row| row.who).collect();
    let mut letters: Vec<char> = rows.iter().map(|who| state.data().letter(*who)).collect();
    let shown = letters.clone();
    letters.sort_unstable();
    assert_eq!(shown, letters);
}
