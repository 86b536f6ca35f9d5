//! `ioctl`: every request, whosever it is, does what it does without the library.

use std::ffi::OsStr;

use gpushare_testbed::Watched;

use crate::bench::{Bench, Target, lines};

/// Returns what `apps/requests.c` prints with these libraries preloaded.
fn says(preload: &str) -> Vec<String> {
    let bench = Bench::new();
    let program = Target::native().program("requests.c", &[]);
    let mut command = bench.command(&program, &[("LD_PRELOAD", OsStr::new(preload))]);
    lines(preload, &Watched::spawn(&mut command).wait_output())
}

#[test]
fn requests_of_devices_do_what_they_do_without_the_library() {
    let ours = Target::native().preload.display().to_string();
    let bare = says("");
    assert!(
        bare.contains(&"bytes to read 0 errno 77 wrote 5".to_owned()),
        "{bare:#?}"
    );
    assert_eq!(says(&ours), bare);
}

#[test]
fn another_library_that_stands_in_for_ioctl_sees_the_same_requests() {
    let target = Target::native();
    let other = target.library("other_ioctl.c", "other_ioctl.so", &[]);
    let (ours, other) = (target.preload.display(), other.display());
    let bare = says(&other.to_string());
    assert!(
        bare.contains(&"other sees c030462b of a record".to_owned()),
        "{bare:#?}"
    );
    assert_eq!(says(&format!("{ours}:{other}")), bare);
    assert_eq!(says(&format!("{other}:{ours}")), bare);
}
