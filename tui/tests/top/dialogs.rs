//! Dialogs: their initial values, the edits that they send, and the reported results.

use crossterm::event::{KeyCode, KeyEvent};
use gpushare_control::Applied;
use gpushare_sample::{EditLine, PolicyKind, Sample};
use gpushare_top::app::{self, Next};
use gpushare_top::dialog::Verdict;
use gpushare_top::operator::{News, Task};
use gpushare_top::overlay::Overlay;
use gpushare_top::state::State;
use shm_layout::{Change, QuotaValue, Set, ShareEdit, SlotId, Until};

use crate::hands::{S, lines, notice, press, screen, select, tap, title};
use crate::support::{state, story};

#[test]
fn what_is_typed_first_replaces_what_stood_there() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    let Next::Do(Task::Edit(request)) = press(&mut state, "e8G\n") else {
        panic!("no edit");
    };
    let Change::ProcessQuota { value, .. } = request.change else {
        panic!("not a quota");
    };
    assert_eq!(
        value,
        shm_layout::QuotaValue::Bytes(8 << 30),
        "and not 408G"
    );

    // In a text field an arrow key moves inside the text.
    press(&mut state, "\x1be");
    app::key(&mut state, KeyEvent::from(KeyCode::End));
    press(&mut state, "\x08");
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("no dialog");
    };
    assert_eq!(dialog.fields[0].value(), "40Gi");
}

#[test]
fn a_priority_that_no_order_looks_at_is_warned_of() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    press(&mut state, "w\t5");
    let checks = |state: &State| match &state.overlay {
        Some(Overlay::Dialog(dialog)) => dialog.checks(state.data()),
        _ => panic!("no dialog"),
    };
    let about = |state: &State| {
        let checks = checks(state).into_iter();
        checks
            .filter(|check| check.text.contains("the priority has no effect"))
            .collect::<Vec<_>>()
    };
    let found = about(&state);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].verdict, Verdict::Warn);
    assert!(found[0].text.contains("under order=fair"), "{found:?}");
    let mut sample = state.data().sample.clone();
    sample.devices[0].policy.0.order = shm_layout::Order::Priority;
    sample.devices[0].policy.0.kind = PolicyKind::Always;
    state.update(sample);
    assert!(about(&state).is_empty(), "now it has one");
}

#[test]
fn pasted_text_is_never_a_command() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    app::paste(&mut state, "PPP");
    assert!(state.overlay.is_none());
    assert!(notice(&state).contains("pasted text is taken in fields only"));
    app::paste(&mut state, "eq\r\n");
    assert!(state.overlay.is_none());

    press(&mut state, "e");
    app::paste(&mut state, "32G\n\x1b[2Jq");
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("the line ended the dialog");
    };
    assert_eq!(
        dialog.fields[0].value(),
        "32G",
        "one line, without what acts on a terminal"
    );
    press(&mut state, "\x1b/");
    app::paste(&mut state, "user=\u{7}alice\n");
    let Some(Overlay::Filter(line)) = &state.overlay else {
        panic!("no filter");
    };
    assert_eq!(line.input.value(), "user=alice");
}

/// Returns a quota edit for the second process, for ten minutes.
fn quota(value: QuotaValue, until: Option<Until<QuotaValue>>) -> Change {
    Change::ProcessQuota {
        slot: SlotId { index: 1, epoch: 7 },
        device: Some(0),
        value,
        until,
    }
}

fn in_force(state: &mut State, missing: Vec<SlotId>) {
    let now = state.data().sample.time_ns;
    let applied = Applied {
        generation: 814,
        before: "quota none".into(),
        old: quota(QuotaValue::Unlimited, None),
        new: quota(
            QuotaValue::Bytes(32 << 30),
            Some(Until::lasting(now + 600 * S)),
        ),
        acknowledged_by: Vec::new(),
        missing,
        stopped: Vec::new(),
        unlogged: None,
    };
    let target = "41849 vllm-worker gpu0".to_owned();
    app::news(state, News::Settled { target, applied });
}

