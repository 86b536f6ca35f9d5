//! The functions from before CUDA 3.2, which drivers still export: addresses and sizes of 32 bits.

use gpushare_testbed::{Testbed, eventually};

use crate::client::{Client, PATIENCE};

#[test]
fn memory_of_the_32_bit_calls_is_charged_and_given_back() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[("GPUSHARE_MEMORY", "100000")]);
    client.ok("old-alloc a 5000");
    assert_eq!(client.ok("old-pitch b 700 10"), [768]);
    client.ok("old-array c 100 10 0x20 2");
    assert_eq!(client.used(), 5000 + 7680 + 8000);
    assert_eq!(
        client.ok("old-info"),
        [100_000 - 20_680, 100_000, 14],
        "32 bits are written and no more"
    );
    client.denied("old-alloc d 90000");
    client.ok("old-free a");
    client.ok("old-free b");
    client.ok("array-destroy c");
    assert_eq!(client.used(), 0);
}

#[test]
fn copies_of_the_32_bit_calls_are_counted() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("old-alloc a 4096");
    client.ok("old-copies a");
    eventually("three copies and a memset are published", PATIENCE, || {
        let counters = client.process().devices[0].counters;
        (counters.copies, counters.copy_bytes, counters.memsets) == (4, 4 + 4 + 4 + 30, 1)
    });
}
