//! The promise to a managed process: whatever it does, it runs as it would without the library, gets at most one line on
//! stderr, and leaves nothing behind.

mod behaviours;
mod losses;
mod quiet;
mod sanitizers;
#[path = "../lock/stage.rs"]
#[allow(dead_code, reason = "shared with the lock's tests")]
mod stage;
mod tight;

use std::{fs, io::Write};

use gpushare_testbed::{Watched, eventually};
use shm_layout::{
    EventKind, EventReader, Identity, LaunchLimits, MAX_PROCESSES, Segments, clock, reap, register,
};
use stage::{PATIENCE, Stage};

/// Runs a program and returns its output and its stderr.
fn run(stage: &Stage, mode: &str, variables: &[(&str, &str)]) -> (String, String) {
    let mut command = stage.program("peace.c", "timeslice=5ms");
    command.arg(mode).envs(variables.iter().copied());
    Watched::spawn(&mut command).succeed()
}

/// Checks that the program works as usual, silently, and that its slot is free afterwards.
fn in_peace(mode: &str, says: &str) -> Stage {
    let stage = Stage::new();
    assert_eq!(
        run(&stage, mode, &[]),
        (says.to_owned(), String::new()),
        "{mode}"
    );
    eventually("no slot is taken any more", PATIENCE, || {
        let segments = Segments::open_workload(&stage.segments()).expect("our own segments");
        reap(&segments, clock::now());
        stage.snapshot().processes.is_empty()
    });
    stage
}

fn registered(stage: &Stage) -> usize {
    let segments = Segments::open_viewer(&stage.segments()).expect("our own segments");
    let mut reader = EventReader::from_start(segments.state());
    let mut count = 0;
    while let Some(event) = reader.next(segments.state()) {
        count += usize::from(event.is_ok_and(|event| event.kind == EventKind::Register));
    }
    count
}

#[test]
fn an_exit_from_any_thread_ends_it_while_others_launch() {
    in_peace("exit", "left\n");
}

#[test]
fn an_exit_that_runs_no_handlers_is_as_good() {
    in_peace("quick-exit", "");
}

#[test]
fn another_program_takes_its_place() {
    in_peace("exec", "another program\n");
}

#[test]
fn every_descriptor_may_be_closed() {
    in_peace("close-all", "answers 0\n");
}

#[test]
fn its_signals_stay_on_its_own_threads() {
    in_peace("signals", "answers 0\n");
}

#[test]
fn threads_come_and_go() {
    let stage = in_peace("threads", "answers 0\n");
    assert_eq!(registered(&stage), 1);
}

#[test]
fn a_child_that_shares_its_memory_disturbs_nothing() {
    let stage = in_peace("vfork", "answers 0\n");
    assert_eq!(registered(&stage), 1);
}

#[test]
fn a_fork_before_the_first_use_makes_two_guests() {
    let stage = in_peace("fork-first", "answers 0 0\n");
    assert_eq!(registered(&stage), 2);
}

#[test]
fn a_thread_that_called_the_driver_before_the_process_arrived_is_seen_all_the_same() {
    const LAUNCHES: u64 = 7 + 5;
    for (when, words) in [
        ("before cuInit", [].as_slice()),
        ("before a fork", &["fork"]),
    ] {
        let stage = Stage::new();
        let mut command = stage.program("early_threads.c", "timeslice=5ms");
        let mut program = Watched::spawn(command.args(words));
        let line = program.line();
        let said: Vec<_> = line.split(' ').collect();
        let [_, pid, "0"] = said[..] else {
            panic!("{when}: {line}; {}", program.stderr());
        };
        eventually(&format!("{LAUNCHES} launches, {when}"), PATIENCE, || {
            let mut processes = stage.snapshot().processes.into_iter();
            let ours = processes.find(|process| process.identity.pid.to_string() == pid);
            ours.is_some_and(|process| process.devices[0].counters.launches == LAUNCHES)
        });
    }
}

