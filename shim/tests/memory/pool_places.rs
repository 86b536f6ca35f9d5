//! Pools of every location and kind: the ledger must agree with the simulator's driver.

use gpushare_testbed::Testbed;

use crate::client::{Client, INVALID_VALUE, KIB, MIB};

/// The values of `CU_MEM_ALLOCATION_TYPE_…` and `CU_MEM_LOCATION_TYPE_…`, as the client's commands take them.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
const NOWHERE: u32 = 0;
const ON_DEVICE: u32 = 1;
const ON_HOST: u32 = 2;
const ON_NODE: u32 = 3;

fn pinned(client: &Client<'_>) -> u64 {
    let devices = client.process().devices;
    devices
        .iter()
        .map(|device| device.counters.host_pinned_bytes)
        .sum()
}

/// Returns the bytes of a pool in use, according to the driver.
fn in_use(client: &mut Client<'_>, pool: &str) -> u64 {
    client.ok(&format!("pool-size {pool}"))[1]
}

#[test]
fn pinned_pools_of_the_host_are_counted_as_pinned_and_never_charged() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    for (verb, place) in [
        ("pool-in", ON_HOST),
        ("pool-in", ON_NODE),
        ("pool-default-in", ON_HOST),
    ] {
        client.ok(&format!("{verb} p {PINNED} {place} 0"));
        client.ok(&format!("pool-alloc a p {MIB}"));
        client.ok(&format!("pool-alloc b p {}", 2 * MIB));
        assert_eq!(pinned(&client), in_use(&mut client, "p"), "{verb} {place}");
        assert_eq!((pinned(&client), client.used()), (3 * MIB, 0));
        client.ok("free-async a");
        client.ok("free b");
        assert_eq!((pinned(&client), client.used()), (0, 0));
    }
}

#[test]
fn managed_pools_are_charged_to_the_device_they_prefer() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[]);
    for verb in ["pool-in", "pool-default-in"] {
        client.ok(&format!("{verb} p {MANAGED} {ON_DEVICE} 1"));
        client.ok(&format!("pool-alloc a p {MIB}"));
        assert_eq!(client.used_on(1), in_use(&mut client, "p"), "{verb}");
        assert_eq!((client.used_on(0), client.used_on(1)), (0, MIB));
        client.ok("free-async a");
        assert_eq!(client.used_on(1), 0);
    }
}

#[test]
fn managed_pools_on_no_device_are_charged_where_their_stream_is_and_stay_within_its_quota() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "2MiB")]);
    client.ok("device 1");
    client.ok("stream there");
    client.ok("device 0");
    for place in [NOWHERE, ON_HOST, ON_NODE] {
        client.ok(&format!("pool-in p {MANAGED} {place} 0"));
        client.ok(&format!("pool-alloc a p {MIB}"));
        client.ok(&format!("pool-alloc-in b p {} there", 2 * MIB));
        assert_eq!((client.used_on(0), client.used_on(1)), (MIB, 2 * MIB));
        assert_eq!(in_use(&mut client, "p"), 3 * MIB);
        client.denied("pool-alloc-in c p 512 there");
        client.ok("free-async-in b there");
        client.ok("free a");
        assert_eq!((client.used_on(0), client.used_on(1)), (0, 0));
    }
    assert_eq!(pinned(&client), 0);
}

#[test]
fn stream_ordered_memory_is_charged_to_the_streams_device() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "2MiB")]);
    client.ok("device 1");
    client.ok("stream there");
    client.ok("device 0");
    client.ok(&format!("async-in a {MIB} there"));
    client.ok("pool-default d 1");
    assert_eq!(in_use(&mut client, "d"), client.used_on(1));
    assert_eq!((client.used_on(0), client.used_on(1)), (0, MIB));
    client.denied(&format!("async-in b {} there", 2 * MIB));
    client.ok("free-async-in a there");
    assert_eq!(client.used_on(1), 0);
}

#[test]
fn an_allocation_in_a_named_stream_is_charged_without_a_current_context_too() {
    for scenario in ["one-gpu", "two-gpus"] {
        let bed = Testbed::with_scenario(scenario);
        let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB")]);
        client.ok("stream s");
        client.ok("context-none");
        client.ok(&format!("async-in a {} s", 512 * KIB));
        assert_eq!(client.used(), 512 * KIB, "{scenario}");
        client.denied(&format!("async-in b {MIB} s"));
        client.ok("free-async-in a s");
        assert_eq!(client.used(), 0);
    }
}

#[test]
fn a_pools_memory_stays_charged_when_a_created_context_ends() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("pool-in p {PINNED} {ON_DEVICE} 0"));
    client.ok(&format!("pool-in h {PINNED} {ON_HOST} 0"));
    client.ok("context c 0");
    client.ok(&format!("pool-alloc a p {MIB}"));
    client.ok(&format!("pool-alloc b h {MIB}"));
    client.ok("context-destroy c");
    client.ok("device 0");
    assert_eq!(client.used(), in_use(&mut client, "p"));
    client.ok("device-reset 0");
    assert_eq!((client.used(), pinned(&client)), (MIB, MIB));
    client.ok("device 0");
    assert_eq!(in_use(&mut client, "p"), MIB);
    client.ok("free a");
    client.ok("free b");
    assert_eq!((client.used(), pinned(&client)), (0, 0));
}

