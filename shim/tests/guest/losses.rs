//! A lost context is reported once, with the call that returned the error.

use gpushare_abi::call_code;
use gpushare_testbed::{Testbed, Watched, eventually};
use shm_layout::{ProcessView, Segments, What, clock, snapshot};

use super::stage::PATIENCE;

fn process(segments: &Segments, pid: u32) -> Option<ProcessView> {
    let mut all = snapshot(segments, clock::now()).processes.into_iter();
    all.find(|process| process.identity.pid == pid)
}

#[test]
fn the_first_answer_after_which_nothing_works_is_published_and_no_other_error_is() {
    let bed = Testbed::new();
    let mut puppet = Watched::spawn(&mut bed.workload(&["--script"]));
    let pid = puppet.pid();
    assert_eq!(puppet.line(), format!("ready {pid}"));
    let segments = Segments::open_workload(bed.dir()).expect("segments");
    let mut events = segments.state().events();
    assert!(puppet.ask("alloc 1024T").starts_with("error 2 "));
    let view = || process(&segments, pid).expect("managed");
    assert_eq!(view().devices[0].loss, None);
    assert_eq!(view().devices[0].mps, Some(false), "the driver said so");

    assert_eq!(puppet.ask("fault"), "ok");
    assert!(puppet.ask("sync").starts_with("error 700 "));
    assert!(puppet.ask("alloc 64M").starts_with("error 700 "));
    let lost = view().devices[0].loss.expect("published");
    let call = Some(call_code("cuStreamSynchronize"));
    assert_eq!((lost.code, lost.call), (700, call));
    let mut losses = Vec::new();
    eventually("the event", PATIENCE, || {
        while let Some(Ok(event)) = events.next(segments.state()) {
            losses.extend(matches!(event.what(), What::Lost { .. }).then_some(event));
        }
        !losses.is_empty()
    });
    assert_eq!(losses.len(), 1);
    let What::Lost { idle_ms, .. } = losses[0].what() else {
        panic!("{losses:?}");
    };
    assert!(idle_ms < 10_000, "it submitted just now: {idle_ms}");
    let what = What::Lost {
        code: 700,
        call,
        mps: Some(false),
        idle_ms,
        ns_pid: pid,
    };
    assert_eq!(losses[0].what(), what);
    assert_eq!(losses[0].time_ns, lost.time_ns);
}

#[test]
fn an_allocation_that_tells_of_the_loss_is_not_charged() {
    let bed = Testbed::new();
    let mut puppet = Watched::spawn(&mut bed.workload(&["--script"]));
    let pid = puppet.pid();
    assert_eq!(puppet.line(), format!("ready {pid}"));
    let segments = Segments::open_workload(bed.dir()).expect("segments");
    assert_eq!(puppet.ask("fault"), "ok");
    assert_eq!(puppet.ask("sleep 50"), "ok");
    assert!(puppet.ask("alloc 64M").starts_with("error 700 "));
    let view = process(&segments, pid).expect("managed");
    let lost = view.devices[0].loss.expect("published");
    assert_eq!(lost.call, Some(call_code("cuMemAlloc_v2")));
    assert_eq!(view.devices[0].used, 0, "what was refused is not charged");
}
