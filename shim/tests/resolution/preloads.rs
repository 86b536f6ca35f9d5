//! Other libraries that hook libc: allocators, a heap profiler, a sanitizer, loaded before the library and after it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use gpushare_testbed::{Need, Watched, needs};

use crate::bench::{Bench, Target, lines};

/// The programs, their arguments, and their last line.
const LIVES: [(&str, &[&str], &str); 6] = [
    ("racing.c", &[], "16 of 16"),
    (
        "nothing_to_do.c",
        &[],
        "threads 8 libc's malloc found, error libc's",
    ),
    ("peace.c", &["plain"], "answers 0"),
    ("peace.c", &["threads"], "answers 0"),
    ("peace.c", &["fork-first"], "answers 0 0"),
    ("peace.c", &["exit"], "left"),
];

/// Runs every program with `other` loaded before the library and after it.
fn lives_beside(other: &Path, variables: &[(&str, &OsStr)]) {
    let bench = Bench::new();
    bench.install("timed_driver.c", "libcuda.so.1", &[]);
    let target = Target::native();
    let ours = target.preload.display();
    let other = other.display();
    let timeline = bench.segments().join("timeline");
    for order in [format!("{ours}:{other}"), format!("{other}:{ours}")] {
        for (program, words, says) in LIVES {
            let mut all = vec![
                ("LD_PRELOAD", OsStr::new(&order)),
                ("GPUSHARE_POLICY", OsStr::new("timeslice=5ms")),
                ("TIMELINE", timeline.as_os_str()),
            ];
            all.extend(variables);
            let program = target.program(program, &[]);
            let mut command = bench.command(&program, &all);
            let output = Watched::spawn(command.args(words)).wait_output();
            let name = format!("{order} {words:?}");
            assert_eq!(
                lines(&name, &output).last().map(String::as_str),
                Some(says),
                "{name}"
            );
        }
    }
}

/// Returns a library of a package, or `None` if it is not installed.
fn installed(package: &str, places: &[&str]) -> Option<PathBuf> {
    let found = places
        .iter()
        .map(PathBuf::from)
        .find(|place| place.exists());
    needs(Need::Works(package, found.is_some()));
    found
}

#[test]
fn beside_one_who_looks_malloc_up_behind_itself() {
    let other = Target::native().library("next_malloc.c", "next_malloc.so", &[]);
    lives_beside(&other, &[]);
}

#[test]
fn nothing_is_allocated_while_the_linkers_list_is_locked() {
    // A heap profiler that unwinds the stack at each allocation waits for the loader's lock while it holds its own; heaptrack
    // does this.
    let other = Target::native().library("watchful_malloc.c", "watchful_malloc.so", &[]);
    lives_beside(&other, &[]);
}

#[test]
fn beside_jemalloc() {
    let places = [
        "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
        "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2",
    ];
    if let Some(other) = installed("libjemalloc2", &places) {
        lives_beside(&other, &[]);
    }
}

#[test]
fn beside_tcmalloc() {
    let places = [
        "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
        "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
    ];
    if let Some(other) = installed("libtcmalloc-minimal4", &places) {
        lives_beside(&other, &[]);
    }
}

#[test]
fn beside_heaptrack() {
    if let Some(other) = installed("heaptrack", &["/usr/lib/heaptrack/libheaptrack_preload.so"]) {
        lives_beside(
            &other,
            &[("DUMP_HEAPTRACK_OUTPUT", OsStr::new("/dev/null"))],
        );
    }
}

/// Processes under valgrind have no vDSO, although the kernel announces one.
#[test]
fn under_valgrind() {
    let Some(valgrind) = installed("valgrind", &["/usr/bin/valgrind"]) else {
        return;
    };
    let bench = Bench::new();
    bench.install("timed_driver.c", "libcuda.so.1", &[]);
    let target = Target::native();
    let timeline = bench.segments().join("timeline");
    let program = target.program("peace.c", &[]);
    for (word, says) in [("plain", "answers 0"), ("threads", "answers 0")] {
        let variables = [
            ("LD_PRELOAD", target.preload.as_os_str()),
            ("GPUSHARE_POLICY", OsStr::new("timeslice=5ms")),
            ("TIMELINE", timeline.as_os_str()),
        ];
        let mut command = bench.command(&valgrind, &variables);
        command.args(["--tool=none", "-q"]).arg(&program).arg(word);
        let output = Watched::spawn(&mut command).wait_output();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{word}: {output:?}");
        assert_eq!(said.lines().last(), Some(says), "{word}: {output:?}");
        assert!(
            bench.segments().join("state").exists(),
            "it was not managed"
        );
    }
}

#[test]
fn beside_the_address_sanitizer() {
    let output = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output()
        .expect("the C compiler");
    let sanitizer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let sanitizer = fs::canonicalize(sanitizer);
    needs(Need::Works("libasan", sanitizer.is_ok()));
    let Ok(sanitizer) = sanitizer else { return };
    // By default the sanitizer insists on being loaded first; this rule is not what the test checks.
    let options = OsStr::new("verify_asan_link_order=0:detect_leaks=0");
    lives_beside(&sanitizer, &[("ASAN_OPTIONS", options)]);
}
