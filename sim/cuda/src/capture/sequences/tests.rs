//! The rules, one by one.

use super::*;
use gpushare_abi::types::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL;

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;
const GRAPH: Target = Target {
    graph: 77,
    own: true,
};

fn stream(stream: u64) -> StreamFacts {
    StreamFacts {
        stream,
        context: 1,
        blocking: stream < 100,
    }
}

fn begun(mode: u32) -> Sequences {
    let mut all = Sequences::default();
    all.begin(stream(1), 10, mode, GRAPH, Vec::new()).unwrap();
    all
}

fn is_valid(all: &mut Sequences) -> bool {
    all.end(1, 10) == Ok(GRAPH)
}

#[test]
fn a_node_waits_for_the_one_before_it_in_its_stream() {
    let mut all = begun(GLOBAL);
    assert_eq!(all.active(1).unwrap().unwrap().tails, []);
    all.advance(1, 5);
    assert_eq!(all.active(1).unwrap().unwrap().tails, [5]);
    assert_eq!(all.active(2), Ok(None));
    assert_eq!(all.end(1, 10), Ok(GRAPH));
    assert_eq!(all.active(1), Ok(None));
}

#[test]
fn a_stream_joins_by_waiting_for_a_captured_event_and_must_be_joined_back() {
    let mut all = begun(GLOBAL);
    all.advance(1, 5);
    let fork = all.record(1).unwrap();
    assert_eq!(all.wait(stream(2), fork.as_ref()), Ok(true));
    all.advance(2, 6);
    all.advance(1, 7);
    let join = all.record(2).unwrap();
    assert_eq!(all.wait(stream(1), join.as_ref()), Ok(true));
    assert_eq!(all.active(1).unwrap().unwrap().tails, [7, 6]);
    assert!(is_valid(&mut all));
    assert_eq!(all.active(2), Ok(None), "the end takes all streams out");
}

#[test]
fn work_that_is_not_joined_back_breaks_the_capture() {
    let mut all = begun(GLOBAL);
    let fork = all.record(1).unwrap();
    all.wait(stream(2), fork.as_ref()).unwrap();
    all.advance(2, 6);
    let broken = Ended::Broken(GRAPH, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_eq!(all.end(1, 10), Err(broken));
}

#[test]
fn a_dropped_dependency_need_not_be_joined() {
    let mut all = begun(GLOBAL);
    all.advance(1, 5);
    all.redirect(1, Vec::new());
    all.advance(1, 6);
    assert!(is_valid(&mut all));
}

#[test]
fn an_event_of_a_finished_capture_is_no_good_until_recorded_again() {
    let mut all = begun(GLOBAL);
    let mark = all.record(1).unwrap();
    assert!(is_valid(&mut all));
    assert_eq!(
        all.wait(stream(2), mark.as_ref()),
        Err(CUDA_ERROR_CAPTURED_EVENT)
    );
    assert_eq!(all.record(2), Ok(None));
    assert_eq!(all.wait(stream(2), None), Ok(false));
}

#[test]
fn captures_do_not_merge_and_do_not_wait_for_what_is_outside() {
    let mut all = begun(GLOBAL);
    all.begin(
        stream(2),
        10,
        GLOBAL,
        Target {
            graph: 78,
            own: false,
        },
        Vec::new(),
    )
    .unwrap();
    let other = all.record(2).unwrap();
    assert_eq!(
        all.wait(stream(1), other.as_ref()),
        Err(CUDA_ERROR_STREAM_CAPTURE_MERGE)
    );
    assert!(!is_valid(&mut all));

    let mut all = begun(GLOBAL);
    assert_eq!(
        all.wait(stream(1), None),
        Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
    );
    assert_eq!(all.active(1), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn only_the_origin_ends_a_capture_and_in_its_own_thread() {
    let mut all = begun(GLOBAL);
    let fork = all.record(1).unwrap();
    all.wait(stream(2), fork.as_ref()).unwrap();
    let still = |error| Err(Ended::Still(error));
    assert_eq!(all.end(2, 10), still(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
    assert_eq!(all.end(3, 10), still(CUDA_ERROR_ILLEGAL_STATE));
    let mut all = begun(THREAD_LOCAL);
    assert_eq!(
        all.end(1, 11),
        still(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
    );
    assert_eq!(begun(RELAXED).end(1, 11), Ok(GRAPH));
}

#[test]
fn an_unsafe_call_is_forbidden_as_both_modes_say() {
    // (mode of the capture, thread that calls, its mode) → forbidden
    for (capture, thread, mode, forbidden) in [
        (GLOBAL, 10, GLOBAL, true),
        (GLOBAL, 11, GLOBAL, true),
        (GLOBAL, 11, THREAD_LOCAL, false),
        (GLOBAL, 10, THREAD_LOCAL, true),
        (GLOBAL, 10, RELAXED, false),
        (THREAD_LOCAL, 10, GLOBAL, true),
        (THREAD_LOCAL, 11, GLOBAL, false),
        (RELAXED, 10, GLOBAL, false),
    ] {
        let mut all = begun(capture);
        let answer = all.unsafe_call(thread, mode);
        assert_eq!(answer.is_err(), forbidden, "{capture} {thread} {mode}");
        assert_eq!(is_valid(&mut all), !forbidden, "{capture} {thread} {mode}");
    }
}

#[test]
fn what_captures_is_not_synchronised() {
    let mut all = begun(RELAXED);
    assert_eq!(all.synchronise_stream(2), Ok(()));
    assert_eq!(all.synchronise_context(2), Ok(()));
    assert_eq!(
        all.synchronise_stream(1),
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    let mut all = begun(RELAXED);
    assert_eq!(
        all.synchronise_context(1),
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    );
    let mut all = begun(RELAXED);
    let mark = all.record(1).unwrap().unwrap();
    assert_eq!(all.synchronise_event(&mark), CUDA_ERROR_CAPTURED_EVENT);
    assert!(!is_valid(&mut all));
}

#[test]
fn the_legacy_stream_is_closed_while_a_blocking_stream_captures() {
    let mut all = begun(RELAXED);
    assert_eq!(all.use_legacy(2), Ok(()), "another context");
    assert!(all.closes_legacy(1) && !all.closes_legacy(2));
    assert!(all.active(1).is_ok(), "asking does no harm");
    assert_eq!(all.use_legacy(1), Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
    let mut all = Sequences::default();
    all.begin(stream(100), 10, GLOBAL, GRAPH, Vec::new())
        .unwrap();
    assert_eq!(all.use_legacy(1), Ok(()), "a non-blocking stream");
}

#[test]
fn a_capture_goes_with_its_stream_or_context() {
    let mut all = begun(GLOBAL);
    assert_eq!(all.stream_gone(2), None);
    assert_eq!(all.stream_gone(1), Some(GRAPH));
    assert_eq!(all.active(1), Ok(None));
    let mut all = begun(GLOBAL);
    assert_eq!(all.context_gone(2), []);
    assert_eq!(all.context_gone(1), [GRAPH]);
    assert_eq!(all.unsafe_call(10, GLOBAL), Ok(()));
}

#[test]
fn a_joined_stream_may_go_before_the_capture_ends() {
    let mut all = begun(GLOBAL);
    let fork = all.record(1).unwrap();
    all.wait(stream(2), fork.as_ref()).unwrap();
    all.advance(2, 6);
    let join = all.record(2).unwrap();
    all.wait(stream(1), join.as_ref()).unwrap();
    assert_eq!(all.stream_gone(2), None);
    assert!(is_valid(&mut all));
}
