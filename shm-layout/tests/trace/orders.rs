//! Traces that an operator starts.

use super::*;

#[test]
fn an_order_reaches_the_process_and_its_answer_the_snapshot() {
    let dir = Dir::new();
    let segments = dir.open();
    let operator = dir.operator();
    let (process, _) = process(&segments, "");
    let slot = process.slot();
    assert_eq!(process.trace_order(), None);
    let start = Change::Trace {
        slot,
        on: Some(RECORDS),
    };
    operator.edit(None, &start, clock::now()).expect("valid");
    let first = process.trace_order().expect("ordered");
    assert_eq!(first.records, RECORDS);
    let again = operator.edit(None, &start, clock::now()).expect("valid");
    assert_eq!(again.old, start, "undoing goes back to a trace");
    let second = process.trace_order().expect("ordered");
    assert_ne!(first.number, second.number, "a new order is another one");
    let quota = Change::ProcessQuota {
        slot,
        device: None,
        value: QuotaValue::Bytes(5),
        until: None,
    };
    operator.edit(None, &quota, clock::now()).expect("valid");
    assert_eq!(
        process.trace_order(),
        Some(second),
        "other edits leave it alone"
    );
    process.trace_progress(&trace::Progress {
        state: TraceState::On,
        logs: true,
        records: 5,
        dropped: 6,
    });
    let seen = look(&segments).processes[0].trace;
    assert_eq!(
        (seen.wanted, seen.progress.state),
        (Some(RECORDS), TraceState::On)
    );
    assert_eq!(
        (
            seen.progress.logs,
            seen.progress.records,
            seen.progress.dropped
        ),
        (true, 5, 6)
    );
    let stop = Change::Trace { slot, on: None };
    assert_eq!(
        operator.edit(None, &stop, clock::now()).expect("valid").old,
        start
    );
    let ended = process
        .trace_order()
        .expect("an end is an order as well: the launch may have asked for a trace");
    assert_eq!(ended.room(), None);
    assert_ne!(ended.number, second.number);
    for records in [0, 1, 999, 4_000_001, u32::MAX] {
        let change = Change::Trace {
            slot,
            on: Some(records),
        };
        let refused = operator
            .edit(None, &change, clock::now())
            .expect_err("senseless");
        assert!(
            matches!(
                refused,
                EditError::Invalid {
                    field: "records",
                    ..
                }
            ),
            "{refused}"
        );
    }
    let gone = Change::Trace {
        slot: SlotId {
            epoch: slot.epoch + 1,
            ..slot
        },
        on: Some(RECORDS),
    };
    assert!(matches!(
        operator.edit(None, &gone, clock::now()),
        Err(EditError::NoSuchTarget)
    ));
}

#[test]
fn the_dead_leave_their_buffer_for_a_while_and_the_living_keep_theirs() {
    let dir = Dir::new();
    let segments = dir.open();
    let (lives, _) = process(&segments, "");
    let kept = made(&dir, &lives);
    let (dies, _) = process(&segments, "");
    let left = made(&dir, &dies);
    drop(Buffer::adopt(dir.path(), dies.slot(), guest()).expect("our own"));
    let slot = dies.slot();
    drop(dies);
    assert_eq!(trace::sweep(&segments, trace::KEEP, clock::now()), 0);
    assert!(Reader::open(&left).is_ok());
    let later = clock::now() + trace::KEEP.as_nanos() as u64 + 1;
    assert_eq!(trace::sweep(&segments, trace::KEEP, later), 1);
    assert!(!left.exists() && kept.exists());
    assert!(matches!(
        trace::remove(dir.path(), slot),
        Err(TraceError::Missing { .. })
    ));
    // The next process of the slot replaces the buffer of the previous one.
    let (heir, _) = heir(&segments, slot, "");
    fs::write(&left, "an earlier life's").expect("written");
    made(&dir, &heir);
    let mut slots: Vec<_> = trace::list(dir.path())
        .expect("listed")
        .into_iter()
        .map(|(slot, _)| slot)
        .collect();
    slots.sort();
    assert_eq!(slots, [lives.slot(), heir.slot()]);
    assert_eq!(
        trace::sweep(&segments, Duration::ZERO, clock::now()),
        0,
        "both live"
    );
}

#[test]
fn a_file_system_without_room_is_said_before_anybody_writes() {
    let dir = Dir::new();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16m,mode=0700", "gpushare-test"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return; // this part needs root
    }
    let refused = {
        let segments = dir.open();
        let (process, _) = process(&segments, "");
        let view = look(&segments);
        let refused = make(dir.path(), &view.processes[0], 1_000_000).expect_err("no room");
        drop(process);
        (refused, trace::list(dir.path()).expect("listed").len())
    };
    let _ = std::process::Command::new("umount")
        .arg("-l")
        .arg(dir.path())
        .status();
    assert!(
        matches!(refused.0, TraceError::NoSpace { .. }),
        "{}",
        refused.0
    );
    assert_eq!(refused.1, 0);
}

#[test]
fn a_process_says_why_it_cannot_write_its_trace() {
    let io = |code| TraceError::Io {
        path: "trace-0-1".into(),
        op: "open for writing",
        source: std::io::Error::from_raw_os_error(code),
    };
    for (code, state) in [
        (libc::EACCES, TraceState::NotPermitted),
        (libc::EPERM, TraceState::NotPermitted),
        (libc::EROFS, TraceState::NotPermitted),
        (libc::EMFILE, TraceState::NoSpace),
        (libc::ENOMEM, TraceState::NoSpace),
        (libc::ELOOP, TraceState::BadBuffer),
    ] {
        assert_eq!(TraceState::of_error(&io(code)), state, "errno {code}");
    }
}
