//! Targets of keys: a key never acts on a process that is not on the screen, and always shows its target.

use gpushare_sample::{Sample, Who};
use gpushare_top::app::Next;
use gpushare_top::operator::Task;
use gpushare_top::state::{Screen, State};
use shm_layout::{Change, Set, ShareEdit};

use crate::hands::{notice, press, select, title};
use crate::support::{state, story};

#[test]
fn a_filter_without_a_hit_leaves_no_process_to_act_on() {
    let mut state = state();
    select(&mut state, "train-7b");
    press(&mut state, "/zzz\n");
    assert!(state.rows().is_empty());
    for key in ["P", "e", "w", "t", "\n", "y"] {
        assert!(matches!(press(&mut state, key), Next::Continue), "{key}");
        assert!(state.overlay.is_none(), "{key} opens {}", title(&state));
        assert_eq!(state.choices.screen, Screen::Main, "{key}");
        let said = notice(&state);
        assert!(
            said.contains("train-7b is selected, but the filter hides it"),
            "{key}: {said}"
        );
    }
    press(&mut state, "\x1bP");
    assert!(
        title(&state).contains("Pause A 41822 train-7b"),
        "{}",
        title(&state)
    );
}

#[test]
fn without_a_selection_a_key_selects_and_does_nothing_more() {
    for key in ["P", "e", "w", "t", "\n", "y"] {
        let mut state = state();
        assert!(matches!(press(&mut state, key), Next::Continue), "{key}");
        assert!(state.overlay.is_none(), "{key} opens {}", title(&state));
        assert_eq!(state.choices.screen, Screen::Main, "{key}");
        let first = state.rows()[0].who;
        assert_eq!(state.choices.selected, Some(first), "{key}");
        assert!(
            notice(&state).contains("press the key again"),
            "{}",
            notice(&state)
        );
    }
}

#[test]
fn a_pause_is_asked_about_by_name_and_only_yes_means_yes() {
    let mut state = state();
    select(&mut state, "notebook-bob");
    press(&mut state, "P");
    assert_eq!(title(&state), "Pause C 41876 notebook-bob (bob) on GPU0?");
    assert!(
        matches!(press(&mut state, "P"), Next::Continue),
        "P is no yes"
    );
    assert!(state.overlay.is_none());
    let Next::Do(Task::Edit(request)) = press(&mut state, "Py") else {
        panic!("it is not paused");
    };
    let Change::ProcessShare {
        slot,
        share: ShareEdit { paused, .. },
    } = request.change
    else {
        panic!("not a share");
    };
    assert_eq!((slot.index, paused), (2, Set::To(true)));
}

#[test]
fn a_pin_is_asked_about_and_a_pinned_process_is_not_evicted() {
    let mut state = state();
    select(&mut state, "notebook-bob");
    let Next::Do(Task::Edit(request)) = press(&mut state, "iy") else {
        panic!("it is not pinned");
    };
    let Change::ProcessShare { share, .. } = request.change else {
        panic!("not a share");
    };
    assert_eq!(share.pinned, Set::To(true));
    let mut sample = state.data().sample.clone();
    for process in &mut sample.processes {
        process.view.share.pinned = true;
    }
    state.update(sample);
    press(&mut state, "E");
    assert!(state.overlay.is_none(), "it opens {}", title(&state));
    let said = notice(&state);
    assert!(said.contains("notebook-bob is pinned"), "{said}");
    press(&mut state, "i");
    assert!(
        title(&state).starts_with("Unpin C 41876"),
        "{}",
        title(&state)
    );
}

#[test]
fn rows_stand_still_under_a_dialog() {
    let mut samples: Vec<Sample> = story().collect();
    let rest = samples.split_off(40);
    let mut state = State::default();
    samples.into_iter().for_each(|sample| state.update(sample));
    let order = |state: &State| -> Vec<Who> { state.rows().iter().map(|row| row.who).collect() };
    select(&mut state, "vllm-worker");
    press(&mut state, "e");
    let before = order(&state);
    let mut moved = false;
    for sample in rest {
        let mut free = State::default();
        free.update(sample.clone());
        state.update(sample);
        moved |= order(&free) != before;
        assert_eq!(order(&state), before);
    }
    assert!(moved, "they would have moved");
    press(&mut state, "\x1b");
    assert!(state.choices.pinned.is_none());
}
