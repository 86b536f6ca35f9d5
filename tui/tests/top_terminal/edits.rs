//! Edits from a dialog: they reach the process for which it was opened, and are in the audit log.

use gpushare_testbed::eventually;

use crate::cli_support::{Actor, World};
use crate::session::{LIMIT, Session};

const MIB: u64 = 1 << 20;
const ENTER: &str = "\r";

/// Makes one process that holds 64 MiB, and a dashboard.
fn stage(arguments: &[&str]) -> (World, Actor, Session) {
    let world = World::new();
    let actor = world.actor("trainer");
    let entry = actor.enter(0);
    assert!(actor.takes(entry, 64 * MIB));
    let session = Session::start(world.dir(), arguments, &[]);
    session.wait_for("trainer");
    (world, actor, session)
}

fn quota(actor: &Actor) -> Option<u64> {
    let entry = actor.registration.entry(0).unwrap();
    actor.registration.ledger(entry).quota().bytes
}

#[test]
fn the_quota_dialog_changes_the_quota_of_the_running_process() {
    let (world, actor, mut session) = stage(&[]);
    session.press("e");
    session.wait_for("Memory quota");
    session.press("96M");
    session.wait_for("100663296 bytes");
    session.press(ENTER);
    eventually("the process has its quota", LIMIT, || {
        quota(&actor) == Some(96 * MIB)
    });
    session.wait_for("applied by all");
    // The row of the event shows the edit, from the audit log.
    session.wait_for("\u{2192}");
    let entry = actor.registration.entry(0).unwrap();
    assert!(!actor.takes(entry, 33 * MIB), "64 + 33 is more than 96");
    assert!(actor.takes(entry, 32 * MIB));

    let audit = world.gpushare(&["audit", "--json"]).done().json();
    assert_eq!(audit["edits"][0]["where"], "tui");
    let target = audit["edits"][0]["target"].as_str().expect("a target");
    assert!(target.ends_with("trainer gpu0"), "{target}");
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn an_edit_is_taken_back_from_the_list_and_by_one_key() {
    for from in ["the list", "one key"] {
        // Each in a session of its own, whose output has what is waited for once.
        let (_world, actor, mut session) = stage(&[]);
        session.press("e");
        session.wait_for("Memory quota");
        session.press("96M\r");
        eventually("the process has its quota", LIMIT, || {
            quota(&actor).is_some()
        });
        session.wait_for("applied by all");
        match from {
            "the list" => {
                session.press("a");
                session.wait_for("audit.jsonl");
                session.press("u");
                session.wait_for("Undo edit");
            }
            _ => {
                session.press("u");
                session.wait_for("other keys");
            }
        }
        assert!(quota(&actor).is_some(), "it asks first");
        session.press("y");
        eventually("the quota is gone again", LIMIT, || quota(&actor).is_none());
    }
}

#[test]
fn the_policy_dialog_changes_the_policy_of_the_device() {
    let (_world, actor, mut session) = stage(&[]);
    session.press("p");
    session.wait_for("Lock policy");
    // off -> overlap -> launches -> timeslice; the default slice is 5 ms.
    session.press("   ");
    session.press(ENTER);
    let entry = actor.registration.entry(0).unwrap();
    let slice = shm_layout::PolicyKind::Timeslice(5_000_000);
    eventually("the policy is in force", LIMIT, || {
        actor.registration.policy(entry).0.kind == slice
    });
}

#[test]
fn read_only_changes_nothing() {
    let (_world, actor, mut session) = stage(&["--read-only"]);
    session.press("e");
    session.wait_for("Memory quota");
    session.press("96M\r");
    session.wait_for("start gpushare-top without --read-only");
    assert_eq!(quota(&actor), None);
}

#[test]
fn pasted_text_is_no_command_and_lands_in_the_field() {
    let (_world, actor, mut session) = stage(&[]);
    session.press("\x1b[200~PPPy\ry\x1b[201~");
    session.wait_for("pasted text is taken in fields only");
    session.press("e");
    session.wait_for("Memory quota");
    session.press("\x1b[200~96M\r\x1b[201~");
    session.wait_for("100663296 bytes");
    assert_eq!(quota(&actor), None, "the end of the line did not send it");
    session.press(ENTER);
    eventually("the process has its quota", LIMIT, || {
        quota(&actor) == Some(96 * MIB)
    });
    session.wait_for("applied by all");
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
    assert_eq!(
        session.count("\x1b[?2004h"),
        session.count("\x1b[?2004l"),
        "the shell gets its pastes as before"
    );
}

#[test]
fn an_edit_made_elsewhere_is_shown_with_who_and_what() {
    let (world, _actor, mut session) = stage(&[]);
    world
        .gpushare(&[
            "quota",
            "set",
            "name:trainer",
            "80M",
            "--reason",
            "ticket-9",
        ])
        .done();
    session.wait_for("ticket-9");
    session.press("q");
    assert_eq!(session.end().code(), Some(0));
}

#[test]
fn the_wheel_and_a_click_reach_it_and_the_mouse_is_given_back() {
    let (_world, _actor, mut session) = stage(&[]);
    // The wheel selects the only process; a click elsewhere has no effect.
    session.press("\x1b[<65;10;10M\x1b[<0;1;1M\x1b[<0;1;1m");
    session.press("P");
    session.wait_for("trainer (");
    // Every key but yes means no; after that, keys have their usual meaning.
    session.press("qq");
    assert_eq!(session.end().code(), Some(0));
    assert!(session.count("\x1b[?1002l") > 0);
}

#[test]
fn a_quota_is_pulled_with_the_mouse_and_set_when_the_dialog_is_sent() {
    let (world, actor, mut session) = stage(&[]);
    world
        .gpushare(&["quota", "set", "name:trainer", "80M"])
        .done();
    eventually("the process has its quota", LIMIT, || {
        quota(&actor) == Some(80 * MIB)
    });
    // These bytes are at the left end of the bar; the marks are in the fifth line.
    session.wait_for("a\u{2518}");
    session.press("\x1b[<0;8;5M\x1b[<32;12;5M\x1b[<32;18;5M");
    session.press("\x1b[<0;18;5m");
    session.wait_for("Memory quota");
    assert_eq!(
        quota(&actor),
        Some(80 * MIB),
        "a hand that slips changes nothing"
    );
    session.press(ENTER);
    eventually("the process has more", LIMIT, || {
        quota(&actor) > Some(1024 * MIB)
    });
}

#[test]
fn a_rule_rings_the_bell_and_asks_for_a_notification_as_the_terminal_knows_it() {
    const RULE: &str = "[[alert]]\nname = \"held\"\nwhen = \"used > 1M\"\nfor = \"0s\"\nbell = true\nnotify = true\n";
    let world = World::new();
    let settings = world.dir().join("top.toml");
    std::fs::write(&settings, RULE).unwrap();
    let actor = world.actor("trainer");
    let entry = actor.enter(0);
    assert!(actor.takes(entry, 64 * MIB));
    for (term, asked) in [
        ("xterm-256color", "\x1b]9;gpushare: "),
        ("foot", "\x1b]777;notify;gpushare;"),
    ] {
        let environment = [("TERM", term), ("TMUX", ""), ("VTE_VERSION", "")];
        let settings = settings.to_str().unwrap();
        let mut session = Session::start(world.dir(), &["--config", settings], &environment);
        session.wait_for(asked);
        let seen = session.seen();
        let (before, text) = seen.split_once(asked).unwrap();
        assert!(before.ends_with('\x07'), "the bell comes first");
        let (text, _) = text.split_once('\x07').expect("the notification ends");
        assert!(text.contains("held") && text.contains("trainer"), "{text}");
        session.press("q");
        assert_eq!(session.end().code(), Some(0));
    }
}
