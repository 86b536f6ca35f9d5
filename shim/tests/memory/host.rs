use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

fn pinned(client: &Client<'_>) -> u64 {
    client.process().devices[0].counters.host_pinned_bytes
}

#[test]
fn pinned_host_memory_is_counted_and_never_against_the_quota() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    client.ok(&format!("host a {MIB}"));
    client.ok(&format!("host-flags b {}", 2 * MIB));
    client.ok(&format!("register c {}", 4 * MIB));
    assert_eq!((pinned(&client), client.used()), (7 * MIB, 0));
    client.ok("host-free a");
    client.ok("unregister c");
    assert_eq!(pinned(&client), 2 * MIB);
    assert_ne!(client.code("host-free a"), 0);
    client.ok("host-free b");
    assert_eq!(pinned(&client), 0);
}
