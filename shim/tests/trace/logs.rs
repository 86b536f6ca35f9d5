//! `PFLOG` without `gpushare run`: the log files of Alnair's hook library.

use std::{
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use gpushare_testbed::{Testbed, eventually};

use crate::stage::{PATIENCE, Program};

fn wall_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    since.as_nanos() as u64
}

/// Returns name, count and microseconds of each entry.
fn metrics(path: &Path) -> Vec<(String, u64, u64)> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines: Vec<_> = text.lines().collect();
    let number = |line: &str, word: &str| {
        let value = line.strip_prefix(word).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no {word} in {line:?}"))
    };
    lines
        .chunks(3)
        .map(|entry| {
            let name = entry[0].strip_prefix("name:").expect("a name").to_owned();
            (name, number(entry[1], "count:"), number(entry[2], "burst:"))
        })
        .collect()
}

fn count(path: &Path, name: &str) -> u64 {
    metrics(path)
        .into_iter()
        .find(|entry| entry.0 == name)
        .map_or(0, |entry| entry.1)
}

/// Returns start and microseconds of each line of a call.
fn timeline(dir: &Path, name: &str) -> Vec<(u64, u64)> {
    let text = fs::read_to_string(dir.join("timeline.log")).expect("a timeline");
    let wanted = format!("name:{name} start:");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&wanted));
    lines
        .map(|line| {
            let (start, burst) = line.split_once(" burst:").expect("a burst");
            (
                start.parse().expect("a start"),
                burst.parse().expect("microseconds"),
            )
        })
        .collect()
}

#[test]
fn the_files_are_as_alnairs_were() {
    let (bed, dir) = (Testbed::new(), tempfile::tempdir().expect("a directory"));
    let before = wall_ns();
    let mut program = Program::start(&bed, &[("PFLOG", dir.path().to_str().expect("UTF-8"))]);
    program.tell("launch 200");
    program.tell("copy 4096");
    assert!(program.view().trace.progress.logs && !program.view().invalid);
    program.ends();
    let after = wall_ns();
    let path = dir.path().join("metrics.log");
    let names: Vec<_> = metrics(&path).into_iter().map(|entry| entry.0).collect();
    let first = [
        "cuInit",
        "cuMemAlloc",
        "cuMemFree",
        "cuLaunchKernel",
        "cuMemcpyH2D",
        "cuMemcpyD2H",
        "cuGetProcAddress",
    ];
    assert_eq!(names[..7], first);
    for (name, wanted) in [
        ("cuInit", 1),
        ("cuLaunchKernel", 200),
        ("cuMemcpyH2D", 1),
        ("cuMemcpyD2H", 0),
    ] {
        assert_eq!(count(&path, name), wanted, "{name}");
        assert_eq!(timeline(dir.path(), name).len() as u64, wanted, "{name}");
    }
    for name in ["cuInit", "cuLaunchKernel"] {
        for (start, _) in timeline(dir.path(), name) {
            assert!(
                start > before - 1_000_000_000 && start < after + 1_000_000_000,
                "{start}"
            );
        }
    }
}

#[test]
fn look_ups_before_the_first_init_are_summed_up() {
    let (bed, dir) = (Testbed::new(), tempfile::tempdir().expect("a directory"));
    let mut program = Program::bare(&bed, &[("PFLOG", dir.path().to_str().expect("UTF-8"))]);
    program.tell("look 20");
    program.tell("init");
    program.tell("look 3");
    program.ends();
    assert_eq!(
        count(&dir.path().join("metrics.log"), "cuGetProcAddress"),
        23
    );
    assert_eq!(timeline(dir.path(), "cuGetProcAddress").len(), 3);
}

