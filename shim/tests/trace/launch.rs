//! `GPUSHARE_TRACE`: a trace from the first call on, without an operator.

use std::fs;

use gpushare_testbed::Testbed;
use shm_layout::trace::{Reader, TraceState};

use crate::stage::{Program, count};

const WANTED: [(&str, &str); 1] = [("GPUSHARE_TRACE", "5000")];

#[test]
fn it_has_the_first_call_and_an_order_takes_its_place() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &WANTED);
    assert_eq!(program.state(), TraceState::On);
    program.tell("launch 200");
    let path = program.path();
    let reader = Reader::open(&path).expect("made by the program");
    assert_eq!(reader.header().capacity, 5000);
    assert_eq!(
        (count(&reader, "cuInit"), count(&reader, "cuLaunchKernel")),
        (1, 200)
    );
    // A trace of the operator takes precedence over the launch's.
    program.trace(2000);
    program.tell("launch 30");
    program.edit(None);
    assert_eq!(program.state(), TraceState::Off);
    let reader = Reader::open(&path).expect("made by the operator");
    assert_eq!(reader.header().capacity, 2000);
    assert_eq!(
        (count(&reader, "cuInit"), count(&reader, "cuLaunchKernel")),
        (0, 30)
    );
    program.ends();
}

#[test]
fn its_end_is_told_and_the_file_stays() {
    let bed = Testbed::new();
    let mut program = Program::start(&bed, &WANTED);
    program.tell("launch 7");
    let path = program.path();
    program.ends();
    let reader = Reader::open(&path).expect("for export");
    assert!(reader.header().stopped_ns >= reader.header().started_ns);
    assert_eq!(count(&reader, "cuLaunchKernel"), 7);
}

#[test]
fn a_buffer_that_cannot_be_made_is_one_line_and_the_program_goes_on() {
    let bed = Testbed::new();
    // A directory of that name stops even the superuser.
    let in_the_way = bed.dir().join("trace-0-1");
    fs::create_dir(&in_the_way).expect("ours");
    let mut program = Program::start(&bed, &WANTED);
    program.tell("launch 7");
    assert_ne!(program.state(), TraceState::On);
    program.watched.say("exit");
    let output = program.watched.wait_output();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("GPUSHARE_TRACE"), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}
