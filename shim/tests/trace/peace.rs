//! Managed processes with unusual behaviour, traced: they run as they would without the library.

#[path = "../lock/stage.rs"]
#[allow(dead_code, reason = "shared with the lock's tests")]
mod lock_stage;

use gpushare_testbed::Watched;
use lock_stage::Stage;

#[test]
fn a_traced_guest_does_with_itself_what_it_likes() {
    for (mode, says) in [
        ("plain", "answers 0\n"),
        ("exit", "left\n"),
        ("quick-exit", ""),
        ("exec", "another program\n"),
        ("close-all", "answers 0\n"),
        ("signals", "answers 0\n"),
        ("threads", "answers 0\n"),
        ("vfork", "answers 0\n"),
        ("fork-first", "answers 0 0\n"),
        ("sandbox", "answers 0\n"),
    ] {
        let (stage, dir) = (Stage::new(), tempfile::tempdir().expect("a directory"));
        let mut command = stage.program("peace.c", "timeslice=5ms");
        command.arg(mode).env("PFLOG", dir.path());
        let (printed, said) = Watched::spawn(&mut command).succeed();
        assert_eq!((printed.as_str(), said.as_str()), (says, ""), "{mode}");
    }
}
