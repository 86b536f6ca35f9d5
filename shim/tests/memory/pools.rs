use std::{
    path::Path,
    time::{Duration, Instant},
};

use gpushare_testbed::{Testbed, eventually};

use shm_layout::QuotaValue;

use crate::client::{Client, MIB, PATIENCE};
use crate::quota::set_quota;

#[test]
fn stream_ordered_memory_is_charged_until_its_free_in_both_forms() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("async a 1000");
    client.ok("async-ptsz b 500");
    assert_eq!(client.used(), 1500);
    client.ok("free-async-ptsz a");
    assert_eq!(client.used(), 500);
    client.ok("free b");
    assert_eq!(client.used(), 0, "a plain free takes it as well");
}

#[test]
fn a_pools_memory_is_charged_to_the_pools_device() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("pool p 1 {}", 4 * MIB));
    client.ok(&format!("pool-alloc a p {MIB}"));
    assert_eq!((client.used_on(0), client.used_on(1)), (0, MIB));
    client.denied(&format!("pool-alloc b p {}", 64 * MIB));
    assert_eq!(
        client.used_on(1),
        MIB,
        "the pool's own maximum refused, and the bytes came back"
    );
    client.ok("free-async a");
    client.ok("pool-trim p 0");
    client.ok("pool-destroy p");
    assert_eq!(client.used_on(1), 0);
    client.ok("pool-default d 0");
    client.ok("pool-alloc c d 300");
    assert_eq!(client.used_on(0), 300);
}

#[test]
fn stream_ordered_memory_is_denied_at_the_byte() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    client.ok("async a 4096");
    client.denied("async b 1");
    client.ok("free-async a");
    client.ok("async b 1");
}

#[test]
fn what_a_pool_keeps_stays_within_the_quota_too() {
    let bed = Testbed::new();
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok("pool-default p 0");
    client.ok("pool-keep p 0xffffffffffffffff");
    client.ok(&format!("async a {}", 64 * MIB));
    client.ok("free-async a");
    client.ok("synchronize");
    assert_eq!(
        (client.ok("pool-size p"), client.used()),
        (vec![64 * MIB, 0], 0)
    );
    client.ok(&format!("alloc b {}", 48 * MIB));
    let reserved = client.ok("pool-size p")[0];
    assert!(reserved <= 16 * MIB, "{reserved} kept beside 48 MiB held");
    client.ok("free b");

    client.ok(&format!("async a {}", 64 * MIB));
    client.ok("free-async a");
    client.ok("synchronize");
    client.ok(&format!("async a {}", 32 * MIB));
    assert_eq!(
        client.ok("pool-size p")[0],
        64 * MIB,
        "its own allocations use what it keeps"
    );
}

/// Returns the bytes that these pools have reserved together.
fn reserved(client: &mut Client<'_>, pools: &[&str]) -> u64 {
    let size = |pool| client.ok(&format!("pool-size {pool}"))[0];
    pools.iter().map(size).sum()
}

#[test]
fn all_pools_together_keep_no_more_than_the_quota() {
    let bed = Testbed::new();
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    let pools = ["p", "q", "r", "s"];
    for pool in pools {
        client.ok(&format!("pool {pool} 0 0"));
        client.ok(&format!("pool-keep {pool} 0xffffffffffffffff"));
    }
    for pool in pools {
        client.ok(&format!("pool-alloc a {pool} {}", 64 * MIB));
        let all = reserved(&mut client, &pools);
        assert_eq!(all, 64 * MIB, "held and kept, as {pool} allocates");
        client.ok("free-async a");
        client.ok("synchronize");
    }
    client.ok(&format!("pool-alloc a p {}", 32 * MIB));
    client.ok(&format!("pool-alloc b s {}", 32 * MIB));
    assert_eq!(reserved(&mut client, &pools), 64 * MIB);
}

#[test]
fn a_pool_that_keeps_until_the_next_synchronisation_stays_within_the_quota_too() {
    let bed = Testbed::new();
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok(&format!("async a {}", 64 * MIB));
    client.ok("free-async a");
    client.ok("pool p 0 0");
    client.ok("pool-default d 0");
    // The free takes effect when its stream reaches it.
    let within = || {
        client.ok(&format!("pool-alloc b p {}", 64 * MIB));
        let all = reserved(&mut client, &["d", "p"]);
        client.ok("free-async b");
        all == 64 * MIB
    };
    eventually("the default pool is trimmed", PATIENCE, within);
}

