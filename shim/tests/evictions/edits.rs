//! What the operator sets while a process is away, and how often an eviction is tried.

use gpushare_testbed::{Testbed, eventually};
use shm_layout::{Change, EventReader, Phase, QuotaValue, Segments, What};

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE};
use crate::overcommit::edit;
use crate::there_and_back::with_memory;

#[test]
fn a_wait_for_memory_goes_on_behind_an_eviction_and_was_not_given_up() {
    let bed = Testbed::new();
    let limited = [("GPUSHARE_MEMORY", "4MiB"), ("GPUSHARE_ON_FULL", "wait")];
    let mut client = Client::start(&bed, &limited);
    // A thread that could free: the wait is not hopeless.
    client.ok("free-later nothing 600000");
    client.ok(&format!("alloc a {}", 3 * MIB));
    client.begin(&format!("alloc b {}", 2 * MIB));
    let waits = |client: &Client<'_>| client.process().devices[0].memory_wait.is_some();
    for _ in 0..2 {
        eventually("it waits", PATIENCE, || waits(&client));
        client.evict(&bed);
        client.wish(&bed, Wish::Resume);
        client.reaches(Phase::Resident);
    }
    eventually("it waits again", PATIENCE, || waits(&client));
    let change = Change::ProcessQuota {
        slot: client.process().slot,
        device: None,
        value: QuotaValue::Bytes(8 * MIB),
        until: None,
    };
    edit(&bed, &change);
    assert_eq!(client.end(), 0);
    let counters = client.process().devices[0].counters;
    assert_eq!((counters.memory_waits, counters.memory_gave_up), (1, 0));
}

#[test]
fn a_process_that_comes_back_to_a_card_with_room_has_waited_for_no_limit() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    client.ok("info");
    assert_eq!(client.process().devices[0].counters.memory_waits, 0);
    let segments = Segments::open_viewer(bed.dir()).expect("there");
    let mut reader = EventReader::from_start(segments.state());
    while let Some(event) = reader.next(segments.state()) {
        let Ok(event) = event else { continue };
        assert!(
            !matches!(event.what(), What::MemoryWait { .. }),
            "{event:?}"
        );
    }
}