#[test]
fn after_an_edit_the_change_its_end_and_who_has_not_applied_it_are_said() {
    let mut state = state();
    in_force(&mut state, Vec::new());
    assert_eq!(
        notice(&state),
        "41849 vllm-worker gpu0: quota none to 32GiB for 10m; applied by all"
    );
    in_force(&mut state, vec![SlotId { index: 2, epoch: 7 }]);
    assert_eq!(
        notice(&state),
        "41849 vllm-worker gpu0: quota none to 32GiB for 10m; NOT yet applied by C notebook-bob"
    );
}

#[test]
fn after_an_undo_the_value_that_is_back_is_said_first() {
    let mut state = state();
    let everywhere = |policy: Option<&str>| Change::Policy {
        device: None,
        policy: policy.map(|policy| policy.parse().unwrap()),
        until: None,
    };
    let slices = "timeslice=5ms order=fair";
    let applied = Applied {
        generation: 815,
        before: format!("policy {slices}"),
        old: everywhere(Some(slices)),
        new: everywhere(None),
        acknowledged_by: Vec::new(),
        missing: Vec::new(),
        stopped: Vec::new(),
        unlogged: None,
    };
    let undone = News::Undone {
        target: "all GPUs".into(),
        restored: Some("policy off order=fair".into()),
        applied,
    };
    app::news(&mut state, undone);
    assert_eq!(
        notice(&state),
        "undone: all GPUs: off (was: turns of 5ms, shares by weight); applied by all"
    );
}

/// Returns a sample with another user's edit from the audit log.
fn edited(generation: u64, state: &State) -> Sample {
    let mut sample = state.data().sample.clone();
    sample.time_ns += S;
    sample.events = vec![gpushare_sample::EventLine {
        seq: u64::MAX,
        time_ns: sample.time_ns - 1,
        what: gpushare_sample::What::Edit { generation },
        ..Default::default()
    }];
    sample.edits = vec![EditLine {
        generation,
        time_ns: sample.time_ns - 1,
        who: "alice".into(),
        place: "ctl".into(),
        target: "41822 train-7b gpu0".into(),
        old: Some("quota 48GiB".into()),
        new: "quota 40GiB for a while".into(),
        reason: Some("ticket 4471".into()),
        until_ns: Some(sample.time_ns + 60 * S),
        undoes: None,
    }];
    sample
}

#[test]
fn an_edit_of_somebody_else_is_said_with_who_and_what() {
    let mut state = state();
    let sample = edited(814, &state);
    state.update(sample);
    assert_eq!(
        notice(&state),
        "edited: 41822 train-7b gpu0: quota 48GiB to 40GiB for 1m00s, by alice: ticket 4471"
    );
    let seen = screen(&state);
    let row = "edit      41822 train-7b gpu0: quota 48GiB \u{2192} 40GiB for 1m00s, by alice: ticket 4471";
    assert!(seen.contains(row), "{seen}");

    let mut state = crate::support::state();
    in_force(&mut state, Vec::new());
    state.choices.notice = None;
    let sample = edited(814, &state);
    state.update(sample);
    assert_eq!(notice(&state), "", "one's own is no news");
}

#[test]
fn a_long_name_is_cut_in_the_middle_in_titles_and_in_the_reasons() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    let long = "serve-llama-3-70b-instruct-of-team-blue-in-the-second-cluster-0";
    sample.processes[1].view.identity.label = long.into();
    state.update(sample);
    select(&mut state, long);
    press(&mut state, "e");
    let seen = lines(&state, (80, 24), false).join("\n");
    let title = "Memory quota  B 41849 serve-llama-3-…ond-cluster-0 on GPU0 (alice)";
    assert!(seen.contains(title), "{seen}");
    press(&mut state, "\x1bx");
    let seen = lines(&state, (80, 40), false).join("\n");
    let mut names = seen.lines().filter(|line| line.contains("llama-3-70b"));
    let (_, end) = names
        .next()
        .and_then(|name| name.rsplit_once('…'))
        .expect(&seen);
    assert!(end.contains("second-cluster-0"), "{seen}");
}

