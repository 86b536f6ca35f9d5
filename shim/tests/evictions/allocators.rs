//! How the memory of each allocator leaves its device: by copies, by the driver's checkpoint, or not at all. The guide has a row for
//! each (`assets/guide/memory.md`).

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Phase, Why};

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE};
use crate::refusals::world;

/// The way in which memory leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    ByCopies,
    ByCheckpoint,
    Not(Why),
}

/// Starts a swappable client that executes these commands, and evicts it. Returns the reason if it is refused.
fn refusal(bed: &Testbed, commands: &[String]) -> Option<Why> {
    let mut client = Client::start(bed, &[("GPUSHARE_SWAPPABLE", "1")]);
    for command in commands {
        client.ok(command);
    }
    client.ok("synchronize");
    client.wish(bed, Wish::Evict);
    eventually("it is evicted or refused", PATIENCE, || {
        client.residence().phase == Phase::Evicted || client.residence().why.is_some()
    });
    let why = client.residence().why;
    client.wish(bed, Wish::Resume);
    client.ok("synchronize");
    assert_eq!(client.residence().phase, Phase::Resident);
    why
}

#[test]
fn each_allocator_s_memory_leaves_as_the_guide_says() {
    // Copies need no checkpoint, which this driver does not have.
    let (_file, without_checkpoints) =
        world("[driver]\nversion = \"560.10\"\n[[device]]\nmemory = \"1GiB\"");
    let bed = Testbed::new();
    let bytes = 64 * MIB;
    let own = [
        format!("create p {bytes} 0"),
        format!("reserve r {bytes}"),
        format!("map r 0 {bytes} p"),
    ];
    let exported = [own.as_slice(), &["export x p".to_owned()]].concat();
    let one = |command: &str| vec![format!("{command} {bytes}")];
    let small = (0..8).map(|number| format!("alloc a{number} {MIB}"));
    for (name, commands, expected) in [
        ("cuMemAlloc", one("alloc a"), Leaves::ByCopies),
        ("small ones", small.collect(), Leaves::ByCheckpoint),
        ("cuMemAllocAsync", one("async a"), Leaves::ByCheckpoint),
        ("cuMemCreate", own.to_vec(), Leaves::ByCheckpoint),
        ("exported", exported, Leaves::Not(Why::Exported)),
        ("managed", one("managed a"), Leaves::Not(Why::Managed)),
    ] {
        let leaves = match refusal(&bed, &commands) {
            Some(why) => Leaves::Not(why),
            None if refusal(&without_checkpoints, &commands).is_none() => Leaves::ByCopies,
            None => Leaves::ByCheckpoint,
        };
        assert_eq!(leaves, expected, "{name}");
    }
}

#[test]
fn a_swappable_program_whose_own_memory_needs_the_checkpoint_is_told_so() {
    let bed = Testbed::new();
    let bytes = 512 * MIB;
    let variables = [("GPUSHARE_SWAPPABLE", "1")];
    for (command, is_told) in [("alloc a", false), ("create p", true)] {
        let mut client = Client::start(&bed, &variables);
        client.ok(&format!("{command} {bytes} 0"));
        client.evict(&bed);
        let said = client.watched.stderr();
        assert_eq!(
            said.contains("512 of 512 MiB are not swappable"),
            is_told,
            "{said}"
        );
    }
}
