//! The list of processes: columns, order, branches and marks.

use gpushare_sample::columns;
use gpushare_top::app::Next;
use gpushare_top::operator::Task;
use gpushare_top::overlay::Overlay;
use shm_layout::{Change, QuotaValue, Set, ShareEdit};

use crate::hands::{lines, notice, press, screen, select, title};
use crate::support::{names, state};

#[test]
fn the_key_of_the_events_says_what_it_shows_where_the_pane_is_hidden() {
    let mut state = state();
    press(&mut state, "llll");
    assert_eq!(notice(&state), "events: edits");
    let seen = lines(&state, (80, 24), false);
    assert_eq!(seen.last().map(|line| line.trim()), Some("events: edits"));
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
    assert!(title(&state).ends_with("and 1 more"), "{}", title(&state));
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

#[test]
fn a_folded_group_is_one_row_and_an_edit_of_it_is_for_all_its_processes() {
    let mut state = state();
    press(&mut state, "-");
    assert!(notice(&state).contains("T gathers the list first"));
    press(&mut state, "TT");
    select(&mut state, "vllm-worker");
    press(&mut state, "-");
    let row = |state: &gpushare_top::state::State, name: &str| {
        let seen = screen(state);
        let table = seen.split("Processes").nth(1).expect("a table").to_owned();
        let mut lines = table
            .lines()
            .take_while(|line| !line.starts_with('\u{2514}'));
        lines.any(|line| line.contains(name))
    };
    assert!(!row(&state, "vllm-worker") && row(&state, "embed-svc"));
    assert!(row(&state, "\u{25b8} group prod  2 processes"));
    press(&mut state, "K");
    assert!(notice(&state).contains("one process at a time"));
    press(&mut state, "y");
    assert!(
        notice(&state).contains("- unfolds it"),
        "{}",
        notice(&state)
    );
    press(&mut state, "P");
    assert_eq!(title(&state), "Pause 2 processes?");
    assert_eq!(edits(press(&mut state, "y")).len(), 2);
    press(&mut state, "e64G\n");
    assert_eq!(title(&state), "Set the quota of 2 processes?");
    press(&mut state, "n\n");
    assert!(row(&state, "vllm-worker"), "Enter unfolds it");
    press(&mut state, "+");
    assert!(!row(&state, "vllm-worker") && !row(&state, "embed-svc"));
    press(&mut state, "k");
    press(&mut state, "P");
    assert!(
        notice(&state).contains("does not manage"),
        "{}",
        notice(&state)
    );
    press(&mut state, "1");
    assert!(
        title(&state).starts_with("Share  C 41876"),
        "{}",
        title(&state)
    );
    let next = press(&mut state, "\n");
    assert!(matches!(next, Next::Do(Task::Edit(_))), "{next:?}");
}

#[test]
fn rows_are_sorted_by_a_second_column_that_is_chosen() {
    let mut state = state();
    state.choices.sort = columns::position("denials").unwrap();
    press(&mut state, "o");
    for order in [("train-7b", "notebook-dave"), ("notebook-dave", "train-7b")] {
        let Some(Overlay::Columns(at)) = &mut state.overlay else {
            panic!("no list");
        };
        *at = columns::position("used").unwrap();
        press(&mut state, "2");
        let names = names(&state);
        assert_eq!((names[1], names[6]), order);
    }
    press(&mut state, "\x1b");
    let seen = screen(&state);
    assert!(
        seen.contains("USED\u{25b2}") && seen.contains(", then USED"),
        "{seen}"
    );
}

#[test]
fn lanes_are_those_of_the_list_or_of_the_marked_and_scroll() {
    let mut state = state();
    let lanes = |state: &gpushare_top::state::State| {
        let seen = crate::hands::lines(state, (120, 22), false);
        let from = seen
            .iter()
            .position(|line| line.contains("Lock lanes"))
            .expect("lanes");
        let to = seen
            .iter()
            .position(|line| line.contains("Processes"))
            .expect("a table");
        seen[from..to].join("\n")
    };
    press(&mut state, "/user=carol\nL");
    let seen = lanes(&state);
    assert!(
        seen.contains("1 of 7, as listed") && seen.contains("embed-svc"),
        "{seen}"
    );
    assert!(!seen.contains("train-7b"), "{seen}");
    press(&mut state, "\x1b");
    select(&mut state, "ci-job-3312");
    press(&mut state, " L");
    let seen = lanes(&state);
    assert!(
        seen.contains("1 of 7, marked") && seen.contains("ci-job-3312"),
        "{seen}"
    );
    press(&mut state, "\x1bL");
    let top = lanes(&state);
    assert!(!top.contains(", "), "all lanes again: {top}");
    press(&mut state, "D");
    let below = lanes(&state);
    assert!(
        below.contains("render") && !top.contains("render"),
        "{top}{below}"
    );
    press(&mut state, "U");
    assert_eq!(lanes(&state), top);
}