#[test]
fn a_signal_is_sent_when_the_pid_was_typed_and_not_before() {
    let mut state = state();
    let mut sample = story().last().unwrap();
    sample.time_ns += 1;
    // The pid of a living process: this one.
    sample.processes[1].pid = Some(std::process::id());
    state.update(sample);
    select(&mut state, "vllm-worker");
    press(&mut state, "K");
    assert!(title(&state).starts_with("Signal  B "), "{}", title(&state));
    assert!(matches!(press(&mut state, "\n"), Next::Continue));
    assert!(
        matches!(press(&mut state, "\t41849\n"), Next::Continue),
        "another's pid"
    );
    let pid = std::process::id().to_string();
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("it closed");
    };
    assert_eq!(dialog.fields[1].value(), "41849");
    // The cursor may be anywhere.
    press(&mut state, "\x1bK");
    let Next::Do(Task::Signal(signal)) = press(&mut state, &format!("{pid}\n")) else {
        panic!("nothing is sent");
    };
    assert_eq!((signal.pid, signal.word), (std::process::id(), "TERM"));
    app::news(&mut state, News::Done("SIGTERM was sent".into()));
    assert!(state.overlay.is_none(), "the dialog closes");
}

#[test]
fn a_boost_is_a_priority_that_ends_by_itself() {
    let mut state = state();
    select(&mut state, "vllm-worker");
    press(&mut state, "b");
    let Some(Overlay::Dialog(dialog)) = &state.overlay else {
        panic!("no dialog");
    };
    let checks = dialog.checks(state.data());
    assert!(checks.iter().any(|check| {
        check
            .text
            .contains("under order=fair the priority has no effect")
    }));
    let now = state.data().sample.time_ns;
    let Next::Do(Task::Edit(request)) = press(&mut state, "12\n") else {
        panic!("no edit");
    };
    let Change::ProcessShare {
        share:
            ShareEdit {
                boost: Set::To(boost),
                priority,
                ..
            },
        ..
    } = request.change
    else {
        panic!("no boost");
    };
    assert_eq!((boost.priority, boost.until_ns), (12, now + 600 * S));
    assert_eq!(priority, Set::Keep);
}

#[test]
fn a_quota_dialog_sends_the_edit_for_the_process_it_was_opened_on() {
    let mut state = state();
    state.choices.selected = Some(state.data().on(0)[1]);
    tap(&mut state, KeyCode::Char('e'));
    // The selection moves while the dialog is open; the edit must not follow it.
    state.choices.selected = Some(state.data().on(0)[0]);
    for _ in 0..8 {
        tap(&mut state, KeyCode::Backspace);
    }
    for key in "32G".chars() {
        tap(&mut state, KeyCode::Char(key));
    }
    let Next::Do(Task::Edit(request)) = tap(&mut state, KeyCode::Enter) else {
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
    tap(&mut state, KeyCode::Down);
    tap(&mut state, KeyCode::Char('e'));
    for key in "Q".chars() {
        tap(&mut state, KeyCode::Char(key));
    }
    assert!(matches!(tap(&mut state, KeyCode::Enter), Next::Continue));
    assert!(
        matches!(state.overlay, Some(Overlay::Dialog(_))),
        "the dialog stays open"
    );
}

#[test]
fn read_only_sends_nothing() {
    let mut state = state();
    state.choices.read_only = true;
    tap(&mut state, KeyCode::Down);
    for key in ['e', 'p', 'w'] {
        tap(&mut state, KeyCode::Char(key));
        assert!(
            matches!(tap(&mut state, KeyCode::Enter), Next::Continue),
            "{key}"
        );
        tap(&mut state, KeyCode::Esc);
    }
    tap(&mut state, KeyCode::Char('P'));
    assert!(state.overlay.is_none(), "P does not even ask");
}

#[test]
fn a_policy_dialog_sends_what_is_filled_in() {
    let mut state = state();
    tap(&mut state, KeyCode::Char('p'));
    tap(&mut state, KeyCode::Right);
    let Next::Do(Task::Edit(request)) = tap(&mut state, KeyCode::Enter) else {
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
    tap(&mut state, KeyCode::Char('p'));
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