#[test]
fn programs_that_share_a_directory_lose_nothing() {
    let (bed, dir) = (Testbed::new(), tempfile::tempdir().expect("a directory"));
    let variable = [("PFLOG", dir.path().to_str().expect("UTF-8"))];
    let plain = dir.path().join("metrics.log");
    let mut first = Program::start(&bed, &variable);
    // A thread of the program claims the name, after cuInit has returned.
    eventually("the first has the plain name", PATIENCE, || {
        fs::metadata(&plain).is_ok_and(|meta| meta.len() > 0)
    });
    let mut second = Program::start(&bed, &variable);
    let own = format!("metrics.{}.log", second.watched.pid());
    let own = dir.path().join(own);
    eventually("the second has a name of its own", PATIENCE, || {
        fs::metadata(&own).is_ok_and(|meta| meta.len() > 0)
    });
    first.tell("launch 30");
    second.tell("launch 40");
    first.ends();
    second.ends();
    assert_eq!(count(&plain, "cuLaunchKernel"), 30);
    assert_eq!(count(&own, "cuLaunchKernel"), 40);
    assert_eq!(timeline(dir.path(), "cuLaunchKernel").len(), 70);
    // The third process finds the plain name free again.
    let mut third = Program::start(&bed, &variable);
    third.tell("launch 5");
    third.ends();
    assert_eq!(count(&plain, "cuLaunchKernel"), 5);
    assert_eq!(timeline(dir.path(), "cuLaunchKernel").len(), 75);
}

#[test]
fn more_than_a_buffer_holds_is_written_all_the_same() {
    let segments = tempfile::tempdir().expect("a directory");
    let dir = tempfile::tempdir().expect("a directory");
    let variable = [("PFLOG", dir.path().to_str().expect("UTF-8"))];
    let mut program = Program::on_noop_driver(segments.path(), &variable);
    let long = || fs::metadata(dir.path().join("timeline.log")).map_or(0, |meta| meta.len());
    for batch in 1..=3 {
        program.tell("launch 150000");
        eventually("the files have it", PATIENCE, || {
            long() > batch * 100_000 * 50
        });
    }
    program.ends();
    // A thread that ran late may have dropped records; one buffer would hold fewer lines than this.
    assert!(timeline(dir.path(), "cuLaunchKernel").len() > 262_144);
    assert_eq!(
        count(&dir.path().join("metrics.log"), "cuLaunchKernel"),
        450_000
    );
}

#[test]
fn a_program_that_ends_at_once_leaves_its_lines() {
    let (bed, dir) = (Testbed::new(), tempfile::tempdir().expect("a directory"));
    for round in 1..=10 {
        let mut program = Program::bare(&bed, &[("PFLOG", dir.path().to_str().expect("UTF-8"))]);
        for word in ["init", "launch 3", "exit"] {
            program.watched.say(word);
        }
        program.watched.succeed();
        assert_eq!(timeline(dir.path(), "cuLaunchKernel").len(), 3 * round);
        assert_eq!(count(&dir.path().join("metrics.log"), "cuInit"), 1);
    }
}

#[test]
fn an_operators_trace_beside_it_disturbs_neither() {
    let (bed, dir) = (Testbed::new(), tempfile::tempdir().expect("a directory"));
    let mut program = Program::start(&bed, &[("PFLOG", dir.path().to_str().expect("UTF-8"))]);
    program.tell("launch 10");
    let path = program.trace(1000);
    program.tell("launch 20");
    program.edit(None);
    program.tell("launch 30");
    let reader = shm_layout::trace::Reader::open(&path).expect("a buffer");
    assert_eq!(crate::stage::count(&reader, "cuLaunchKernel"), 20);
    program.ends();
    assert_eq!(count(&dir.path().join("metrics.log"), "cuLaunchKernel"), 60);
}

#[test]
fn a_directory_that_is_none_is_one_line_and_the_program_runs_on() {
    let bed = Testbed::new();
    let pipes = tempfile::tempdir().expect("a directory");
    for name in ["metrics.log", "timeline.log"] {
        let made = std::process::Command::new("mkfifo")
            .arg(pipes.path().join(name))
            .status();
        assert!(made.expect("coreutils").success());
    }
    let pipes = pipes.path().to_str().expect("UTF-8");
    for place in ["/nowhere/at/all", "/etc/passwd", "/proc", pipes] {
        let mut program = Program::start(&bed, &[("PFLOG", place)]);
        program.tell("launch 10");
        eventually("it is said", PATIENCE, || {
            program.watched.stderr().contains("PFLOG")
        });
        program.watched.say("exit");
        let (_, said) = program.watched.succeed();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(place), "{said}");
    }
}
