//! The documents of `--json`, with every key in its order. Values that differ between runs are masked.

mod cli_support;

use cli_support::{Actor, World};
use shm_layout::trace::{self, Buffer, Call, Guest};
use shm_layout::{Identity, LaunchLimits, MemoryLimit, Source};

const GIB: u64 = 1 << 30;

/// Makes a process with a quota and a group on one device, a starting trace, and edits of which one is refused.
fn stage() -> (World, Actor) {
    let world = World::new();
    let limits = LaunchLimits {
        memory: [MemoryLimit::Bytes(8 << 30); 16],
        memory_source: Source::LaunchEnv,
        group: Some("team-a".into()),
        ..LaunchLimits::default()
    };
    let train = world.actor_with("train", &limits);
    let gpu = train.enter(0);
    assert!(train.takes(gpu, 6 * GIB));
    for edit in [
        &["group", "create", "team-a", "memory=12GiB", "weight=200"][..],
        &["policy", "set", "all", "timeslice=5ms", "order=fair"],
        &["quota", "set", "name:train", "7GiB", "--for", "1h"],
    ] {
        world.gpushare(edit).done();
    }
    record_a_call(&world, &train);
    (world, train)
}

fn record_a_call(world: &World, train: &Actor) {
    let guest = Guest {
        calls: &["cuMemAlloc_v2"],
        devices: &[],
    };
    let slot = train.registration.slot();
    let identity = Identity::of_self("train");
    trace::create(world.dir(), slot, &identity, 1000).expect("room for a buffer");
    let buffer = Buffer::adopt(world.dir(), slot, guest).expect("just made");
    buffer.call(&Call {
        code: 0,
        start_ns: 5,
        duration_ns: 7,
        tid: 1,
        bytes: 512,
        waited_ns: 3,
        device: Some(0),
    });
}

/// Masks the numbers and names that differ between runs.
fn masked(text: &str) -> String {
    let varying = [
        "pid",
        "uid",
        "who",
        "time",
        "target",
        "target_start_time",
        "log",
        "file",
        "reverts_in_ns",
        "started_ns",
        "stopped_ns",
        "start_time",
        "epoch",
        "until_ns",
        "until",
        "version",
        "found",
        "level",
        "slot",
        "unix_ms",
        "seq",
        "busy",
        "waited_ns",
        "held_ns",
        "time_ns",
        "longest_ns",
        "total_ns",
        "mean_ns",
        "refusal",
    ];
    let line = |line: &str| match line.split_once(": ") {
        // This test does not depend on whether the library is built.
        Some((key, _)) if key.trim() == "\"fix\"" => format!("{key}: …\n"),
        Some((key, value)) if varying.contains(&key.trim().trim_matches('"')) => {
            let kind = match value.trim_end_matches(',') {
                "null" => "null",
                text if text.starts_with('"') => "\"…\"",
                _ => "…",
            };
            format!("{key}: {kind}\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn every_document_keeps_its_keys_and_their_order() {
    let (world, _train) = stage();
    let mut texts = String::new();
    for verb in [
        &["quota", "show", "--json"][..],
        &["policy", "show", "--json"],
        &["group", "show", "--json"],
        &["pick", "--json"],
        &["audit", "--json"],
        &["trace", "show", "--json"],
        &["trace", "stats", "--json"],
    ] {
        let said = world.gpushare(verb).done();
        texts.push_str(&format!(
            "$ gpushare {}\n{}\n",
            verb.join(" "),
            masked(&said.out)
        ));
    }
    // The findings and their number differ between machines.
    let said = world.gpushare(&["doctor", "--json"]);
    let first: Vec<&str> = said.out.lines().take(10).collect();
    texts.push_str(&format!(
        "$ gpushare doctor --json\n{}",
        masked(&first.join("\n"))
    ));
    insta::assert_snapshot!("documents", texts);
}
