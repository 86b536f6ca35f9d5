//! The operator's rules for evictions: each setting of the policy is obeyed.

use std::time::{Duration, Instant};

use gpushare_testbed::{Testbed, eventually};
use shm_layout::Phase;

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE};
use crate::overcommit::{overcommit, pause};
use crate::refusals::world;
use crate::turns::{self, take_turns};

const CARD: &str = "[[device]]\nmemory = \"64MiB\"";

/// Starts a client with 40 MiB of swappable memory and no work left.
fn holder(bed: &Testbed) -> Client<'_> {
    let mut client = turns::holder(bed, 40, 7);
    client.ok("synchronize");
    client
}

#[test]
fn a_process_is_idle_only_after_the_time_that_the_operator_sets() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    take_turns(&bed, "off evict-idle=2s");
    let mut idle = holder(&bed);
    let last = Instant::now();
    idle.ok("submit a");
    let mut newcomer = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    newcomer.ok(&format!("alloc a {}", 40 * MIB));
    assert!(last.elapsed() >= Duration::from_millis(1900));
    idle.reaches(Phase::Evicted);
}

#[test]
fn restored_memory_stays_for_the_time_that_the_operator_sets() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    take_turns(&bed, "off stay=2s");
    let mut one = holder(&bed);
    one.evict(&bed);
    one.wish(&bed, Wish::Resume);
    let back = Instant::now();
    assert_eq!(one.ok("read a 1000"), [7, 7]);
    pause(&bed, &one, true);
    let mut two = Client::start(&bed, &[("GPUSHARE_ON_FULL", "wait")]);
    two.ok(&format!("alloc a {}", 40 * MIB));
    assert!(back.elapsed() >= Duration::from_millis(1900));
}

#[test]
fn without_a_budget_of_host_memory_no_copy_is_kept() {
    let (_file, bed) = world(CARD);
    let mut client = holder(&bed);
    for policy in ["off host-memory=0", "off host-memory=39MiB"] {
        take_turns(&bed, policy);
        client.evict(&bed);
        assert_eq!(client.residence().host_bytes, 40 * MIB);
        client.wish(&bed, Wish::Resume);
        assert_eq!(client.ok("read a 1000"), [7, 7]);
        eventually("the copy is given up", PATIENCE, || {
            client.residence().host_bytes == 0
        });
    }
    take_turns(&bed, "off host-memory=40MiB");
    client.evict(&bed);
    client.wish(&bed, Wish::Resume);
    assert_eq!(client.ok("read a 1000"), [7, 7]);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.residence().host_bytes, 40 * MIB);
}
