//! Traces: switched on and off while a program runs, they contain its calls, and the program does not notice.

mod launch;
mod logs;
mod peace;
mod stage;

use std::{fs, time::Duration};

use gpushare_testbed::{Testbed, Watched, eventually};
use shm_layout::{
    EventKind, EventReader, Segments,
    trace::{Kind, Reader, TraceState},
};
use stage::{PATIENCE, Program, count};

const MIB: u64 = 1 << 20;

#[test]
fn every_call_is_counted_from_the_acknowledgement_to_the_stop() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    program.tell("launch 100");
    let path = program.trace(10_000);
    program.tell("launch 500");
    program.tell("copy 4096");
    program.edit(None);
    assert_eq!(program.state(), TraceState::Off);
    program.tell("launch 300");
    let reader = Reader::open(&path).expect("a buffer");
    assert_eq!(count(&reader, "cuLaunchKernel"), 500);
    assert_eq!(count(&reader, "cuInit"), 0, "that was before");
    for (name, bytes) in [
        ("cuMemAlloc_v2", 4096),
        ("cuMemcpyHtoD_v2", 4096),
        ("cuMemFree_v2", 0),
    ] {
        let stats = reader.stats();
        let stat = stats.iter().find(|stat| stat.name == name).expect(name);
        assert_eq!((stat.count, stat.bytes), (1, bytes), "{name}");
        assert!(
            stat.total_ns >= stat.longest_ns && stat.longest_ns > 0,
            "{name}"
        );
    }
    let header = reader.header();
    assert!(header.stopped_ns > header.started_ns);
    assert_eq!(header.devices[0], program.view().devices[0].uuid);
    let calls: Vec<_> = reader
        .records()
        .filter(|record| record.kind == Kind::Call)
        .collect();
    let launches = calls
        .iter()
        .filter(|record| record.name == Some("cuLaunchKernel"));
    assert_eq!(launches.count(), 500);
    for record in calls {
        assert_eq!(
            (record.tid, record.device),
            (program.watched.pid(), Some(0))
        );
        assert!(record.start_ns >= header.started_ns && record.start_ns <= header.stopped_ns);
    }
    program.ends();
}

#[test]
fn a_launch_is_told_with_its_device() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut program = Program::start(&bed, &[]);
    let path = program.trace(1000);
    program.tell("launch 10");
    program.tell("device 1");
    program.tell("launch 20");
    let reader = Reader::open(&path).expect("a buffer");
    let on = |device| {
        let launches = reader
            .records()
            .filter(|record| record.name == Some("cuLaunchKernel"));
        launches
            .filter(|record| record.device == Some(device))
            .count()
    };
    assert_eq!((on(0), on(1), reader.header().devices.len()), (10, 20, 2));
    program.ends();
}

#[test]
fn a_second_trace_begins_with_nothing() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    let path = program.trace(1000);
    program.tell("launch 10");
    program.trace(2000);
    program.tell("launch 20");
    let reader = Reader::open(&path).expect("a buffer");
    assert_eq!(
        (count(&reader, "cuLaunchKernel"), reader.header().capacity),
        (20, 2000)
    );
    program.ends();
}

#[test]
fn a_full_buffer_drops_records_and_counts_on() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    let path = program.trace(1000);
    program.tell("launch 3000");
    let reader = Reader::open(&path).expect("a buffer");
    assert_eq!(count(&reader, "cuLaunchKernel"), 3000);
    assert_eq!(reader.records().count(), 1000);
    assert!(reader.dropped() >= 2000);
    eventually("the snapshot says so too", PATIENCE, || {
        let progress = program.view().trace.progress;
        progress.records == 1000 && progress.dropped >= 2000
    });
    program.ends();
}

#[test]
fn switching_while_threads_launch_hurts_nobody() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    program.tell("loop 3");
    for round in 0..15 {
        let path = program.trace(1000);
        eventually("a process launches", PATIENCE, || {
            Reader::open(&path).is_ok_and(|reader| count(&reader, "cuLaunchKernel") > 100)
        });
        if round % 2 == 0 {
            program.edit(None);
            let [first, second] = [(); 2].map(|()| Reader::open(&path).expect("a buffer"));
            assert_eq!(first.stats(), second.stats(), "nothing more is written");
        }
    }
    assert!(program.tell("halt") > 1500);
    program.ends();
}

#[test]
fn what_a_killed_program_wrote_is_read() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    program.tell("loop 2");
    let path = program.trace(100_000);
    eventually("it has launched", PATIENCE, || {
        Reader::open(&path).is_ok_and(|reader| count(&reader, "cuLaunchKernel") > 50)
    });
    program.watched.signal(rustix::process::Signal::KILL);
    program.watched.wait_output();
    let reader = Reader::open(&path).expect("a buffer");
    assert!(reader.records().count() > 50 && reader.header().stopped_ns == 0);
    assert!(
        reader.unfinished() <= 3,
        "{} records unfinished",
        reader.unfinished()
    );
}

#[test]
fn the_last_records_are_there_when_it_ends() {
    for end in ["exit", "quit"] {
        let bed = Testbed::new();
        let mut program = Program::start(&bed, &[]);
        let path = program.trace(1000);
        program.tell("launch 100");
        program.watched.say(end);
        program.watched.wait_output();
        let reader = Reader::open(&path).expect("a buffer");
        assert_eq!(count(&reader, "cuLaunchKernel"), 100, "{end}");
        assert_eq!(reader.header().stopped_ns != 0, end == "exit", "{end}");
    }
}

