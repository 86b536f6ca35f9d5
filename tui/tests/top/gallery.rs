//! Every view at common sizes, with its styles: each row's number and text, and below it one letter per cell for its style where
//! it has any.

use crossterm::event::KeyCode;
use gpushare_base::host::launched::Launched;
use gpushare_sample::{EventLine, Sample, What};
use gpushare_top::overlay::{About, Overlay};
use gpushare_top::palette::{Depth, Palette};
use gpushare_top::state::{Hit, State};
use gpushare_top::view;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use crate::devices::eight;
use crate::hands::{press, tap};
use crate::support::{look, look_with, story};

const SIZES: [(u16, u16); 5] = [(40, 10), (60, 16), (80, 24), (120, 40), (200, 50)];
/// The sizes at which a dialog looks different: what does not fit is cut, and all of it fits.
const OF_DIALOGS: [(u16, u16); 2] = [(40, 10), (80, 24)];
/// The sizes of what uses the room of a larger screen.
const OF_LISTS: [(u16, u16); 3] = [(40, 10), (80, 24), (120, 40)];

/// Returns the style of a cell as a letter; a capital is bold.
fn letter(cell: &Cell) -> char {
    let letter = match cell.fg {
        _ if cell.modifier.contains(Modifier::REVERSED) => '#',
        Color::Reset if cell.modifier.contains(Modifier::DIM) => '-',
        Color::Reset => 't',
        Color::Red => 'r',
        Color::Green => 'g',
        Color::Yellow => 'y',
        Color::Blue | Color::LightBlue => 'b',
        Color::Magenta => 'm',
        Color::LightMagenta => 'v',
        Color::White => 'w',
        Color::Cyan => 'c',
        _ => '?',
    };
    match cell.modifier.contains(Modifier::BOLD) {
        true => letter.to_ascii_uppercase(),
        false if letter == 't' => ' ',
        false => letter,
    }
}

/// Returns a frame's rows: the text, and one letter per cell for the style.
fn rows(state: &State, (width, height): (u16, u16)) -> Vec<(String, String)> {
    let look = look_with(Palette::new(Depth::Ansi16, false, false));
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    view::draw_into(&mut buffer, area, state, &look);
    let row = |y| {
        let text: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        let looks: String = (0..width).map(|x| letter(&buffer[(x, y)])).collect();
        (text, looks)
    };
    (0..height).map(row).collect()
}

/// Returns the frame's text.
fn shown(state: &State, size: (u16, u16)) -> String {
    let lines = rows(state, size).into_iter().map(|(text, _)| text + "\n");
    lines.collect()
}

/// Compares the rows with the recorded ones. Rows that look as `below`, the screen under a dialog, are left out.
fn assert_recorded(name: &str, state: &State, sizes: &[(u16, u16)], below: Option<&State>) {
    let mut all = String::new();
    for &size in sizes {
        all += &format!("{}x{}\n", size.0, size.1);
        let below = below.map(|state| rows(state, size));
        for (y, row) in rows(state, size).into_iter().enumerate() {
            if below.as_ref().is_some_and(|below| below[y] == row) {
                continue;
            }
            all += &format!("{y:2} {}\n", row.0.trim_end());
            if !row.1.trim().is_empty() {
                all += &format!("   {}\n", row.1.trim_end());
            }
        }
    }
    insta::assert_snapshot!(format!("gallery-{name}"), all);
}

/// Returns a machine at the end of the story, after these keys with its second process selected.
fn after(keys: &str, devices: fn(Sample) -> Sample) -> State {
    let mut state = State::default();
    story().for_each(|sample| state.update(devices(sample)));
    state.choices.selected = Some(state.data().on(0)[1]);
    press(&mut state, keys);
    state
}

#[test]
fn every_view_at_every_usual_size_looks_as_it_should() {
    let main = after("", |sample| sample);
    assert_recorded("main", &main, &SIZES, None);
    assert_recorded("eight", &after("", eight), &OF_LISTS, None);
    let lists = [
        ("detail", "\n"),
        ("waits", "m"),
        ("why", "x"),
        ("columns", "o"),
        ("tree", "TT  "),
    ];
    let dialogs = [
        ("quota", "e"),
        ("policy", "p"),
        ("share", "w"),
        ("pause", "P"),
        ("alerts", "!"),
        ("search", ":w"),
        ("audit", "a"),
        ("marked", "  P"),
    ];
    for (views, sizes) in [(&lists[..], &OF_LISTS[..]), (&dialogs, &OF_DIALOGS)] {
        for (name, keys) in views {
            let state = after(keys, |sample| sample);
            assert_recorded(name, &state, sizes, Some(&main));
        }
    }
}

