//! Programs built with a sanitizer, which hooks libc before the library does: they run as they do without the library.

use std::{path::Path, process::Command};

use gpushare_testbed::{Watched, artifact, cc};

use super::{behaviours::told, stage::Stage};

/// Builds a program with a sanitizer and starts it with these libraries preloaded. Addresses are not randomised if `setarch`
/// can do that, because the thread sanitizer may otherwise find no space for its shadow memory.
fn sanitized(stage: &Stage, source: &str, flags: &[&str], preload: &str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(source);
    let mut all = vec!["-w"];
    all.extend(flags);
    let program = cc(&path, source.trim_end_matches(".c"), &all);
    let still = Command::new("setarch").args(["-R", "true"]).status();
    let mut command = match still.is_ok_and(|status| status.success()) {
        true => {
            let mut command = stage.started_by("setarch", "timeslice=5ms");
            command.arg("-R").arg(program);
            command
        }
        false => stage.started_by(program, "timeslice=5ms"),
    };
    command.env("LD_PRELOAD", preload);
    command
}

fn ours() -> String {
    artifact("libgpushare.so").display().to_string()
}

/// Returns the path of the compiler's own library with this name.
fn of_the_compiler(library: &str) -> String {
    let output = Command::new("cc")
        .arg(format!("-print-file-name={library}"))
        .output()
        .expect("the C compiler");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Programs, their arguments, and their output.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("peace.c", "plain", "answers 0"),
    ("peace.c", "threads", "answers 0"),
    ("peace.c", "fork-first", "answers 0 0"),
    ("peace.c", "vfork", "answers 0"),
    (
        "nothing_to_do.c",
        "",
        "threads 8 libc's malloc found, error libc's",
    ),
];

#[test]
fn a_program_under_the_thread_sanitizer_runs_whether_it_uses_a_gpu_or_not() {
    // A statically linked sanitizer of gcc exports nothing that tells it about the library's threads.
    let blind = "report_bugs=0";
    for (how, options) in [
        (&["-fsanitize=thread"][..], ""),
        (&["-fsanitize=thread", "-static-libtsan"], blind),
    ] {
        for (source, word, says) in PROGRAMS {
            let stage = Stage::new();
            let mut command = sanitized(&stage, source, how, &ours());
            command.arg(word).env("TSAN_OPTIONS", options);
            let said = told(source, Watched::spawn(&mut command));
            assert_eq!(said.0, says, "{source} {word} {how:?}: {}", said.1);
            assert_eq!(said.1, "", "{source} {word} {how:?}");
        }
    }
}

#[test]
fn a_program_under_the_address_sanitizer_leaks_nothing_of_ours() {
    let (library, ours) = (of_the_compiler("libasan.so"), ours());
    for (how, preload) in [
        (&["-fsanitize=address", "-static-libasan"][..], ours.clone()),
        (&["-fsanitize=address"], format!("{library}:{ours}")),
        // As `gpushare run` starts it.
        (&["-fsanitize=address"], ours.clone()),
    ] {
        for (source, word, says) in PROGRAMS {
            let stage = Stage::new();
            let mut command = sanitized(&stage, source, how, &preload);
            let said = told(source, Watched::spawn(command.arg(word)));
            assert_eq!(said.0, says, "{source} {word} {how:?}: {}", said.1);
            assert_eq!(said.1, "", "{source} {word} {how:?}");
        }
    }
}
