//! Several devices: all are shown at once, and an edit applies to the right one.

use crossterm::event::{KeyCode, KeyEvent};
use gpushare_sample::{Holding, LockState, ProcessSample, Sample};
use gpushare_top::app::{self, Next};
use gpushare_top::operator::Task;
use gpushare_top::state::State;
use shm_layout::Change;

use crate::hands::{lines, notice, press, screen, select, title};
use crate::support::{state, story};

/// Adds a second device to `vllm-worker`.
fn on_two_devices(mut sample: Sample) -> Sample {
    let process: &mut ProcessSample = &mut sample.processes[1];
    let mut second = process.devices[0].clone();
    (second.gpu, second.view.entry) = (1, 1);
    process.devices.push(second);
    sample.devices[1].index = 1;
    sample
}

fn state_of_two_devices() -> State {
    let mut state = State::default();
    story().for_each(|sample| state.update(on_two_devices(sample)));
    state
}

#[test]
fn on_a_device_without_the_selected_process_nothing_is_done_to_it() {
    let mut state = state();
    select(&mut state, "train-7b");
    press(&mut state, "\tP");
    assert!(state.overlay.is_none());
    assert!(
        notice(&state).contains("not in this list"),
        "{}",
        notice(&state)
    );
}

#[test]
fn in_the_list_of_all_devices_a_key_means_the_row() {
    let mut state = state_of_two_devices();
    state.choices.all_gpus = true;
    select(&mut state, "vllm-worker");
    let rows: Vec<usize> = state.rows().iter().map(|row| row.holding.gpu).collect();
    assert_eq!(rows.iter().filter(|gpu| **gpu == 1).count(), 1);
    // Moves to the row of the second device.
    for _ in 0..rows.len() {
        if state.choices.gpu == 1 {
            break;
        }
        app::key(&mut state, KeyEvent::from(KeyCode::Down));
    }
    assert_eq!(state.choices.gpu, 1, "the card shows the row's device");
    let marked = screen(&state);
    assert!(marked.contains("GPU1 H200"), "{marked}");
    press(&mut state, "e");
    assert_eq!(
        title(&state),
        "Memory quota  B 41849 vllm-worker on GPU1 (alice)"
    );
    let Next::Do(Task::Edit(request)) = press(&mut state, "32G\n") else {
        panic!("no edit");
    };
    let Change::ProcessQuota { device, .. } = request.change else {
        panic!("not a quota");
    };
    assert_eq!(device, Some(1), "its entry of the second device");
    press(&mut state, "\x1bp");
    assert_eq!(title(&state), "Lock policy  GPU1 H200");
}

#[test]
fn a_process_alone_is_edited_on_the_device_it_is_shown_on() {
    let mut state = state_of_two_devices();
    select(&mut state, "train-7b");
    press(&mut state, "\n");
    state.choices.gpu = 1;
    press(&mut state, "p");
    assert_eq!(title(&state), "Lock policy  GPU0 H200", "its only device");
    press(&mut state, "\x1b\x1b");
    state.show_gpu(0);
    select(&mut state, "vllm-worker");
    press(&mut state, "\n\te");
    assert!(title(&state).contains("on GPU1"), "{}", title(&state));
    press(&mut state, "\x1b\te");
    assert!(title(&state).contains("on GPU0"), "{}", title(&state));
}

#[test]
fn the_list_of_all_devices_names_the_device_of_each_row_on_a_narrow_screen_too() {
    let mut state = state_of_two_devices();
    state.choices.all_gpus = true;
    for width in [40, 60, 80, 120] {
        let shown = lines(&state, (width, 24), true);
        let heading = shown.iter().find(|line| line.contains("NAME")).unwrap();
        assert!(heading.contains(" G "), "{width}: {heading}");
    }
}

/// Puts the story on eight devices, of which the last two are parts of one.
pub fn eight(mut sample: Sample) -> Sample {
    for gpu in 2..8 {
        let mut device = sample.devices[1].clone();
        device.uuid = format!("GPU-8f1c2d3e-0000-4000-8000-0000000000{gpu:02}");
        if gpu >= 6 {
            device.name = "NVIDIA H200 MIG 1g.18gb".into();
            device.nvml.mig_parent = Some(6);
        }
        sample.devices.push(device);
    }
    sample
}

#[test]
fn a_device_without_a_lock_is_not_called_free_while_jobs_submit() {
    let mut state = State::default();
    for mut sample in story() {
        let device = &mut sample.devices[0];
        (device.view.owner, device.view.policy) = (None, Default::default());
        device.view.waiters.clear();
        for process in &mut sample.processes {
            let holding = &mut process.devices[0];
            holding.view.policy = Default::default();
            holding.view.lock.state = LockState::Idle;
        }
        state.update(sample);
    }
    for size in [(80, 24), (120, 40)] {
        let seen = lines(&state, size, false).join("\n");
        assert!(seen.contains("now   no lock: 6 jobs submit"), "{seen}");
    }
    state.show_gpu(1);
    let seen = lines(&state, (80, 24), false).join("\n");
    assert!(seen.contains(" 6 active"), "{seen}");
    assert!(seen.contains("now   free"), "GPU1 has no job: {seen}");
}

#[test]
fn a_digit_shows_the_device_with_that_number() {
    let mut state = State::default();
    story().for_each(|sample| state.update(eight(sample)));
    press(&mut state, "5");
    assert_eq!(state.choices.gpu, 5);
    press(&mut state, "0");
    assert_eq!(state.choices.gpu, 0);
    press(&mut state, "9");
    assert_eq!(state.choices.gpu, 0);
    assert_eq!(notice(&state), "there is no GPU9; there are 8");
}

#[test]
fn eight_devices_are_seen_at_once_at_every_usual_size() {
    let mut state = State::default();
    story().for_each(|sample| state.update(eight(sample)));
    for (width, height) in [(60, 16), (80, 24), (120, 40), (200, 50)] {
        let seen = lines(&state, (width, height), true)[..12].join("\n");
        for gpu in 0..if width == 60 { 3 } else { 8 } {
            let named = seen.contains(&format!("GPU{gpu} ")) || seen.contains(&format!(" {gpu} "));
            assert!(named, "GPU{gpu} at {width}x{height}:\n{seen}");
        }
        assert!(seen.contains("now   A train-7b"), "{seen}");
    }
}

#[test]
fn a_process_stands_on_the_devices_it_uses_and_not_on_those_it_only_sees() {
    let mut state = State::default();
    for mut sample in story() {
        for process in &mut sample.processes {
            let mut second = Holding::default();
            (second.gpu, second.view.entry) = (1, 1);
            // NVML lists a process on the devices that it uses.
            process.devices.push(second);
        }
        state.update(sample);
    }
    assert_eq!(state.data().on(0).len(), 7);
    assert_eq!(state.data().on(1), []);
    press(&mut state, "G");
    assert_eq!(state.rows().len(), 7, "one row each");
}
