use gpushare_testbed::Testbed;

use crate::client::Client;

#[test]
fn a_graphs_allocation_is_charged_until_graph_and_executable_are_gone() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    client.ok("graph g");
    client.ok("graph-alloc n g 3000");
    assert_eq!(client.used(), 3000);
    client.denied("graph-alloc m g 3000");
    client.ok("graph-instantiate x g");
    client.ok("graph-destroy g");
    assert_eq!(client.used(), 3000, "the executable will need it");
    client.ok("graph-exec-destroy x");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_captured_allocation_belongs_to_the_graph() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok("stream s");
    client.ok("capture s");
    client.ok("capture-alloc a 5000 s");
    client.ok("capture-free a s");
    client.ok("capture-end s g");
    assert_eq!(client.used(), 5000, "each launch allocates it anew");
    client.ok("graph-destroy g");
    assert_eq!(client.used(), 0);
}
