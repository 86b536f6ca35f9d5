//! Batched copies and copies with attributes, each counted with its bytes.

use gpushare_testbed::{Testbed, eventually};

use crate::client::{Client, MIB, PATIENCE};

/// Waits until the segment shows this many copies and bytes; the keeper publishes them.
fn counted(client: &Client<'_>, copies: u64, bytes: u64) {
    eventually("the copies are counted", PATIENCE, || {
        let counters = client.process().devices[0].counters;
        assert!(
            counters.copies <= copies && counters.copy_bytes <= bytes,
            "{counters:?}"
        );
        (counters.copies, counters.copy_bytes) == (copies, bytes)
    });
}

#[test]
fn a_batch_counts_each_of_its_copies() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("alloc a 8192");
    client.ok("alloc b 8192");
    client.ok("copy-batch a b 1000 s");
    counted(&client, 2, 1500);
    client.ok("array3d c 8 8 8 0x20 2 0");
    client.ok("copy-blocks a b c s");
    counted(&client, 4, 1500 + 24 * 8 + 24);
}

#[test]
fn a_copy_to_the_host_ends_a_step_and_no_other_copy_does() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("alloc a 4096");
    let steps = |client: &Client<'_>| client.process().devices[0].lock.steps.count();
    client.ok("scribble a 4096 1");
    counted(&client, 1, 4096);
    assert_eq!(steps(&client), 0, "it copied to the device");
    client.ok("read a 1024");
    assert_eq!(steps(&client), 2, "it copied the first and the last word");
}

#[test]
fn a_batch_of_prefetches_counts_what_it_moves() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok(&format!("managed m {}", 4 * MIB));
    client.ok(&format!("prefetch-batch m {} s", 2 * MIB));
    counted(&client, 2, 4 * MIB);
    client.ok(&format!("discard-batch m {} s", 2 * MIB));
    counted(&client, 4, 4 * MIB);
    client.ok(&format!("renew-batch m {} s", 2 * MIB));
    counted(&client, 6, 8 * MIB);
}

#[test]
fn copies_with_attributes_are_counted() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("stream s");
    client.ok("alloc a 8192");
    client.ok("alloc b 8192");
    client.ok("copy-attributes a b 700 s");
    counted(&client, 1, 700);
    client.ok("copy-block a b a s");
    counted(&client, 2, 700 + 24 * 4);
}

#[test]
fn copies_over_a_fabric_are_counted_and_take_their_turn() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[("GPUSHARE_POLICY", "always")]);
    client.ok("stream s");
    client.ok("alloc a 8192");
    client.ok("alloc b 8192");
    client.ok("copy-fabric a b 900 s");
    counted(&client, 2, 900);
    assert!(client.process().devices[0].lock.acquisitions > 0);
}

#[test]
fn batches_take_their_turn() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_POLICY", "always")]);
    client.ok("stream s");
    client.ok("alloc a 8192");
    client.ok("alloc b 8192");
    let acquired = |client: &Client<'_>| client.process().devices[0].lock.acquisitions;
    assert_eq!(acquired(&client), 0);
    client.ok("copy-batch a b 1000 s");
    assert!(acquired(&client) > 0);
}