#[test]
fn the_waits_and_what_became_of_the_time_are_told_at_every_usual_size() {
    for devices in [|sample| sample, eight as fn(Sample) -> Sample] {
        let state = after("", devices);
        for size in SIZES {
            let seen = shown(&state, size);
            for word in ["wait p99 ", "time ", "% busy"] {
                assert!(seen.contains(word), "{word}: {seen}");
            }
        }
    }
}

#[test]
fn no_pane_of_the_main_screen_says_a_word_without_its_names() {
    let mut state = after("", |sample| sample);
    // While the lock changes hands all the time, shares are shown instead of the holder.
    let mut next = story().last().unwrap();
    for turn in 1..20 {
        next.snapshot.time_ns += 250_000_000;
        for device in &mut next.snapshot.devices {
            device.view.handoffs += turn * 50;
        }
        state.update(next.clone());
    }
    for size in SIZES {
        let seen = shown(&state, size);
        let line = seen.lines().find(|line| line.contains("last 20 s: "));
        let line = line.unwrap_or_else(|| panic!("no shares: {seen}"));
        assert!(line.contains("A ") && line.contains('%'), "{line}");
        assert!(line.contains("(4 wait"), "{line}");
    }
}

#[test]
fn where_few_lanes_fit_the_holder_and_the_selected_process_are_among_them() {
    let state = after("", |sample| sample);
    let data = state.data();
    let mut state = State::default();
    state.choices.selected = None;
    let last = data.on(0).last().copied();
    story().for_each(|sample| state.update(sample));
    state.choices.selected = last;
    let owner = state.data().sample.devices[0].owner;
    let owner = owner.map(gpushare_sample::Who::Slot);
    for size in [(60, 16), (60, 20)] {
        let seen = shown(&state, size);
        let lanes = seen.split("Lock lanes").nth(1).unwrap();
        let lanes = lanes.split("Processes").next().unwrap();
        for who in [owner, last] {
            let who = who.expect("there is one");
            let name = state.data().process(who).unwrap().name();
            let start: String = name.chars().take(4).collect();
            assert!(lanes.contains(&start), "{name}: {seen}");
        }
    }
}

#[test]
fn a_large_screen_has_no_empty_box() {
    let state = after("", |sample| sample);
    for size in [(100, 30), (120, 40), (160, 45), (300, 80)] {
        let seen = shown(&state, size);
        let empty = |line: &&str| line.chars().all(|letter| " │".contains(letter));
        let count = seen.lines().filter(empty).count();
        // A lane's upper rows and the last lines of the events may be empty.
        assert!(
            count <= 6,
            "{count} of {}x{} are empty: {seen}",
            size.0,
            size.1
        );
    }
}

#[test]
fn the_sentence_on_top_keeps_its_keys_whole_at_every_size() {
    let state = after("", |sample| sample);
    for size in SIZES.iter().filter(|size| size.1 > 10) {
        let seen = shown(&state, *size);
        let lines: Vec<&str> = seen.lines().skip(1).take(2).collect();
        let top = lines.join(" ");
        assert!(top.contains("[1]") && top.contains("[x]"), "{seen}");
        assert!(top.contains(": !"), "{seen}");
        let first = lines[0].trim_end();
        assert!(
            !first.ends_with("…") || first.ends_with(" …"),
            "a word is cut: {seen}"
        );
    }
    let mut calm = State::default();
    for mut sample in story() {
        sample.processes.truncate(1);
        sample.processes[0].devices[0].view.lock = Default::default();
        (sample.devices[0].owner, sample.devices[0].used_bytes) = (None, None);
        sample.devices[0].waiters.clear();
        sample.events.clear();
        calm.update(sample);
    }
    let seen = shown(&calm, (80, 24));
    assert!(seen.contains("A train-7b gets all it asks for"), "{seen}");
}