#[test]
fn pools_stay_within_the_quota_after_a_capture_too() {
    let bed = Testbed::new();
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok("stream s");
    client.ok("capture s");
    client.ok("capture-end s g");
    client.ok("pool p 0 0");
    client.ok("pool-keep p 0xffffffffffffffff");
    client.ok(&format!("pool-alloc a p {}", 64 * MIB));
    client.ok("free-async a");
    client.ok("synchronize");
    client.ok(&format!("alloc b {}", 64 * MIB));
    assert_eq!(reserved(&mut client, &["p"]), 0);
}

#[test]
fn a_pool_that_was_made_current_is_known() {
    let bed = Testbed::new();
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    for pool in ["p", "q"] {
        client.ok(&format!("pool {pool} 0 0"));
        client.ok(&format!("pool-keep {pool} 0xffffffffffffffff"));
        client.ok(&format!("pool-current {pool} 0"));
        client.ok(&format!("async a {}", 64 * MIB));
        client.ok("free-async a");
        client.ok("synchronize");
    }
    assert_eq!(reserved(&mut client, &["p", "q"]), 64 * MIB);
    client.ok("pool-current-in p 1 1 0");
    client.ok(&format!("async a {}", 32 * MIB));
    client.ok("free-async a");
    client.ok("synchronize");
    assert_eq!(reserved(&mut client, &["p"]), 32 * MIB, "the one set last");
    client.ok(&format!("alloc b {}", 64 * MIB));
    assert_eq!(reserved(&mut client, &["p", "q"]), 0);
}

/// Time for which a stream is busy.
const BUSY: Duration = Duration::from_millis(1500);
/// Less than an allocation waits that finds no end of the work.
const SOON: Duration = Duration::from_secs(8);

/// Starts a client with a quota of 64 MiB, and frees that much of the pool `d` behind work in the stream `s`. Returns the time from
/// before that work too.
fn free_behind_work<'b>(bed: &'b Testbed, work: Duration) -> (Client<'b>, Instant) {
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok("pool-default d 0");
    client.ok("stream s");
    client.ok("stream t");
    client.ok(&format!("async-in a {} s", 64 * MIB));
    let began = Instant::now();
    client.ok(&format!("busy s {}", work.as_millis()));
    client.ok("free-async-in a s");
    (client, began)
}

#[test]
fn an_allocation_waits_for_frees_in_a_busy_stream_that_would_exceed_the_quota_with_it() {
    let bed = Testbed::new();
    for alloc in [
        "async-in b 67108864 t",
        "alloc b 67108864",
        "pool-alloc b q 67108864",
    ] {
        let (mut client, began) = free_behind_work(&bed, BUSY);
        client.ok("pool q 0 0");
        assert_eq!(client.used(), 0, "freed for the account");
        client.ok(alloc);
        assert!(began.elapsed() >= BUSY, "{alloc}");
        let held = reserved(&mut client, &["d", "q"]);
        let in_pools = if alloc.starts_with("alloc") {
            0
        } else {
            64 * MIB
        };
        assert_eq!(held, in_pools, "{alloc}");
    }
}

#[test]
fn memory_freed_in_a_busy_stream_is_allocated_there_again_at_once() {
    let bed = Testbed::new();
    let (mut client, began) = free_behind_work(&bed, Duration::from_secs(60));
    for bytes in [64 * MIB, 64 * MIB, 32 * MIB] {
        client.ok(&format!("async-in a {bytes} s"));
        client.ok("free-async-in a s");
    }
    client.ok(&format!("async-in a {} s", 32 * MIB));
    client.ok(&format!("async-in b {} s", 32 * MIB));
    assert!(began.elapsed() < SOON);
    assert_eq!(reserved(&mut client, &["d"]), 64 * MIB);
}

#[test]
fn an_allocation_that_fits_beside_pending_frees_does_not_wait() {
    let bed = Testbed::new();
    let (mut client, began) = free_behind_work(&bed, Duration::from_secs(60));
    client.ok(&format!("async-in a {} s", 32 * MIB));
    client.ok(&format!("async-in b {} s", 32 * MIB));
    client.ok("free-async-in a s");
    client.ok("free-async-in b s");
    set_quota(&bed, &client, QuotaValue::Bytes(96 * MIB));
    client.ok(&format!("alloc c {}", 32 * MIB));
    assert!(began.elapsed() < SOON);
}

