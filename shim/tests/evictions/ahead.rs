//! Host memory for the first eviction: a process makes it while it is idle, once a card has become too small for all.

use std::thread::sleep;
use std::time::Duration;

use gpushare_testbed::eventually;
use shm_layout::Phase;

use crate::Wish;
use crate::client::{Client, MIB, PATIENCE};
use crate::overcommit::overcommit;
use crate::refusals::world;
use crate::swap::{has_all, holding};
use crate::turns::{fill, holder, take_turns};

const CARD: &str = "[[device]]\nmemory = \"64MiB\"";
/// Several times what an idle process waits before it makes host memory.
const A_WHILE: Duration = Duration::from_millis(600);

#[test]
fn an_idle_process_makes_host_memory_once_another_has_had_to_leave() {
    let (_file, bed) = world(CARD);
    overcommit(&bed, true);
    let mut one = holder(&bed, 40, 1);
    one.ok("synchronize");
    sleep(A_WHILE);
    assert_eq!(one.residence().host_bytes, 0, "it fits");
    let mut two = holder(&bed, 40, 2);
    two.ok("synchronize");
    one.reaches(Phase::Evicted);
    eventually("all of it is there", PATIENCE, || {
        two.residence().host_bytes == 40 * MIB
    });
    let residence = two.residence();
    assert_eq!((residence.phase, residence.swap_ns), (Phase::Resident, 0));
    for (client, number) in [(&mut one, 1), (&mut two, 2)] {
        let all = 40 * MIB / 4;
        assert_eq!(client.ok(&format!("count a {number} {all}")), [all]);
    }
    one.reaches(Phase::Evicted);
    assert_eq!(two.residence().host_bytes, 40 * MIB, "it was used");
}

#[test]
fn a_process_that_has_left_only_in_part_makes_the_host_memory_for_the_rest() {
    let (_file, bed) = world("[[device]]\nmemory = \"520MiB\"");
    overcommit(&bed, true);
    // More than a piece of host memory.
    let sizes = [100 * MIB; 3];
    let [mut one, mut two] = [1, 2].map(|_| holding(&bed, &[("GPUSHARE_ON_FULL", "wait")], &sizes));
    one.reaches(Phase::Evicted);
    // Until then it makes none.
    two.wish(&bed, Wish::Pin(true));
    one.begin("synchronize");
    one.reaches(Phase::Returning);
    two.wish(&bed, Wish::Pin(false));
    assert_eq!(one.end(), 0);
    two.reaches(Phase::Evicted);
    assert!(two.residence().is_in_part);
    has_all(&mut two, &sizes);
    eventually("all of it is there", PATIENCE, || {
        two.residence().host_bytes >= 300 * MIB
    });
    has_all(&mut one, &sizes);
}

#[test]
fn a_process_that_will_not_leave_or_has_no_budget_makes_none() {
    for (policy, pinned) in [("off", true), ("off host-memory=44MiB", false)] {
        let (_file, bed) = world(CARD);
        overcommit(&bed, true);
        take_turns(&bed, policy);
        let one = holder(&bed, 40, 1);
        let mut two = Client::start(&bed, &[("GPUSHARE_SWAPPABLE", "1")]);
        // Before it has memory: it is idle from its last call on.
        two.wish(&bed, Wish::Pin(pinned));
        fill(&mut two, 40, 2);
        one.reaches(Phase::Evicted);
        sleep(A_WHILE);
        assert_eq!(two.residence().host_bytes, 0, "{policy}, {pinned}");
    }
}
