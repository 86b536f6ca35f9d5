use std::time::Duration;

use gpushare_testbed::{Testbed, eventually};

use crate::client::{Client, INVALID_VALUE, KIB, MIB};

#[test]
fn plain_and_managed_memory_are_charged_to_the_byte_and_given_back() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    assert_eq!(client.used(), 0);
    client.ok("alloc a 1000003");
    assert_eq!(client.used(), 1_000_003);
    client.ok("managed b 77");
    assert_eq!(client.used(), 1_000_080);
    client.ok("free a");
    assert_eq!(client.used(), 77);
    client.ok("free b");
    assert_eq!(client.used(), 0);
    eventually(
        "the keeper has added the counts up",
        Duration::from_secs(60),
        || {
            let counters = client.process().devices[0].counters;
            (counters.allocations, counters.frees, counters.denials) == (2, 2, 0)
        },
    );
}

#[test]
fn pitched_memory_is_charged_with_the_drivers_own_pitch() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    let pitch = client.ok("pitch a 1000 37")[0];
    assert!(pitch >= 1000);
    assert_eq!(client.used(), pitch * 37);
    client.ok("free a");
    assert_eq!(client.used(), 0);
}

#[test]
fn pitched_memory_is_denied_at_the_byte() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    let bytes = client.ok("pitch a 1000 64")[0] * 64;
    drop(client);
    let quota = bytes.to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok("pitch a 1000 64");
    client.ok("free a");
    client.ok("alloc one 1");
    client.denied("pitch a 1000 64");
    assert_eq!(client.used(), 1);
}

#[test]
fn what_the_driver_refuses_is_given_back() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.denied("alloc a 1099511627776");
    assert_ne!(client.code("alloc a 0"), 0);
    assert_eq!(client.code("alloc-null 4096"), INVALID_VALUE);
    assert_eq!(client.used(), 0);
    assert_eq!(
        client.process().devices[0].counters.denials,
        0,
        "the driver refused, not we"
    );
}

#[test]
fn double_frees_and_foreign_addresses_go_to_the_driver_untouched() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("alloc a 4096");
    client.ok("alloc b 4096");
    client.ok("free a");
    assert_eq!(client.code("free a"), INVALID_VALUE);
    assert_eq!(client.code("free-address 12345678"), INVALID_VALUE);
    assert_eq!(
        client.code("free-async b"),
        0,
        "the simulator takes it, as the driver does"
    );
    assert_eq!(client.used(), 0);
}

#[test]
fn many_live_allocations_come_back_one_by_one() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    for round in 1..=200 {
        client.ok(&format!("alloc a{round} {}", round * KIB));
    }
    assert_eq!(client.used(), 200 * 201 / 2 * KIB);
    for round in (1..=200).rev() {
        client.ok(&format!("free a{round}"));
    }
    assert_eq!(client.used(), 0);
    assert_eq!(client.process().devices[0].peak, 200 * 201 / 2 * KIB);
}

#[test]
fn each_device_has_its_own_ledger() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("alloc a {MIB}"));
    client.ok("device 1");
    client.ok(&format!("alloc b {}", 2 * MIB));
    assert_eq!((client.used_on(0), client.used_on(1)), (MIB, 2 * MIB));
    client.ok("free a");
    assert_eq!((client.used_on(0), client.used_on(1)), (0, 2 * MIB));
}