/// Two that take equal turns, of which the first has three times the weight: no alert, and not its share.
#[test]
fn the_sentence_on_top_does_not_say_that_all_have_their_share_where_x_says_too_little() {
    let mut state = State::default();
    for mut sample in story() {
        sample.processes.truncate(2);
        sample.processes[0].share.weight = 300;
        sample.processes[1].share.weight = 100;
        sample.events.clear();
        sample.devices[0].waiters.clear();
        let now = sample.time_ns;
        let from = now - 250_000_000;
        for turn in 0..50 {
            for process in 0..2 {
                let what = match process == turn as usize % 2 {
                    true => What::Hold { waited_ns: 0 },
                    false => What::Wait,
                };
                sample.events.push(EventLine {
                    time_ns: from + turn * 5_000_000,
                    slot: sample.processes[process].slot(),
                    gpu: Some(0),
                    what,
                    ..Default::default()
                });
            }
        }
        for process in &mut sample.processes {
            let holding = &mut process.view.devices[0];
            holding.policy.0.order = shm_layout::Order::Fair;
            holding.counters.denials = 0;
            (holding.lock.state, holding.lock.since_ns) = (shm_layout::LockState::Wait, now);
        }
        sample.devices[0].policy.0.order = shm_layout::Order::Fair;
        (sample.devices[0].owner, sample.devices[0].used_bytes) = (None, None);
        state.update(sample);
    }
    let alerts = &state.data().alerts;
    assert!(alerts.is_empty(), "{alerts:?}");
    let seen = shown(&state, (120, 40));
    assert!(seen.contains("no alert; x says why"), "{seen}");
}

#[test]
fn a_click_hits_what_is_drawn_there_at_every_usual_size() {
    for devices in [|sample| sample, eight as fn(Sample) -> Sample] {
        let state = after("", devices);
        for (width, height) in SIZES {
            let area = Rect::new(0, 0, width, height);
            let seen = shown(&state, (width, height));
            let mut processes = 0;
            for y in 0..height {
                let Some(Hit::Process(who, _)) = view::hit(area, &state, width / 2, y) else {
                    continue;
                };
                processes += 1;
                let name = state.data().process(who).unwrap().name();
                let start: String = name.chars().take(4).collect();
                // The name stands in the first row of a lane.
                let rows = seen.lines().take(usize::from(y) + 1);
                let named = rows
                    .skip(usize::from(y.saturating_sub(7)))
                    .any(|line| line.contains(&start));
                assert!(named, "{width}x{height} {y} {name}: {seen}");
            }
            assert!(processes >= 2, "{width}x{height}: {processes}");
        }
    }
}

#[test]
fn a_dialog_keeps_its_buttons_on_the_smallest_screen() {
    for key in ["e", "w", "p", "b"] {
        let state = after(key, |sample| sample);
        let seen = shown(&state, (40, 10));
        assert!(seen.contains("< Apply >"), "{key}: {seen}");
    }
}

#[test]
fn no_number_of_processes_and_devices_at_any_size_makes_it_panic() {
    let last = story().last().unwrap();
    for devices in [0, 1, 2, 3, 8, 64] {
        for processes in [0, 1, 7, 64] {
            let mut sample = last.clone();
            let (device, all) = (sample.devices[0].clone(), sample.processes.clone());
            sample.devices = (0..devices)
                .map(|gpu| {
                    let mut device = device.clone();
                    device.uuid = format!("GPU-8f1c2d3e-0000-4000-8000-000000000{gpu:03}");
                    device
                })
                .collect();
            sample.processes = (0..processes)
                .map(|at: usize| {
                    let mut process = all[at % 6].clone();
                    process.view.slot.index = at as u16;
                    process.devices[0].gpu = at % devices.max(1);
                    process
                })
                .collect();
            let mut state = State::default();
            state.update(sample);
            for keys in ["", "G", "m"] {
                press(&mut state, keys);
                for width in [0, 1, 19, 39, 60, 80, 99, 120, 300] {
                    for height in [0, 1, 7, 10, 16, 24, 34, 80] {
                        let area = Rect::new(0, 0, width, height);
                        let mut buffer = Buffer::empty(area);
                        view::draw_into(&mut buffer, area, &state, &look(width % 2 == 0));
                        for (x, y) in [(0, 0), (width / 2, height / 2), (width, height)] {
                            view::hit(area, &state, x, y);
                        }
                    }
                }
                tap(&mut state, KeyCode::Esc);
            }
        }
    }
}

#[test]
fn how_a_process_was_started_is_told_at_every_usual_size() {
    let main = after("", |sample| sample);
    let mut state = after("", |sample| sample);
    let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let variables = [
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("GPUSHARE_MEMORY", "40GiB"),
        ("HF_TOKEN", "(hidden)"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ];
    let launched = Launched {
        command: ["vllm", "serve", "qwen", "--port", "8000"]
            .map(str::to_owned)
            .to_vec(),
        directory: Some("/srv/models".into()),
        variables: Ok(variables.map(pair).to_vec()),
    };
    state.overlay = Some(Overlay::About(Box::new(About {
        who: state.data().on(0)[1],
        launched: Some(Ok(launched)),
        scroll: 0,
    })));
    assert_recorded("about", &state, &OF_LISTS, Some(&main));
}