#[test]
fn frees_in_a_stream_that_was_destroyed_or_is_captured_are_waited_for_too() {
    let bed = Testbed::new();
    for end in ["stream-destroy s", "capture s"] {
        let (mut client, began) = free_behind_work(&bed, BUSY);
        client.ok("context-current c");
        client.ok(end);
        client.ok(&format!("in-a-thread in alloc b {}", 64 * MIB));
        assert!(began.elapsed() >= BUSY, "{end}");
    }
}

#[test]
fn frees_of_a_pool_that_was_destroyed_are_waited_for_too() {
    for ends in [
        ["free-async-in a s", "pool-destroy q"],
        ["pool-destroy q", "free-async-in a s"],
    ] {
        let bed = Testbed::new();
        let quota = (64 * MIB).to_string();
        let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
        client.ok("stream s");
        client.ok("pool q 0 0");
        client.ok(&format!("pool-alloc-in a q {} s", 64 * MIB));
        let began = Instant::now();
        client.ok(&format!("busy s {}", BUSY.as_millis()));
        ends.iter().for_each(|end| {
            client.ok(end);
        });
        client.ok(&format!("alloc b {}", 64 * MIB));
        assert!(began.elapsed() >= BUSY, "{ends:?}");
    }
}

#[test]
fn frees_of_memory_of_no_pool_are_waited_for_too() {
    for alloc in ["alloc", "managed"] {
        let bed = Testbed::new();
        let quota = (64 * MIB).to_string();
        let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
        client.ok("stream s");
        client.ok(&format!("{alloc} a {}", 64 * MIB));
        let began = Instant::now();
        client.ok(&format!("busy s {}", BUSY.as_millis()));
        client.ok("free-async-in a s");
        assert_eq!(client.used(), 0, "freed for the account");
        client.ok(&format!("alloc b {}", 64 * MIB));
        assert!(began.elapsed() >= BUSY, "{alloc}");
    }
}

#[test]
fn frees_behind_work_that_does_not_end_deny_an_allocation() {
    let bed = Testbed::new();
    let (mut client, _) = free_behind_work(&bed, Duration::from_secs(600));
    let began = Instant::now();
    client.denied(&format!("async-in b {} t", 64 * MIB));
    assert!(began.elapsed() >= Duration::from_secs(10));
    assert_eq!(reserved(&mut client, &["d"]), 64 * MIB);
    assert_eq!(
        (client.used(), client.process().devices[0].counters.denials),
        (0, 1)
    );
    client.ok(&format!("async-in b {} s", 64 * MIB));
}

#[test]
fn an_allocation_in_a_capture_does_not_wait_for_frees() {
    let bed = Testbed::new();
    let (mut client, began) = free_behind_work(&bed, Duration::from_secs(60));
    client.ok("capture t");
    client.denied(&format!("alloc b {}", 64 * MIB));
    assert!(began.elapsed() < SOON);
    client.ok("capture-end t g");
}

#[test]
fn frees_end_with_the_device_of_their_stream_and_not_of_their_pool() {
    for (reset, waits) in [(1, true), (0, false)] {
        let bed = Testbed::with_scenario("two-gpus");
        let quota = (64 * MIB).to_string();
        let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
        client.ok("device 1");
        client.ok("pool p 1 0");
        client.ok("device 0");
        client.ok("stream s");
        client.ok(&format!("pool-alloc-in a p {} s", 64 * MIB));
        let began = Instant::now();
        client.ok(&format!("busy s {}", BUSY.as_millis()));
        client.ok("free-async-in a s");
        client.ok(&format!("device-reset {reset}"));
        client.ok("device 0");
        client.ok("device 1");
        let after_reset = Instant::now();
        client.ok(&format!("alloc b {}", 64 * MIB));
        assert!(!waits || began.elapsed() >= BUSY, "reset of {reset}");
        assert!(waits || after_reset.elapsed() < BUSY, "reset of {reset}");
    }
}

#[test]
fn frees_in_a_context_that_does_not_end_after_all_are_waited_for_too() {
    for (setup, end, is_refused) in [
        ("context-current c", "context-destroy c", true),
        ("green g c", "device-release 0", false),
    ] {
        let bed = Testbed::new();
        let (mut client, began) = free_behind_work(&bed, BUSY);
        client.ok(setup);
        assert_eq!(client.code(end) != 0, is_refused, "{end}");
        client.ok("device 0");
        client.ok(&format!("alloc b {}", 64 * MIB));
        assert!(began.elapsed() >= BUSY, "{end}");
    }
}

