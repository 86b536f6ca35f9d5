//! Pipe directories that belong to another user, or are unusable.

use gpushare_testbed::{Need, needs};
use std::fs;
use std::os::unix::fs::{chown, symlink};

use crate::cli_support::Run as _;
use crate::support::{Mps, finding};

#[test]
fn a_link_or_a_directory_of_another_user_is_refused_and_stays_as_it_is() {
    let mps = Mps::new();
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let planted = mps.world.dir().join("mps");
    let refused = |words: &[&str]| {
        for verb in ["start", "stop", "status"] {
            mps.gpushare(&["mps", verb]).refused(4, words);
        }
        let run = mps.gpushare(&["run", "--", "echo", "started"]).done();
        assert_eq!(run.out, "started\n");
        assert!(run.err.contains("does not join MPS"), "{run:?}");
        let doctor = mps.gpushare(&["doctor", "--json"]).json();
        assert_eq!(finding(&doctor)["level"], "fail", "{doctor}");
        assert_eq!(mps.asked("-d"), 0);
    };
    symlink(elsewhere.path(), &planted).expect("ours");
    refused(&["symbolic link"]);
    let written = fs::read_dir(elsewhere.path()).expect("ours").count();
    assert_eq!(written, 0, "nothing goes through the link");
    fs::remove_file(&planted).expect("ours");
    fs::create_dir(&planted).expect("ours");
    symlink(elsewhere.path(), planted.join("pipe")).expect("ours");
    refused(&["symbolic link"]);
    if !needs(Need::Root) {
        return;
    }
    fs::remove_file(planted.join("pipe")).expect("ours");
    chown(&planted, Some(61_235), Some(61_235)).expect("given");
    refused(&["belongs to user", "61235"]);
}

#[test]
fn a_directory_whose_path_is_too_long_for_a_socket_is_refused_with_both_lengths() {
    let mps = Mps::new();
    let long = mps.world.dir().join("l".repeat(90));
    fs::create_dir(&long).expect("ours");
    let length = long.join("mps/pipe/control_privileged").as_os_str().len();
    let mut start = mps.command(&["mps", "start"]);
    start.env("GPUSHARE_DIR", &long).said().refused(
        1,
        &[&format!("{length} bytes"), "at most 107", "GPUSHARE_DIR"],
    );
    assert!(!long.join("mps").exists());
}
