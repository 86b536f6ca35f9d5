use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

#[test]
fn a_destroyed_context_gives_back_what_it_held() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("alloc kept 512");
    client.ok("context c 0");
    client.ok(&format!("alloc a {MIB}"));
    client.ok("array x 64 64 1 4");
    client.ok(&format!("host h {MIB}"));
    assert_eq!(client.used(), 512 + MIB + 64 * 64 * 4);
    client.ok("context-destroy c");
    assert_eq!(client.used(), 512);
    assert_eq!(client.process().devices[0].counters.host_pinned_bytes, 0);
    client.ok("device 0");
    client.ok("free kept");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_reset_primary_context_gives_back_what_it_held() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("alloc a 4096");
    client.ok("device-reset 0");
    assert_eq!(client.used(), 0);
}

#[test]
fn the_last_release_of_a_primary_context_gives_back_what_it_held() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("device 0");
    client.ok("alloc a 4096");
    client.ok("device-release 0");
    assert_eq!(client.used(), 4096, "retained twice");
    client.ok("device-release 0");
    assert_eq!(client.used(), 0);
}

#[test]
fn what_a_green_context_allocates_goes_with_the_primary_one() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("green g c");
    client.ok("alloc a 4096");
    assert_eq!(client.used(), 4096);
    client.ok("green-destroy g");
    assert_eq!(client.used(), 4096, "its memory is the primary one's");
    client.ok("device-reset 0");
    assert_eq!(client.used(), 0);
}

#[test]
fn the_last_green_context_takes_the_primary_one_along() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("green g c");
    client.ok("alloc a 4096");
    client.ok("device-release 0");
    assert_eq!(client.used(), 4096, "the green context keeps it");
    client.ok("green-destroy g");
    assert_eq!(client.used(), 0);
}
