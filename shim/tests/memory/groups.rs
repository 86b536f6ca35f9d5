//! Processes that share a quota.

use std::{ffi::OsStr, time::Duration};

use gpushare_testbed::{Testbed, Watched, eventually};
use rustix::process::Signal;
use shm_layout::{Change, EventKind, EventReader, QuotaValue, Segments, Set, Source, clock};

use crate::client::{Client, MIB, look};

fn set_group(bed: &Testbed, name: &str, memory: QuotaValue) {
    let operator = shm_layout::Operator::open(bed.dir()).expect("made at need");
    let change = Change::Group {
        name: name.into(),
        settings: shm_layout::GroupEdit {
            memory: Set::To(memory),
            ..shm_layout::GroupEdit::default()
        },
        remove: false,
    };
    operator
        .edit(None, &change, clock::now())
        .expect("a valid edit");
}

#[test]
fn members_share_one_quota_and_strangers_none() {
    let bed = Testbed::new();
    set_group(&bed, "training", QuotaValue::Bytes(4 * MIB));
    let member = [("GPUSHARE_GROUP", "training")];
    let (mut one, mut two) = (Client::start(&bed, &member), Client::start(&bed, &member));
    let mut stranger = Client::start(&bed, &[]);
    one.ok(&format!("alloc a {}", 3 * MIB));
    two.denied(&format!("alloc b {}", MIB + 1));
    two.ok(&format!("alloc b {MIB}"));
    one.denied("alloc c 1");
    stranger.ok(&format!("alloc a {}", 64 * MIB));
    assert_eq!(two.ok("info"), [0, MIB], "the group has nothing left");
    one.ok("free a");
    assert_eq!(two.ok("info"), [3 * MIB, 4 * MIB]);
    assert_eq!(two.ok("total 0"), [4 * MIB]);
    two.ok(&format!("alloc c {}", 3 * MIB));
    let group = look(&bed)
        .groups
        .into_iter()
        .find(|group| group.name == "training");
    assert_eq!(group.expect("it is there").members.len(), 2);
}

#[test]
fn a_groups_quota_changes_while_its_members_run() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_GROUP", "training")]);
    client.ok(&format!("alloc a {}", 8 * MIB));
    set_group(&bed, "training", QuotaValue::Bytes(8 * MIB));
    client.denied("alloc b 1");
    set_group(&bed, "training", QuotaValue::Bytes(8 * MIB + 1));
    client.ok("alloc b 1");
    set_group(&bed, "training", QuotaValue::Unlimited);
    client.ok("alloc c 1000");
}

#[test]
fn a_members_own_quota_holds_beside_the_groups() {
    let bed = Testbed::new();
    set_group(&bed, "training", QuotaValue::Bytes(4 * MIB));
    let own = [("GPUSHARE_GROUP", "training"), ("GPUSHARE_MEMORY", "1MiB")];
    let mut client = Client::start(&bed, &own);
    client.denied(&format!("alloc a {}", MIB + 1));
    client.ok(&format!("alloc a {MIB}"));
    assert_eq!(client.process().devices[0].quota.source, Source::LaunchEnv);
    let mut other = Client::start(&bed, &[("GPUSHARE_GROUP", "training")]);
    other.denied(&format!("alloc a {}", 3 * MIB + 1));
    other.ok(&format!("alloc a {}", 3 * MIB));
}

/// Checks that a member of a group of 4 MiB gets the bytes of another one that is killed.
fn inherits(mut heir: Client, mut doomed: Client) {
    doomed.ok(&format!("alloc a {}", 4 * MIB));
    heir.denied("alloc b 1");
    doomed.watched.signal(Signal::KILL);
    eventually(
        "the killed member's bytes are back",
        Duration::from_secs(60),
        || heir.code(&format!("alloc b {}", 4 * MIB)) == 0,
    );
}

#[test]
fn the_bytes_of_a_killed_member_are_the_groups_again() {
    let bed = Testbed::new();
    set_group(&bed, "training", QuotaValue::Bytes(4 * MIB));
    let member = [("GPUSHARE_GROUP", "training")];
    let doomed = Client::start(&bed, &member);
    let heir = Client::start(&bed, &member);
    inherits(heir, doomed);
}

#[test]
fn a_member_that_has_left_its_working_directory_gives_the_bytes_of_a_killed_one_back() {
    let bed = Testbed::new();
    set_group(&bed, "training", QuotaValue::Bytes(4 * MIB));
    let group = ("GPUSHARE_GROUP", "training");
    let doomed = Client::start(&bed, &[group]);
    let name = bed.dir().file_name().and_then(OsStr::to_str);
    let relative = ("GPUSHARE_DIR", name.expect("a plain name"));
    let mut heir = Client::start_bare(&bed, &[group, relative]);
    let around = bed.dir().parent().expect("it is in a directory");
    heir.ok(&format!("chdir {}", around.display()));
    heir.ok("init");
    heir.ok("device 0");
    heir.ok("chdir /");
    inherits(heir, doomed);
}

#[test]
fn a_devices_limit_holds_over_everybody() {
    let bed = Testbed::new();
    let (mut one, mut two) = (
        Client::start(&bed, &[]),
        Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]),
    );
    let operator = shm_layout::Operator::open(bed.dir()).expect("there");
    let uuid = look(&bed).devices[0].uuid;
    let change = Change::DeviceLimit {
        uuid,
        value: QuotaValue::Bytes(4 * MIB),
    };
    operator
        .edit(None, &change, clock::now())
        .expect("a valid edit");
    one.ok(&format!("alloc a {}", 3 * MIB));
    two.denied(&format!("alloc b {}", MIB + 1));
    assert_eq!(two.ok("info"), [MIB, 8 * MIB]);
    two.ok(&format!("alloc b {MIB}"));

    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    let mut limits = Vec::new();
    while let Some(event) = reader.next(segments.state()) {
        limits.extend(
            event
                .ok()
                .filter(|event| event.kind == EventKind::Denial)
                .map(|event| event.arg1),
        );
    }
    assert_eq!(limits, [4 * MIB], "the denial names the limit that refused");
}

#[test]
fn not_a_byte_is_lost_when_members_are_killed_at_work() {
    let bed = Testbed::new();
    set_group(&bed, "training", QuotaValue::Bytes(64 * MIB));
    let start = || {
        let mut command = bed.workload(&["--until-oom", "--piece", "3MiB", "--kernel-us", "1"]);
        Watched::spawn(command.env("GPUSHARE_GROUP", "training"))
    };
    let mut members: Vec<_> = (0..3).map(|_| start()).collect();
    for round in 0..6 {
        // Any moment is valid; these are spread over a member's life.
        std::thread::sleep(Duration::from_millis(5 + 17 * (round % 5)));
        let killed = std::mem::replace(&mut members[round as usize % 3], start());
        killed.signal(Signal::KILL);
    }
    drop(members);
    let mut heir = Client::start(&bed, &[("GPUSHARE_GROUP", "training")]);
    eventually("all bytes are back", Duration::from_secs(60), || {
        heir.code(&format!("alloc a {}", 64 * MIB)) == 0
    });
    heir.denied("alloc b 1");
    assert_eq!(heir.used(), 64 * MIB);
}
