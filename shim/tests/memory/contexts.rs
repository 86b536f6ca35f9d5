use gpushare_testbed::Testbed;
use shm_layout::QuotaValue;

use crate::client::{Client, GIB, MIB};
use crate::quota::set_quota;

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

/// Number of the simulated device's threads: each additional byte of stack is a byte for each thread.
const THREADS: u64 = 132 * 2048;

#[test]
fn deep_stacks_and_a_large_heap_are_charged_and_given_back() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    let free = |client: &mut Client<'_>| client.ok("info")[0];
    client.ok("context c 0");
    let before = free(&mut client);
    client.ok("call cuCtxSetLimit 0 4096");
    assert_eq!(client.used(), 3072 * THREADS);
    assert_eq!(
        before - free(&mut client),
        3072 * THREADS,
        "as the driver does"
    );
    client.ok("call cuCtxSetLimit 0 2048");
    assert_eq!(client.used(), 1024 * THREADS);
    client.ok(&format!("call cuCtxSetLimit 2 {GIB}"));
    assert_eq!(client.used(), 1024 * THREADS + GIB - 8 * MIB);
    client.ok("call cuCtxSetLimit 0 512");
    assert_eq!(client.used(), GIB - 8 * MIB);
    client.ok("call cuCtxSetLimit 1 65536");
    assert_eq!(
        client.used(),
        GIB - 8 * MIB,
        "a buffer for printf is not known to take any"
    );
    client.ok("call cuCtxSetLimit 0 2048");
    client.ok("context-destroy c");
    assert_eq!(client.used(), 0);
}

#[test]
fn stacks_that_exceed_the_quota_are_refused_and_leave_the_limit_as_it_was() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "1GiB")]);
    client.ok("call cuCtxSetLimit 0 2048");
    client.denied("call cuCtxSetLimit 0 65536");
    assert_eq!(client.used(), 1024 * THREADS);
    assert_eq!(client.process().devices[0].counters.denials, 1);
    client.ok("call cuCtxSetLimit 0 3072");
    assert_eq!(client.used(), 2048 * THREADS, "the difference fits");
    set_quota(&bed, &client, QuotaValue::Bytes(MIB));
    client.denied("call cuCtxSetLimit 0 4096");
    client.ok("call cuCtxSetLimit 0 2048");
    assert_eq!(
        client.used(),
        1024 * THREADS,
        "though that is over its quota still"
    );
    client.ok("device-reset 0");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_heap_is_charged_as_large_as_the_driver_makes_it() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok(&format!("call cuCtxSetLimit 2 {}", 500 * GIB));
    assert_eq!(client.used(), (64 - 8) * MIB);
    client.ok(&format!("call cuCtxSetLimit 2 {}", 16 * MIB));
    assert_eq!(client.used(), 8 * MIB);
}

#[test]
fn a_detached_context_gives_back_what_it_held_at_its_last_reference() {
    let bed = Testbed::new();
    let mut client = Client::start_on_odd_driver(&bed, &[]);
    client.ok("alloc a 4096");
    client.ok("context-attach c");
    client.ok("context-detach c");
    assert_eq!(client.used(), 4096, "it was attached once more");
    client.ok("context-detach c");
    assert_eq!(client.used(), 0);
}
