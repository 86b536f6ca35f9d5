//! Settings of earlier segments whose state was removed: the next edit sets them aside and reports it.

mod cli_support;

use cli_support::{Run as _, Said, World};
use gpushare_control::EditRequest;
use gpushare_control::audit::Place;
use gpushare_top::app;
use gpushare_top::operator::{News, Operator, Task};
use gpushare_top::state::State;
use shm_layout::{Change, LockPolicy};

#[test]
fn every_verb_that_edits_says_that_settings_of_earlier_segments_are_set_aside() {
    for words in [
        &["quota", "set", "all", "1GiB"][..],
        &["policy", "set", "all", "always"],
        &["group", "create", "team"],
        &["group", "set", "team", "weight=7"],
        &["group", "rm", "team"],
        &["set", "all", "weight=7"],
        &["pause", "all"],
        &["resume", "all"],
        &["undo"],
        &["apply", "plan.toml"],
        &["trace", "start", "all"],
        &["trace", "stop", "all"],
        &["init"],
        &["run", "--", "true"],
    ] {
        let world = World::new();
        let edit = ["policy", "set", "all", "launches=7"];
        world.gpushare(&edit).done();
        std::fs::remove_file(world.dir().join("state")).expect("ours");
        let plan = world.dir().join("plan.toml");
        std::fs::write(plan, "[policy]\nall = \"always\"\n").expect("ours");
        let said = |words: &[&str]| -> Said {
            let mut command = world.command(words);
            // Any library works for `run`: it must only be found, and `true` does not use it.
            let library = gpushare_base::host::elf::libc().expect("a machine with glibc");
            command
                .current_dir(world.dir())
                .env("GPUSHARE_LIB", library);
            command.said()
        };
        let first = said(words);
        let sentence = "the settings of earlier segments are no longer in force";
        let times = |said: &Said| said.err.matches(sentence).count();
        assert_eq!(times(&first), 1, "{words:?}: {first:?}");
        assert!(first.err.contains("control.set-aside-"), "{first:?}");
        let again = said(words);
        assert_eq!(times(&again), 0, "once: {words:?}: {again:?}");
    }
}

#[test]
fn a_verb_without_a_target_makes_no_segments() {
    let world = World::new();
    world
        .gpushare(&["quota", "set", "all", "1GiB"])
        .refused(5, &["no process"]);
    assert_eq!(std::fs::read_dir(world.dir()).expect("ours").count(), 0);
}

#[test]
fn the_dashboard_says_in_its_status_line_that_an_edit_set_settings_aside() {
    let world = World::new();
    world
        .gpushare(&["policy", "set", "all", "launches=7"])
        .done();
    std::fs::remove_file(world.dir().join("state")).expect("ours");
    let (send, mut inbox) = tokio::sync::mpsc::unbounded_channel();
    let operator = Operator::start(world.dir().to_owned(), send);
    let change = Change::Policy {
        device: None,
        policy: Some(LockPolicy::default()),
        until: None,
    };
    let edit = EditRequest::new(change, "all GPUs", Place::Tui);
    operator
        .send(Task::Edit(Box::new(edit)))
        .expect("it listens");
    // The thread ends after its last task, and then its channel closes.
    drop(operator);
    let mut state = State::default();
    let mut in_force = false;
    while let Some(news) = inbox.blocking_recv() {
        in_force |= matches!(news, News::InForce { .. });
        app::news(&mut state, news);
    }
    assert!(in_force, "the edit itself is made");
    let notice = state.choices.notice.expect("something is said");
    let sentence = "the settings of earlier segments are no longer in force";
    assert!(
        notice.bad && notice.text.contains(sentence),
        "{}",
        notice.text
    );
}
