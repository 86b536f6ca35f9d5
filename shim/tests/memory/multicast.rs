//! Multicast objects, on the simulator only: an error on a real one can take its host's GPUs out of service.

use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

/// Makes an object of 4 MiB for two devices, and memory of 2 MiB on each.
fn team(bed: &Testbed) -> Client<'_> {
    let mut client = Client::start(bed, &[]);
    client.ok(&format!("multicast t 2 {}", 4 * MIB));
    for device in 0..2 {
        client.ok(&format!("multicast-add t {device}"));
        client.ok(&format!("create m{device} {} {device}", 2 * MIB));
    }
    client
}

fn used(client: &Client<'_>) -> [u64; 2] {
    [0, 1].map(|device| client.used_on(device))
}

#[test]
fn the_object_is_charged_nothing_and_its_memory_once() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = team(&bed);
    assert_eq!(used(&client), [2 * MIB; 2]);
    for device in 0..2 {
        client.ok(&format!("bind t 0 m{device} {}", 2 * MIB));
        client.ok(&format!("release m{device}"));
    }
    assert_eq!(used(&client), [2 * MIB; 2], "the bindings keep it");
    client.ok(&format!("unbind t 0 0 {}", 2 * MIB));
    assert_eq!(used(&client), [0, 2 * MIB]);
    client.ok("release t");
    assert_eq!(
        used(&client),
        [0; 2],
        "the object's end is its bindings' end"
    );
}

#[test]
fn a_mapping_keeps_the_object_and_what_is_bound() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = team(&bed);
    client.ok(&format!("reserve va {}", 16 * MIB));
    client.ok(&format!("map va 0 {} m1", 2 * MIB));
    client.ok(&format!("bind-at t 0 va 0 {}", 2 * MIB));
    client.ok(&format!("unmap va 0 {}", 2 * MIB));
    client.ok("release m1");
    client.ok(&format!("map va {} {} t", 8 * MIB, 4 * MIB));
    client.ok("release t");
    assert_eq!(used(&client), [2 * MIB; 2]);
    let imported = |client: &Client<'_>| client.process().devices[0].counters.imported_bytes;
    assert_eq!(imported(&client), 0, "the object is our own");
    client.ok(&format!("unmap va 0 {}", 16 * MIB));
    assert_eq!(used(&client), [2 * MIB, 0], "holes and all");
}

#[test]
fn a_binding_the_driver_refuses_keeps_nothing() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = team(&bed);
    assert_ne!(
        client.code(&format!("bind t {} m0 {}", 8 * MIB, 2 * MIB)),
        0
    );
    client.ok("release m0");
    assert_eq!(used(&client), [0, 2 * MIB]);
}

#[test]
fn a_binding_for_a_device_is_known_by_that_device() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("multicast t 1 4096");
    client.ok("create m 4096 0");
    client.ok("bind-for t 0 m 4096 0");
    client.ok("release m");
    assert_eq!(client.used(), 4096);
    client.ok("unbind t 0 0 4096");
    assert_eq!(client.used(), 0);
}