/// The ways to end a primary context, as commands.
const ENDS: [(&str, &[&str]); 3] = [
    ("a reset", &["device-reset 0"]),
    (
        "the last release",
        &["device-release 0", "device-release 0"],
    ),
    (
        "the last green context",
        &[
            "green g x",
            "device-release 0",
            "device-release 0",
            "green-destroy g",
        ],
    ),
];

#[test]
fn a_pools_memory_goes_once_with_the_primary_context_and_a_late_free_changes_nothing() {
    for (end, commands) in ENDS {
        let bed = Testbed::new();
        let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4MiB")]);
        client.ok(&format!("pool-in p {PINNED} {ON_DEVICE} 0"));
        client.ok(&format!("pool-in h {PINNED} {ON_HOST} 0"));
        client.ok("context c 0");
        client.ok(&format!("alloc stays {MIB}"));
        client.ok("device 0");
        client.ok(&format!("pool-alloc a p {MIB}"));
        client.ok(&format!("pool-alloc b h {MIB}"));
        client.ok(&format!("async d {MIB}"));
        client.ok(&format!("alloc e {MIB}"));
        assert_eq!((client.used(), pinned(&client)), (4 * MIB, MIB), "{end}");
        for command in commands {
            client.ok(command);
        }
        assert_eq!((client.used(), pinned(&client)), (MIB, 0), "{end}");
        client.ok("device 0");
        assert_eq!(in_use(&mut client, "p"), 0, "{end}");
        for free in ["free a", "free-async d", "free b", "free e"] {
            assert_eq!(client.code(free), INVALID_VALUE, "{end}: {free}");
            assert_eq!((client.used(), pinned(&client)), (MIB, 0), "{end}: {free}");
        }
        client.ok(&format!("async f {}", 3 * MIB));
        client.denied("alloc g 512");
    }
}

#[test]
fn a_reset_takes_what_was_allocated_in_the_primary_contexts_stream_with_none_current() {
    for scenario in ["one-gpu", "two-gpus"] {
        let bed = Testbed::with_scenario(scenario);
        let mut client = Client::start(&bed, &[]);
        client.ok("stream s");
        client.ok(&format!("pool-in p {PINNED} {ON_DEVICE} 0"));
        client.ok("context-none");
        client.ok(&format!("async-in a {MIB} s"));
        client.ok(&format!("pool-alloc-in b p {MIB} s"));
        assert_eq!(client.used(), 2 * MIB, "{scenario}");
        client.ok("device-reset 0");
        assert_eq!(client.used(), 0, "{scenario}");
    }
}

#[test]
fn an_allocation_of_an_imported_pool_is_shown_as_imported_until_it_is_freed() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB")]);
    client.ok("pool-shared p 0");
    client.ok(&format!("pool-alloc a p {MIB}"));
    client.ok("pool-export f p");
    client.ok("pool-import q f");
    client.ok("pool-export-pointer a");
    let imported = |client: &Client<'_>| client.process().devices[0].counters.imported_bytes;
    for free in ["free b", "free-async b"] {
        client.ok("pool-import-pointer b q");
        assert_eq!((client.used(), imported(&client)), (MIB, MIB));
        client.ok(free);
        assert_eq!((client.used(), imported(&client)), (MIB, 0), "{free}");
    }
    client.ok("free-async a");
    assert_eq!(client.used(), 0);
}

#[test]
fn no_bytes_cost_nothing() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1MiB")]);
    client.ok("async a 0");
    client.ok("free-async a");
    client.ok(&format!("async b {MIB}"));
    client.ok("async c 0");
    assert_eq!(client.used(), MIB);
}

#[test]
fn memory_of_pools_goes_with_the_context_of_its_stream() {
    let bed = Testbed::with_scenario("one-gpu");
    for from_pool in [false, true] {
        let mut client = Client::start(&bed, &[]);
        client.ok("context-current primary");
        client.ok("stream s");
        client.ok("pool p 0 0");
        client.ok("context c 0");
        client.ok("stream t");
        let alloc = |name, bytes, stream| match from_pool {
            true => format!("pool-alloc-in {name} p {bytes} {stream}"),
            false => format!("async-in {name} {bytes} {stream}"),
        };
        client.ok(&alloc("a", 3 * MIB, "s"));
        client.ok("context-set primary");
        client.ok(&alloc("b", MIB, "t"));
        assert_eq!(client.used(), 4 * MIB);
        client.ok("device-reset 0");
        assert_eq!(client.used(), MIB, "from a pool: {from_pool}");
        client.ok("context-set c");
        client.ok("free b");
        assert_eq!(client.used(), 0);
    }
}