#[test]
fn a_forked_child_does_not_write_into_its_parents_trace() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    let path = program.trace(1000);
    program.tell("launch 10");
    program.tell("fork 50");
    program.tell("launch 10");
    let reader = Reader::open(&path).expect("a buffer");
    assert_eq!(count(&reader, "cuLaunchKernel"), 20);
    assert!(
        reader
            .records()
            .all(|record| record.tid == program.watched.pid())
    );
    program.ends();
}

#[test]
fn threads_that_have_ended_are_in_the_trace_and_in_nobodys_way() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    let path = program.trace(1000);
    for _ in 0..3 {
        program.tell("thread 100");
    }
    program.edit(None);
    let reader = Reader::open(&path).expect("a buffer");
    assert_eq!(count(&reader, "cuLaunchKernel"), 300);
    let launches = reader
        .records()
        .filter(|record| record.name == Some("cuLaunchKernel"));
    assert!(
        launches
            .into_iter()
            .all(|record| record.tid != program.watched.pid() && record.tid != 0)
    );
    program.ends();
}

#[test]
fn a_wrong_file_is_said_and_the_program_runs_on() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[]);
    program.edit(Some(1000));
    assert_eq!(program.state(), TraceState::NoBuffer);
    program.tell("launch 10");
    fs::write(program.path(), vec![0xa5; 170_000]).expect("our own directory");
    program.edit(Some(1000));
    assert_eq!(program.state(), TraceState::BadBuffer);
    program.tell("launch 10");
    let segments = Segments::open_viewer(bed.dir()).expect("our own segments");
    let mut reader = EventReader::from_start(segments.state());
    let events = std::iter::from_fn(|| reader.next(segments.state())).flatten();
    assert_eq!(
        events
            .filter(|event| event.kind == EventKind::Trouble)
            .count(),
        2
    );
    let path = program.trace(1000);
    program.tell("launch 10");
    assert_eq!(
        count(&Reader::open(&path).expect("a buffer"), "cuLaunchKernel"),
        10
    );
    program.ends();
}

/// Starts two programs that take turns, with a trace of the first until it has waited.
fn contended(bed: &Testbed) -> (Program, Watched, Reader) {
    let policy = [("GPUSHARE_POLICY", "timeslice=1ms")];
    let mut other = Program::start(bed, &policy);
    other.tell("loop 1");
    let mut program = Program::start(bed, &policy);
    let path = program.trace(100_000);
    program.tell("loop 1");
    let has = |reader: &Reader, kind| reader.records().any(|record| record.kind == kind);
    eventually("it has waited and held", PATIENCE, || {
        Reader::open(&path).is_ok_and(|reader| has(&reader, Kind::Wait) && has(&reader, Kind::Hold))
    });
    program.tell("halt");
    other.tell("halt");
    program.edit(None);
    let reader = Reader::open(&path).expect("a buffer");
    (program, other.watched, reader)
}

#[test]
fn waits_and_holds_are_on_the_same_timeline() {
    let bed = Testbed::new();
    let (program, _other, reader) = contended(&bed);
    let records: Vec<_> = reader.records().collect();
    let within = |outer: &shm_layout::trace::Record<'_>, inner: &shm_layout::trace::Record<'_>| {
        outer.tid == inner.tid
            && outer.start_ns <= inner.start_ns
            && outer.start_ns + outer.duration_ns >= inner.start_ns + inner.duration_ns
    };
    for wait in records.iter().filter(|record| record.kind == Kind::Wait) {
        assert!(wait.duration_ns > 0 && wait.device == Some(0));
        let calls = records.iter().filter(|record| record.kind == Kind::Call);
        assert!(
            calls.into_iter().any(|call| within(call, wait)),
            "no call around {wait:?}"
        );
    }
    let stats = reader.stats();
    let launches = stats
        .iter()
        .find(|stat| stat.name == "cuLaunchKernel")
        .expect("it launched");
    assert!(launches.waited_ns > 0 && launches.waited_ns <= launches.total_ns);
    for hold in records.iter().filter(|record| record.kind == Kind::Hold) {
        assert!(hold.duration_ns > 0 && hold.device == Some(0) && hold.name.is_none());
    }
    program.ends();
}

#[test]
fn denials_are_on_the_same_timeline() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[("GPUSHARE_MEMORY", "64MiB")]);
    let path = program.trace(1000);
    assert_eq!(
        program.try_tell(&format!("alloc {}", 100 * MIB)).0,
        2,
        "out of memory"
    );
    let reader = Reader::open(&path).expect("a buffer");
    let denial = reader
        .records()
        .find(|record| record.kind == Kind::Denial)
        .expect("a denial");
    assert_eq!(
        (denial.bytes, denial.name),
        (100 * MIB, Some("cuMemAlloc_v2"))
    );
    assert_eq!(
        count(&reader, "cuMemAlloc_v2"),
        1,
        "the call is there as well"
    );
    program.ends();
}

#[test]
fn a_hold_that_lasts_is_written_when_the_trace_stops() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &[("GPUSHARE_POLICY", "timeslice=1s idle=10s")]);
    let path = program.trace(1000);
    program.tell("launch 5");
    std::thread::sleep(Duration::from_millis(5));
    program.edit(None);
    let reader = Reader::open(&path).expect("a buffer");
    let mut holds = reader.records().filter(|record| record.kind == Kind::Hold);
    let hold = holds.next().expect("it held");
    assert!(hold.duration_ns > 0);
    program.ends();
}
