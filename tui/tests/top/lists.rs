//! The list of processes: columns, order, branches and marks.

use gpushare_sample::columns;
use gpushare_top::app::Next;
use gpushare_top::operator::Task;
use gpushare_top::overlay::Overlay;
use shm_layout::{Change, QuotaValue, Set, ShareEdit};

use crate::hands::{notice, press, screen, select, title};
use crate::support::state;

fn names(state: &gpushare_top::state::State) -> Vec<&str> {
    state.rows().iter().map(|row| row.process.name()).collect()
}

/// Returns the edits that a confirmation makes.
fn edits(next: Next) -> Vec<Change> {
    let Next::Do(Task::All(tasks)) = next else {
        panic!("{next:?}");
    };
    let change = |task| match task {
        Task::Edit(request) => request.change,
        other => panic!("{other:?}"),
    };
    tasks.into_iter().map(change).collect()
}

#[test]
fn marked_processes_are_paused_together_and_named_before() {
    let mut state = state();
    select(&mut state, "embed-svc");
    press(&mut state, " ");
    select(&mut state, "train-7b");
    press(&mut state, " P");
    assert_eq!(title(&state), "Pause 2 processes?");
    let seen = screen(&state);
    assert!(seen.contains("D 41903 embed-svc (carol) on GPU0"), "{seen}");
    assert!(seen.contains("A 41822 train-7b (mlops) on GPU0"), "{seen}");
    let changes = edits(press(&mut state, "y"));
    assert_eq!(changes.len(), 2);
    for change in changes {
        let Change::ProcessShare {
            share: ShareEdit { paused, .. },
            ..
        } = change
        else {
            panic!("{change:?}");
        };
        assert_eq!(paused, Set::To(true));
    }
}

#[test]
fn a_quota_for_all_marked_is_asked_about_by_name() {
    let mut state = state();
    for name in ["embed-svc", "train-7b"] {
        select(&mut state, name);
        press(&mut state, " ");
    }
    press(&mut state, "e");
    assert!(
        title(&state).ends_with("and 1 more marked"),
        "{}",
        title(&state)
    );
    assert!(matches!(press(&mut state, "64G\n"), Next::Continue));
    assert_eq!(title(&state), "Set the quota of 2 processes?");
    let slots: Vec<u16> = edits(press(&mut state, "\n"))
        .into_iter()
        .map(|change| match change {
            Change::ProcessQuota { slot, value, .. } => {
                assert_eq!(value, QuotaValue::Bytes(64 << 30));
                slot.index
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(slots.len(), 2);
    assert!(slots.contains(&0) && slots.contains(&3), "{slots:?}");
}

#[test]
fn esc_takes_the_marks_away_and_a_signal_is_for_one() {
    let mut state = state();
    for name in ["embed-svc", "train-7b"] {
        select(&mut state, name);
        press(&mut state, " ");
    }
    press(&mut state, "K");
    assert!(state.overlay.is_none() && notice(&state).contains("one process at a time"));
    press(&mut state, "\x1b");
    assert!(state.choices.marked.is_empty());
    // A process without the library cannot be paused, alone or with others.
    for name in ["render", "train-7b"] {
        select(&mut state, name);
        press(&mut state, " ");
    }
    press(&mut state, "P");
    assert!(state.overlay.is_none(), "{}", notice(&state));
}

#[test]
fn what_was_sorted_by_before_decides_between_equal_rows() {
    let mut state = state();
    state.choices.sort = columns::position("used").unwrap();
    state.choices.sort_by(columns::position("denials").unwrap());
    assert_eq!(
        names(&state)[..3],
        ["notebook-bob", "train-7b", "vllm-worker"]
    );
    press(&mut state, "r");
    let (first, last) = (names(&state)[0], *names(&state).last().unwrap());
    assert_eq!((first, last), ("train-7b", "notebook-bob"));
}

#[test]
fn a_column_is_shown_hidden_and_sorted_by_from_the_list_of_columns() {
    let mut state = state();
    press(&mut state, "o");
    let Some(Overlay::Columns(at)) = &mut state.overlay else {
        panic!("no list");
    };
    *at = columns::position("user").unwrap();
    press(&mut state, " ");
    let Some(Overlay::Columns(at)) = &mut state.overlay else {
        panic!("no list");
    };
    *at = columns::position("peak").unwrap();
    press(&mut state, " \n");
    assert!(state.overlay.is_none());
    let seen = screen(&state);
    assert!(seen.contains("PEAK") && !seen.contains("USER"), "{seen}");
    assert_eq!(names(&state)[0], "train-7b");
}

#[test]
fn rows_are_gathered_by_user_and_each_branch_says_what_it_comes_to() {
    let mut state = state();
    state.choices.sort = columns::position("used").unwrap();
    press(&mut state, "TT");
    let seen = screen(&state);
    assert!(seen.contains("group prod  2 processes"), "{seen}");
    assert!(seen.contains("no group  5 processes"), "{seen}");
    assert_eq!(names(&state)[..2], ["train-7b", "vllm-worker"]);
    press(&mut state, "TT");
    assert!(!screen(&state).contains("no group"));
}