#[test]
fn disabled_it_leaves_no_trace() {
    let stage = Stage::new();
    let (says, complains) = run(&stage, "plain", &[("GPUSHARE_DISABLE", "1")]);
    assert_eq!((says.as_str(), complains.as_str()), ("answers 0\n", ""));
    assert_eq!(
        fs::read_dir(stage.segments())
            .expect("the directory")
            .count(),
        0
    );
}

#[test]
fn a_foreign_file_in_the_segments_place_is_named_once() {
    let stage = Stage::new();
    fs::write(stage.segments().join("state"), vec![7; 9000]).expect("our own directory");
    let (says, complains) = run(&stage, "plain", &[]);
    assert_eq!(says, "answers 0\n");
    assert_eq!(complains.lines().count(), 1, "{complains}");
    assert!(
        complains.starts_with("gpushare: ") && complains.contains("unmanaged"),
        "{complains}"
    );
}

#[test]
fn a_segment_written_over_while_in_use_stops_nobody() {
    let stage = Stage::new();
    let programs = [
        stage.started("timeslice=5ms", "2 200 5"),
        stage.started("timeslice=5ms", "2 200 5"),
    ];
    let state = stage.segments().join("state");
    let length = fs::metadata(&state).expect("the segment").len();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = (0..length)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as u8
        })
        .collect();
    // Overwritten in place; truncation is another case.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(&state)
        .expect("our own segment");
    file.write_all(&noise).expect("room");
    for program in programs {
        let (_, complaint) = program.succeed();
        assert!(
            complaint.contains("overwritten") && complaint.lines().count() == 1,
            "{complaint}"
        );
    }
}

#[test]
fn a_directory_that_is_not_there_is_named_once() {
    let stage = Stage::new();
    let (says, complains) = run(
        &stage,
        "plain",
        &[("GPUSHARE_DIR", "/nonexistent/gpushare")],
    );
    assert_eq!(says, "answers 0\n");
    assert_eq!(complains.lines().count(), 1, "{complains}");
    assert!(complains.contains("/nonexistent/gpushare"), "{complains}");
}

#[test]
fn a_full_table_leaves_it_unmanaged_and_is_counted() {
    let stage = Stage::new();
    let segments = Segments::open_workload(&stage.segments()).expect("our own segments");
    let taken: Vec<_> = (0..MAX_PROCESSES)
        .map(|_| {
            register(
                &segments,
                &Identity::of_self("filler"),
                &LaunchLimits::default(),
            )
            .expect("a free slot")
        })
        .collect();
    let (says, complains) = run(&stage, "plain", &[]);
    assert_eq!(says, "answers 0\n");
    assert_eq!(complains.lines().count(), 1, "{complains}");
    assert!(complains.contains("unmanaged"), "{complains}");
    assert_eq!(stage.snapshot().unmanaged, 1);
    // CUDA_ERROR_SYSTEM_NOT_READY: a limit that was asked for is never lost.
    let (says, complains) = run(&stage, "plain", &[("GPUSHARE_MEMORY", "1GiB")]);
    assert_eq!(says, "answers 802\n");
    assert!(
        complains.contains("slots are taken") && complains.contains("not initialised"),
        "{complains}"
    );
    // Also not for a program that ignores this: it gets no context and no memory.
    for limit in ["GPUSHARE_MEMORY", "GPUSHARE_CAP"] {
        let value = if limit == "GPUSHARE_CAP" {
            "20"
        } else {
            "1GiB"
        };
        let (says, _) = run(&stage, "goes-on", &[(limit, value)]);
        assert_eq!(says, "802 2 answers 802\n", "{limit}");
    }
    drop(taken);
}

#[test]
fn a_value_that_means_nothing_is_named_once() {
    let stage = Stage::new();
    let (says, complains) = run(&stage, "plain", &[("GPUSHARE_MEMORY", "8Q")]);
    assert_eq!(says, "answers 0\n");
    assert_eq!(complains.lines().count(), 1, "{complains}");
    assert!(complains.contains("GPUSHARE_MEMORY"), "{complains}");
}
