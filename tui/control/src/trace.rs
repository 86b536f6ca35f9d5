//! Start and stop of the trace of one process, with a report.

use std::time::{Duration, Instant};

use shm_layout::text::PathText as _;
use shm_layout::trace::{self, TraceState, TraceView};
use shm_layout::{Change, ProcessView, SegmentDir, Segments, SlotId, clock, snapshot};

use super::audit::Place;
use super::targets::Chosen;
use super::{ACKNOWLEDGEMENT, EditRequest, Editor, Installation as _};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::plain;
use gpushare_base::text::units;
use gpushare_base::text::users::Users;

/// Makes a buffer for one process, asks the process to write it, and reports the result.
pub fn begin(
    dir: &SegmentDir,
    chosen: &Chosen,
    records: u32,
    reason: Option<String>,
    from: Place,
) -> Result<String, Failure> {
    let title = &*plain(&chosen.title);
    let editor = Editor::open(dir);
    if let Some(refusal) = editor.refusal() {
        return Err(refusal.into());
    }
    let segments = Segments::open_viewer(&dir.path)?;
    // Removes the traces of processes that ended long ago.
    trace::sweep(&segments, trace::KEEP, clock::now());
    let process = process(&segments, chosen.slot).ok_or_else(|| gone(title))?;
    if is_written(&process.trace) {
        return Err(Failure::failed(format!(
            "{title} is being traced already; gpushare trace stop ends it, gpushare trace export can read it already"
        )));
    }
    if let Some(why) = not_ours(dir, &process) {
        return Err(Failure::not_permitted(format!(
            "{title} cannot be traced by you: {why}"
        )));
    }
    let path = trace::create(&dir.path, process.slot, &process.identity, records)?;
    let applied = editor
        .apply(request(chosen, Some(records), reason, from))
        .inspect_err(|_| {
            // No process will write it, so it is removed.
            let _ = trace::remove(&dir.path, chosen.slot);
        })?;
    if !applied.missing.is_empty() {
        return Ok(format!(
            "{title}: has not answered yet; its trace starts when it does"
        ));
    }
    match settled(&segments, chosen.slot) {
        Some(TraceState::On) => Ok(format!(
            "{title}: traced, room for {records} records in {} ({})",
            path.shown(),
            units::human_size(trace::size(records))
        )),
        state => {
            // The process cannot write, so the order is withdrawn. Otherwise the process would retry forever.
            let _ = editor.submit(request(
                chosen,
                None,
                Some("it cannot write the trace".into()),
                from,
            ));
            let _ = trace::remove(&dir.path, chosen.slot);
            Err(why_not(title, state))
        }
    }
}

/// Ends the trace of one process. Returns false if the process has not acknowledged it yet.
pub fn end(dir: &SegmentDir, chosen: &Chosen, reason: Option<String>) -> Result<bool, Failure> {
    let applied = Editor::open(dir).apply(request(chosen, None, reason, Place::Ctl))?;
    Ok(applied.missing.is_empty())
}

fn request(chosen: &Chosen, on: Option<u32>, reason: Option<String>, from: Place) -> EditRequest {
    let change = Change::Trace {
        slot: chosen.slot,
        on,
    };
    chosen.request(change, from).because(reason)
}

/// Returns the process in a slot, if the epoch matches.
pub fn process(segments: &Segments, slot: SlotId) -> Option<ProcessView> {
    let processes = snapshot(segments, clock::now()).processes;
    processes.into_iter().find(|process| process.slot == slot)
}

fn gone(title: &str) -> Failure {
    Failure::no_such_target(format!(
        "{title} has ended; gpushare ps lists the processes"
    ))
}

/// Returns a refusal if only another user may trace the process.
fn not_ours(dir: &SegmentDir, process: &ProcessView) -> Option<String> {
    let uid = process.identity.uid;
    (!dir.may_trace(uid)).then(|| {
        let user = Users::of_this_machine().name(uid);
        let pid = process.vouched.as_ref().map_or(0, |vouched| vouched.pid);
        format!(
            "a trace is kept by the user whose process it is; as root: runuser -u {user} -- gpushare trace start {pid}"
        )
    })
}

/// Returns the state of the trace once the process has acted on the order, or `None` if it ended.
fn settled(segments: &Segments, slot: SlotId) -> Option<TraceState> {
    let start = Instant::now();
    loop {
        let state = process(segments, slot)?.trace.progress.state;
        if state != TraceState::Off || start.elapsed() > ACKNOWLEDGEMENT {
            return Some(state);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn why_not(title: &str, state: Option<TraceState>) -> Failure {
    let failed = |why: &str| Failure::failed(format!("{title} cannot be traced: {why}"));
    match state {
        None => gone(title),
        Some(TraceState::NotPermitted) => Failure::not_permitted(format!(
            "{title} cannot be traced: it may not write the buffer. In a container the segments' directory is often \
             mounted read-only; mount the directory itself read-write while you trace"
        )),
        Some(TraceState::NoSpace) => {
            failed("the file system has no room for its buffer; free some or give --records")
        }
        Some(TraceState::NoBuffer) => failed(
            "it does not find its buffer; does it see the same directory as this program? What runs in a container is traced from in there",
        ),
        Some(TraceState::BadBuffer) => {
            failed("it cannot read its buffer; is its libgpushare.so of another version?")
        }
        Some(TraceState::Off | TraceState::On) => failed(
            "it accepted the request but writes nothing; is its libgpushare.so older than this program?",
        ),
    }
}

/// Returns true if calls are recorded, or if an operator or the launch asked for it.
pub fn is_written(trace: &TraceView) -> bool {
    trace.wanted.is_some() || trace.progress.state == TraceState::On
}
