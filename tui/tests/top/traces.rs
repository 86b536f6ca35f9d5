//! The traces of driver calls.

use crossterm::event::KeyCode;
use gpushare_sample::{TraceState, TraceView};
use gpushare_top::app::Next;
use gpushare_top::operator::Task;
use gpushare_top::state::State;

use crate::hands::tap;
use crate::support::{state, traced};

#[test]
fn a_trace_is_asked_about_before_it_begins_and_before_it_ends() {
    let mut state = state();
    state.choices.selected = Some(state.data().on(0)[1]);
    tap(&mut state, KeyCode::Char('t'));
    assert!(matches!(tap(&mut state, KeyCode::Esc), Next::Continue));
    assert!(state.overlay.is_none(), "no means no");
    tap(&mut state, KeyCode::Char('t'));
    let Next::Do(Task::Trace(chosen)) = tap(&mut state, KeyCode::Char('y')) else {
        panic!("no trace is begun");
    };
    assert_eq!(
        (chosen.slot.index, chosen.title.as_str()),
        (1, "41849 vllm-worker")
    );

    // Started by an operator, or by the launch.
    for room in [Some(1000), None] {
        update_trace(&mut state, traced(TraceState::On, room, 0, false));
        tap(&mut state, KeyCode::Char('t'));
        let Next::Do(Task::Edit(request)) = tap(&mut state, KeyCode::Enter) else {
            panic!("no trace is ended");
        };
        let shm_layout::Change::Trace { slot, on: None } = request.change else {
            panic!("something else is edited");
        };
        assert_eq!((slot.index, slot.epoch), (1, 7));
    }
}

/// Adds a sample of a second later with this trace of the second process.
fn update_trace(state: &mut State, trace: TraceView) {
    let mut sample = state.data().sample.clone();
    sample.time_ns += 1_000_000_000;
    sample.processes[1].trace = trace;
    state.update(sample);
}

#[test]
fn a_process_that_only_writes_logs_is_not_said_to_be_traced() {
    let mut state = state();
    let said = |state: &State| {
        let alerts = state.data().alerts.iter();
        let mut traced = alerts.filter(|alert| alert.kind.id == "traced");
        traced.next().map(|alert| alert.sentence()).unwrap()
    };
    update_trace(&mut state, traced(TraceState::Off, None, 7, true));
    assert!(said(&state).contains("writes logs of its calls"));
    update_trace(&mut state, traced(TraceState::On, None, 7, true));
    assert!(said(&state).contains("is traced"));
}