/// Starts a client with a quota of 64 MiB that holds 32 MiB in the stream `t`, 16 MiB as `k` in the stream `s`, and as much as `a`
/// beside it, which no trim can return.
fn beside_one_that_is_kept(bed: &Testbed) -> Client<'_> {
    let quota = (64 * MIB).to_string();
    let mut client = Client::start(bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok("stream s");
    client.ok("stream t");
    client.ok(&format!("async-in k {} s", 16 * MIB));
    client.ok(&format!("async-in a {} s", 16 * MIB));
    client.ok(&format!("async-in h {} t", 32 * MIB));
    client
}

#[test]
fn memory_freed_before_other_work_was_queued_is_allocated_at_once() {
    let bed = Testbed::new();
    let mut client = beside_one_that_is_kept(&bed);
    client.ok("free-async-in a s");
    client.ok("synchronize");
    client.ok("busy s 60000");
    let began = Instant::now();
    client.ok(&format!("async-in b {} t", 16 * MIB));
    assert!(began.elapsed() < SOON);
}

#[test]
fn work_queued_after_a_free_is_not_waited_for() {
    let bed = Testbed::new();
    let mut client = beside_one_that_is_kept(&bed);
    let began = Instant::now();
    client.ok(&format!("busy s {}", BUSY.as_millis()));
    client.ok("free-async-in a s");
    client.ok("busy s 60000");
    client.ok(&format!("async-in b {} t", 16 * MIB));
    assert!(began.elapsed() >= BUSY);
    assert!(began.elapsed() < SOON);
}

#[test]
fn a_free_that_the_driver_refuses_is_not_pending() {
    let bed = Testbed::new();
    let mut client = beside_one_that_is_kept(&bed);
    client.ok("stream u");
    client.ok("stream-destroy u");
    assert_ne!(client.code("free-async-in a u"), 0);
    assert_eq!(client.used(), 64 * MIB);
    client.ok("free a");
    let began = Instant::now();
    client.ok(&format!("async-in b {} t", 16 * MIB));
    assert!(began.elapsed() < SOON);
}

#[test]
fn two_threads_do_not_allocate_the_same_pending_free() {
    let scenario = Path::new(env!("CARGO_TARGET_TMPDIR")).join("very-slow-alloc.toml");
    let text = "[[device]]\nmemory = \"8GiB\"\n[mishaps]\nslow_alloc = \"400ms\"\n";
    std::fs::write(&scenario, text).expect("the target directory can be written");
    let bed = Testbed::with_scenario(scenario.to_str().expect("a path in UTF-8"));
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "120MiB")]);
    client.ok("stream s");
    client.ok("stream t");
    client.ok(&format!("async-in k {} t", 64 * MIB));
    client.ok(&format!("async-in a {} s", 32 * MIB));
    let began = Instant::now();
    client.ok(&format!("busy s {}", BUSY.as_millis()));
    client.ok("free-async-in a s");
    let codes = client.ok(&format!("alloc-in-two {} {} s", 8 * MIB, 32 * MIB));
    assert_eq!(codes, [0, 0]);
    // The second does not fit into what the first leaves of the freed memory.
    assert!(began.elapsed() >= BUSY);
}

#[test]
fn a_wait_for_the_device_is_followed_by_one_for_frees_that_no_longer_fit() {
    let bed = Testbed::new();
    let variables = [("GPUSHARE_MEMORY", "96MiB"), ("GPUSHARE_ON_FULL", "wait")];
    let mut client = Client::start(&bed, &variables);
    client.ok("stream s");
    client.ok(&format!("async-in a {} s", 32 * MIB));
    let mut other = Client::start(&bed, &[]);
    let free = other.ok("info")[0];
    other.ok(&format!("alloc x {}", free - 16 * MIB));
    let (began, busy) = (Instant::now(), Duration::from_secs(5));
    client.ok(&format!("busy s {}", busy.as_millis()));
    client.ok("free-async-in a s");
    client.begin(&format!("alloc b {}", 64 * MIB));
    eventually("it waits for the device", PATIENCE, || {
        client.process().devices[0].memory_wait.is_some()
    });
    set_quota(&bed, &client, QuotaValue::Bytes(64 * MIB));
    other.ok("free x");
    assert_eq!(client.end(), 0);
    assert!(began.elapsed() >= busy);
}
