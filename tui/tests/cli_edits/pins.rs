//! Pins: `gpushare pin`, `unpin`, `set pin=`, rules.

use super::*;

#[test]
fn a_pin_reaches_the_process_ends_by_itself_and_is_undone() {
    let world = World::new();
    let train = world.actor("train");
    train.enter(0);
    let pinned = || train.registration.share().pinned;
    let said = world.gpushare(&["pin", "name:train"]).done();
    let line = format!("train (pid {}): pinned\n", std::process::id());
    assert_eq!(said.out, line, "{said:?}");
    assert!(pinned());
    let said = world.gpushare(&["unpin", "name:train"]).done();
    assert!(said.out.contains("unpinned"), "{said:?}");
    assert!(!pinned());
    world.gpushare(&["undo"]).done();
    assert!(pinned());
    let audit = world.gpushare(&["audit"]).done();
    assert!(audit.out.contains("pin=no"), "{audit:?}");
    world
        .gpushare(&["unpin", "name:train", "--for", "1s"])
        .done();
    assert!(!pinned());
    eventually("it is pinned again", Duration::from_secs(30), pinned);
    world.gpushare(&["set", "name:train", "pin=inherit"]).done();
    assert!(!pinned());
    world
        .gpushare(&["set", "name:train", "pin=perhaps"])
        .refused(2, &["pin", "yes or no"]);
}

#[test]
fn a_rule_pins_what_it_matches_and_an_edit_of_the_process_goes_before_it() {
    let world = World::new();
    let (train, other) = (world.actor("train"), world.actor("other"));
    train.enter(0);
    other.enter(0);
    let file = world.dir().join("rules.toml");
    let rules = "[[rule]]\nlabel = \"train\"\npin = true\n";
    std::fs::write(&file, rules).expect("our own directory");
    let file = file.to_str().expect("plain");
    world.gpushare(&["apply", file]).done();
    let pinned = || [&train, &other].map(|actor| actor.registration.share().pinned);
    assert_eq!(pinned(), [true, false]);
    world.gpushare(&["unpin", "name:train"]).done();
    assert_eq!(pinned(), [false, false]);
}

#[test]
fn a_pinned_process_is_not_paused_when_it_was_to_be_evicted() {
    let world = World::new();
    let (train, other) = (world.actor("train"), world.actor("other"));
    train.enter(0);
    other.enter(0);
    world.gpushare(&["pin", "name:train"]).done();
    world
        .gpushare(&["pause", "all", "--evict"])
        .refused(1, &["train", "is pinned", "gpushare unpin"]);
    for actor in [&train, &other] {
        assert!(!actor.registration.share().paused);
    }
    world.gpushare(&["pause", "name:train"]).done();
    assert!(train.registration.share().paused, "its memory stays");
}
