//! Side effects of the library that must not disturb the program: thread stacks, and lines on stderr.

use std::path::Path;

use gpushare_testbed::{Watched, cc};

use super::{behaviours::told, stage::Stage};

/// Runs a program with this many bytes of thread-local data, and returns its result.
fn with_tls(bytes: usize, variables: &[(&str, &Path)]) -> (String, String) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/much_tls.c");
    let much = format!("-DMUCH={bytes}");
    let program = cc(&source, "much_tls", &["-w", &much]);
    let stage = Stage::new();
    let mut command = stage.started_by(program, "timeslice=5ms");
    command.envs(variables.iter().copied());
    told(&much, Watched::spawn(&mut command))
}

#[test]
fn the_size_of_its_thread_local_data_is_no_matter() {
    let peace = ("answers 0".to_owned(), String::new());
    for bytes in [
        200_000,
        252_000,
        253_000,
        254_000,
        255_000,
        300_000,
        4 << 20,
    ] {
        assert_eq!(with_tls(bytes, &[]), peace, "{bytes}");
    }
}

#[test]
fn a_thread_that_writes_files_has_room_for_thread_local_data_too() {
    let logs = tempfile::tempdir().expect("a temporary directory");
    let said = with_tls(254_000, &[("PFLOG", logs.path())]);
    assert_eq!(said, ("answers 0".to_owned(), String::new()));
    let files = std::fs::read_dir(logs.path()).expect("our own directory");
    assert!(files.count() > 0, "nothing was logged");
}

/// Runs a program in which the library has a message for a stderr that cannot be written.
fn nobody_listens(how: &str) -> String {
    let stage = Stage::new();
    let mut command = stage.program("nobody_listens.c", "timeslice=5ms");
    command.arg(how).env("GPUSHARE_MEMORY", "8Q");
    told(how, Watched::spawn(&mut command)).0
}

#[test]
fn a_line_for_a_pipe_that_nobody_reads_ends_no_program() {
    assert_eq!(nobody_listens("closed"), "answers 0, SIGPIPE is not there");
    // A pending SIGPIPE that the program waits for itself is left pending.
    assert_eq!(nobody_listens("pending"), "answers 0, SIGPIPE waits");
}

#[test]
fn a_line_for_a_pipe_that_is_full_holds_no_program() {
    assert_eq!(nobody_listens("full"), "answers 0, SIGPIPE is not there");
}

#[test]
fn a_line_for_a_file_at_its_limit_ends_no_program() {
    assert_eq!(nobody_listens("large"), "answers 0, SIGPIPE is not there");
}

#[test]
fn a_line_from_the_background_of_a_terminal_stops_no_program() {
    let stage = Stage::new();
    let mut command = stage.program("in_the_background.c", "timeslice=5ms");
    command.env("GPUSHARE_MEMORY", "8Q");
    let said = told("background", Watched::spawn(&mut command));
    assert_eq!(said, ("answers 0, one line".to_owned(), String::new()));
}
