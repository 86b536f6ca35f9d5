//! The programs that must run on every system, and their expected output.

use std::{ffi::OsStr, path::Path};

use gpushare_testbed::{Need, Watched, needs};

use crate::bench::{BY_DLSYM, Bench, Target, lines, text};

/// Checks that each way to find the driver leads to the library, and that all other results are as without it.
pub fn find_the_driver(target: &Target) {
    let bench = Bench::on(target.clone());
    assert_eq!(bench.says("by_dlsym.c", &[], &[]), BY_DLSYM);
    let by_proc_address = bench.says("by_proc_address.c", &[], &[]);
    assert_eq!(
        by_proc_address.first().map(String::as_str),
        Some("look ours")
    );
    assert!(by_proc_address.contains(&"per-thread ours as by dlsym".to_owned()));
    assert_eq!(bench.says("racing.c", &[], &[]), ["16 of 16"]);
}

/// Checks that programs work under a lock policy in these modes.
pub fn live(target: &Target, modes: &[(&str, &str)]) {
    let bench = Bench::on(target.clone());
    bench.install("timed_driver.c", "libcuda.so.1", &[]);
    let program = target.program("peace.c", &[]);
    let timeline = bench.segments().join("timeline");
    let variables = [
        ("GPUSHARE_POLICY", OsStr::new("timeslice=5ms")),
        ("TIMELINE", timeline.as_os_str()),
    ];
    for (mode, says) in modes {
        let mut command = bench.command(&program, &variables);
        let output = Watched::spawn(command.arg(mode)).wait_output();
        assert_eq!(lines(mode, &output).join("\n"), *says, "{mode}");
        bench.complains_little(mode, &output);
        let ours = bench.segments().join("state");
        assert!(ours.exists(), "{mode}: it was not managed");
    }
}

/// Checks that a program without a GPU works as usual.
pub fn notices_nothing(target: &Target) {
    let bench = Bench::on(target.clone());
    let program = target.program("nothing_to_do.c", &[]);
    let output = Watched::spawn(&mut bench.command(&program, &[])).wait_output();
    assert_eq!(
        lines("nothing_to_do", &output),
        ["threads 8 libc's malloc found, error libc's"]
    );
    assert_eq!(text(&output.stderr), "");
    let left = std::fs::read_dir(bench.segments())
        .expect("the directory")
        .count();
    assert_eq!(left, 0, "it left a trace");
}

/// Checks that a path exists which the test needs from a package.
pub fn there(path: &Path, package: &str) -> bool {
    needs(Need::File(package, &[path]))
}
