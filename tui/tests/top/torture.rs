//! Arbitrary samples, keys and sizes: the dashboard draws them, and no text acts on the terminal.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use gpushare_observe::source::Source;
use gpushare_observe::source::live::Live;
use gpushare_observe::source::replay::{Recorder, Replay};
use gpushare_sample::{EventLine, Sample, SlotId, What};
use gpushare_top::app;
use gpushare_top::state::State;
use gpushare_top::view;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use shm_layout::{DEVICE_SIM, Identity, LaunchLimits, Segments, register};

use crate::support::{held_together, look, state, story};

const S: u64 = 1_000_000_000;

fn draw(state: &State, width: u16, height: u16, ascii: bool) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    view::draw_into(&mut buffer, area, state, &look(ascii));
    buffer
}

/// Checks that no cell has a character that a terminal would obey.
fn assert_harmless(buffer: &Buffer) {
    for cell in buffer.content() {
        let symbol = cell.symbol();
        assert!(
            !symbol.chars().any(char::is_control),
            "{symbol:?} reaches the terminal"
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Key(KeyCode, bool),
    /// A sample whose clock is this many seconds ahead or behind.
    Sample(i64),
    /// A sample with only this many processes and devices.
    Fewer(usize, usize),
    Draw(u16, u16, bool),
}

fn step() -> impl Strategy<Value = Step> {
    use KeyCode as K;
    let named = [
        K::Enter,
        K::Esc,
        K::Tab,
        K::Up,
        K::Down,
        K::Home,
        K::End,
        K::PageDown,
        K::Backspace,
        K::Left,
        K::Right,
    ];
    let key = prop_oneof![
        proptest::sample::select(named.to_vec()),
        proptest::char::range(' ', '~').prop_map(K::Char),
        any::<char>().prop_map(K::Char),
    ];
    prop_oneof![
        6 => (key, proptest::bool::weighted(0.05)).prop_map(|(key, control)| Step::Key(key, control)),
        2 => (-100_000_i64..100_000).prop_map(Step::Sample),
        1 => (0_usize..8, 0_usize..3).prop_map(|(processes, devices)| Step::Fewer(processes, devices)),
        3 => (0_u16..140, 0_u16..60, any::<bool>()).prop_map(|(width, height, ascii)| Step::Draw(width, height, ascii)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_keys_no_clock_and_no_size_make_it_panic(steps in prop::collection::vec(step(), 1..60)) {
        let mut state = state();
        let last = story().last().unwrap();
        for step in steps {
            match step {
                Step::Key(code, control) => {
                    let modifiers = if control { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
                    app::key(&mut state, KeyEvent::new(code, modifiers));
                }
                Step::Sample(seconds) => {
                    let mut sample = last.clone();
                    sample.time_ns = sample.time_ns.saturating_add_signed(seconds * S as i64);
                    sample.unix_ms += seconds * 1000;
                    state.update(sample);
                }
                Step::Fewer(processes, devices) => {
                    let mut sample = last.clone();
                    sample.processes.truncate(processes);
                    sample.devices.truncate(devices);
                    state.update(sample);
                }
                Step::Draw(width, height, ascii) => assert_harmless(&draw(&state, width, height, ascii)),
            }
        }
        assert_harmless(&draw(&state, 120, 40, false));
    }

    #[test]
    fn no_name_acts_on_the_terminal(name in any::<String>(), other in "\\PC{0,40}", width in 0_u16..130, height in 0_u16..50) {
        let mut samples: Vec<Sample> = story().collect();
        for sample in &mut samples {
            for process in &mut sample.processes {
                process.identity.label.clone_from(&name);
                process.user.clone_from(&other);
                process.identity.exe = format!("/{other}/{name}");
                process.group = Some(name.clone());
                process.container = Some(other.clone());
            }
            for event in &mut sample.events {
                event.name = name.as_str().into();
            }
            for device in &mut sample.devices {
                device.name.clone_from(&other);
            }
            sample.host.clone_from(&name);
            sample.segment.dir.clone_from(&other);
        }
        let mut state = State::default();
        samples.into_iter().for_each(|sample| state.update(sample));
        for keys in ["", "m", "e", "w", "p", "\n"] {
            for key in keys.chars() {
                let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
                app::key(&mut state, KeyEvent::from(code));
            }
            assert_harmless(&draw(&state, width, height, false));
            app::key(&mut state, KeyEvent::from(KeyCode::Esc));
        }
    }

    #[test]
    fn a_damaged_recording_is_played_or_refused(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40), cut in any::<prop::sample::Index>()) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorder = Recorder::create(file.path()).unwrap();
        story().step_by(20).for_each(|sample| recorder.add(&sample).unwrap());
        drop(recorder);
        let mut bytes = std::fs::read(file.path()).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()).max(bytes.len() / 2));
        std::fs::write(file.path(), bytes).unwrap();
        let Ok(mut replay) = Replay::open(file.path()) else {
            return Ok(());
        };
        let mut state = State::default();
        while let Ok(Some(sample)) = replay.next() {
            state.update(sample);
            assert_harmless(&draw(&state, 120, 40, false));
        }
    }
}

/// Makes a segment with three processes on two devices, in the state after they were killed.
fn segment(dir: &Path) {
    let segments = Segments::open_workload(dir).unwrap();
    for name in ["trainer", "server", "notebook"] {
        let identity = Identity::of_self(name);
        let registration = register(&segments, &identity, &LaunchLimits::default()).unwrap();
        for gpu in 0..2_u8 {
            registration
                .add_device([gpu + 1; 16], gpu, "Made-up GPU", 141 << 30, DEVICE_SIM)
                .unwrap();
        }
        std::mem::forget(registration);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_in_the_segment_is_drawn(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 1_usize..2000), 1..30)
    ) {
        let dir = tempfile::tempdir().unwrap();
        segment(dir.path());
        let mut live = Live::new(dir.path(), false);
        let mut state = State::default();
        state.update(live.look().unwrap());
        for (at, early, byte, length) in damage {
            for name in ["state", "control"] {
                let file = OpenOptions::new().write(true).open(dir.path().join(name)).unwrap();
                let size = usize::try_from(file.metadata().unwrap().len()).unwrap();
                // The part in use is at the start of the file.
                let reach = if early { size.min(40_000) } else { size };
                let length = length.min(reach);
                file.write_all_at(&vec![byte; length], at.index(reach - length + 1) as u64).unwrap();
            }
            state.update(live.look().unwrap());
            for keys in [&[][..], &[KeyCode::Char('m')], &[KeyCode::Esc, KeyCode::Down, KeyCode::Enter], &[KeyCode::Esc, KeyCode::Char('e')], &[KeyCode::Esc, KeyCode::Char('!')]] {
                for key in keys {
                    app::key(&mut state, KeyEvent::from(*key));
                }
                assert_harmless(&draw(&state, 120, 40, false));
            }
            app::key(&mut state, KeyEvent::from(KeyCode::Esc));
        }
    }
}

