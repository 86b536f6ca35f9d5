//! Moments of the past in a running dashboard, which records the last hour beside it.

use std::fs;
use std::path::Path;

use gpushare_testbed::eventually;

use crate::cli_support::World;
use crate::session::{LIMIT, Session};

/// Returns true if the recording of the last hour below a directory has a sample.
fn has_sample(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        let is_part = path.extension().is_some_and(|end| end == "gz");
        is_part && path.metadata().is_ok_and(|meta| meta.len() > 100) || has_sample(&path)
    })
}

#[test]
fn an_edit_is_shown_with_the_screen_of_then_and_the_present_is_a_key_away() {
    let world = World::new();
    let actor = world.actor("trainer");
    actor.enter(0);
    let mut session = Session::start(world.dir(), &[], &[]);
    session.wait_for("trainer");
    eventually("a sample is recorded", LIMIT, || {
        has_sample(&world.dir().join("past"))
    });
    world.gpushare(&["policy", "set", "all", "always"]).done();
    session.wait_for("edited:");
    session.press("{");
    session.wait_for("behind LIVE");
    session.wait_for(" marks");
    assert_eq!(session.count("are not kept"), 0, "{}", session.seen());
    session.press("f");
    // The line of the present: what the edit does.
    session.wait_for(" keep");
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn without_a_recording_a_moment_has_no_details_and_says_so() {
    let world = World::new();
    let actor = world.actor("trainer");
    actor.enter(0);
    let mut session = Session::start(world.dir(), &["--no-ring"], &[]);
    session.wait_for("trainer");
    session.press(",");
    session.wait_for("are not kept");
    session.press("fq");
    assert_eq!(session.end().code(), Some(0));
}
