//! Pinned processes: their memory stays on its devices, whatever others ask for and however long they are idle.

use std::thread::sleep;
use std::time::Duration;

use gpushare_testbed::Testbed;
use shm_layout::{EvictAfter, Phase, Why};

use crate::Wish;
use crate::client::{Client, MIB};
use crate::overcommit::{self, overcommit};
use crate::refusals::world;
use crate::there_and_back::with_memory;

/// A card of which two processes of 40 MiB fill more than it has.
const CARD: &str = "[[device]]\nmemory = \"64MiB\"";
/// A link that needs 4 s for 16 MiB.
const SLOW: &str = "[[device]]\nmemory = \"64MiB\"\n[link]\nout = \"4MiB\"\nback = \"256MiB\"";
const SWAPPABLE: (&str, &str) = ("GPUSHARE_SWAPPABLE", "1");

/// Starts a client that holds this many MiB and has no work left.
fn holder<'b>(bed: &'b Testbed, mib: u64, variables: &[(&str, &str)]) -> Client<'b> {
    let mut client = overcommit::holder(bed, mib, variables);
    client.ok("synchronize");
    client
}

#[test]
fn a_pinned_process_keeps_its_memory_until_it_is_unpinned() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let pinned = holder(&bed, 40, &[SWAPPABLE, ("GPUSHARE_PIN", "yes")]);
    assert!(pinned.process().share.pinned);
    let mut other = Client::start(&bed, &[SWAPPABLE]);
    other.denied(&format!("alloc a {}", 40 * MIB));
    assert_eq!(pinned.residence().phase, Phase::Resident);
    assert_eq!(pinned.process().devices[0].counters.evictions, 0);
    pinned.wish(&bed, Wish::Pin(false));
    other.ok(&format!("alloc a {}", 40 * MIB));
    pinned.reaches(Phase::Evicted);
}

#[test]
fn of_two_idle_processes_the_one_that_is_not_pinned_goes() {
    let (_file, bed) = world("[[device]]\nmemory = \"96MiB\"");
    overcommit(&bed, true);
    // It has been idle for longer, and has less to move.
    let pinned = holder(&bed, 30, &[SWAPPABLE]);
    pinned.wish(&bed, Wish::Pin(true));
    sleep(Duration::from_millis(300));
    let other = holder(&bed, 40, &[SWAPPABLE]);
    let mut newcomer = Client::start(&bed, &[SWAPPABLE]);
    newcomer.ok(&format!("alloc a {}", 30 * MIB));
    other.reaches(Phase::Evicted);
    assert_eq!(pinned.residence().phase, Phase::Resident);
}

#[test]
fn a_process_that_is_pinned_while_it_is_evicted_comes_back_without_a_call_and_is_idle_for_ever() {
    let bed = Testbed::new();
    let mut client = with_memory(&bed, &[]);
    client.leaves_once(&bed);
    client.wish(&bed, Wish::After(EvictAfter::Idle(200_000_000)));
    client.wish(&bed, Wish::Pin(true));
    client.reaches(Phase::Resident);
    assert_eq!(
        client.process().devices[0].counters.wake_max_ns,
        0,
        "no call waited"
    );
    sleep(Duration::from_secs(1));
    assert_eq!(client.residence().phase, Phase::Resident);
    assert_eq!(client.ok("read a 1000")[0], 77);
    client.wish(&bed, Wish::After(EvictAfter::Idle(100_000_000)));
    client.wish(&bed, Wish::Pin(false));
    client.reaches(Phase::Evicted);
}

#[test]
fn an_operator_evicts_a_pinned_process_and_it_comes_back_when_it_is_resumed() {
    let bed = Testbed::new();
    let client = with_memory(&bed, &[("GPUSHARE_PIN", "yes")]);
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    client.reaches(Phase::Resident);
}

#[test]
fn a_pin_calls_an_eviction_off_that_is_under_way() {
    let (_file, bed) = world(SLOW);
    let client = holder(&bed, 16, &[SWAPPABLE, ("GPUSHARE_EVICT_AFTER", "200ms")]);
    client.reaches(Phase::Evicting);
    client.wish(&bed, Wish::Pin(true));
    client.reaches(Phase::Resident);
    assert_eq!(client.process().devices[0].counters.evictions, 0);
    client.is_refused(Why::Pinned);
}