#[test]
fn a_clock_that_jumps_leaves_no_wrong_shares_behind() {
    for jump in [-3_600 * S as i64, 3_600 * S as i64, 400 * 86_400 * S as i64] {
        let mut state = state();
        for mut sample in story() {
            sample.time_ns = sample.time_ns.saturating_add_signed(jump);
            for process in &mut sample.processes {
                for holding in &mut process.devices {
                    let since = &mut holding.lock.since_ns;
                    *since = since.saturating_add_signed(jump);
                }
            }
            for event in &mut sample.events {
                event.time_ns = event.time_ns.saturating_add_signed(jump);
            }
            for device in &mut sample.devices {
                device.owner_since_ns = device.owner_since_ns.saturating_add_signed(jump);
            }
            state.update(sample);
        }
        let hold = held_together(&state);
        assert!(
            (0.9..=1.01).contains(&hold),
            "after {jump} ns there is always a holder: {hold}"
        );
    }
}

#[test]
fn as_many_processes_and_devices_as_there_can_be_are_drawn() {
    const PROCESSES: u16 = 256;
    const DEVICES: usize = 16;
    let mut usual = story().last().unwrap();
    let device = usual.devices[0].clone();
    usual.devices = (0..DEVICES)
        .map(|gpu| {
            let mut device = device.clone();
            device.uuid = format!("GPU-8f1c2d3e-0000-4000-8000-0000000000{gpu:02}");
            device.index = gpu as u8;
            device
        })
        .collect();
    let process = usual.processes[0].clone();
    let holding = process.devices[0].clone();
    usual.processes = (0..PROCESSES)
        .map(|index| {
            let mut process = process.clone();
            process.slot.index = index;
            process.pid = Some(1000 + u32::from(index));
            process.identity.label = format!("worker-{index}");
            process.devices = (0..DEVICES)
                .map(|gpu| {
                    let mut holding = holding.clone();
                    holding.gpu = gpu;
                    holding
                })
                .collect();
            process
        })
        .collect();
    usual.events = (0..PROCESSES)
        .map(|index| EventLine {
            slot: Some(SlotId { index, epoch: 7 }),
            gpu: Some(usize::from(index) % DEVICES),
            time_ns: usual.time_ns,
            what: What::Wait,
            ..EventLine::default()
        })
        .collect();
    let mut state = State::default();
    state.update(usual.clone());
    usual.time_ns += S;
    state.update(usual);
    for keys in ["", "G", "m", "v"] {
        for key in keys.chars() {
            app::key(&mut state, KeyEvent::from(KeyCode::Char(key)));
        }
        assert_harmless(&draw(&state, 120, 40, false));
        assert_harmless(&draw(&state, 20, 5, false));
    }
    assert_eq!(state.waits().lines.len(), usize::from(PROCESSES));
}
