use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

#[test]
fn released_memory_stays_charged_while_it_is_mapped() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 0", 4 * MIB));
    assert_eq!(client.used(), 4 * MIB);
    client.ok(&format!("reserve va {}", 16 * MIB));
    client.ok(&format!("map va 0 {} h", 4 * MIB));
    client.ok("release h");
    assert_eq!(client.used(), 4 * MIB, "the mapping keeps it");
    client.ok(&format!("unmap va 0 {}", 4 * MIB));
    assert_eq!(client.used(), 0);
}

#[test]
fn unmapped_memory_stays_charged_while_a_handle_names_it() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 0", 2 * MIB));
    client.ok(&format!("reserve va {}", 2 * MIB));
    client.ok(&format!("map va 0 {} h", 2 * MIB));
    client.ok(&format!("retain again va {}", MIB));
    client.ok(&format!("unmap va 0 {}", 2 * MIB));
    client.ok("release h");
    assert_eq!(client.used(), 2 * MIB, "the retained handle keeps it");
    client.ok("release again");
    assert_eq!(client.used(), 0);
}

#[test]
fn a_segment_that_grows_piece_by_piece_is_charged_piece_by_piece() {
    // The pattern of PyTorch's expandable segments: one reservation, pieces created, mapped, released at once.
    let bed = Testbed::new();
    let quota = (6 * MIB).to_string();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", &quota)]);
    client.ok(&format!("reserve va {}", 64 * MIB));
    for piece in 0..3 {
        client.ok(&format!("create h {} 0", 2 * MIB));
        client.ok(&format!("map va {} {} h", piece * 2 * MIB, 2 * MIB));
        client.ok("release h");
    }
    client.denied(&format!("create h {} 0", 2 * MIB));
    client.ok(&format!("unmap va {} {}", 2 * MIB, 4 * MIB));
    assert_eq!(client.used(), 2 * MIB, "two mappings in one range");
    client.ok(&format!("create h {} 0", 2 * MIB));
    client.ok("release h");
    assert_eq!(client.used(), 2 * MIB);
}

#[test]
fn memory_is_charged_to_the_device_it_is_on() {
    let bed = Testbed::with_scenario("two-gpus");
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("create h {} 1", 2 * MIB));
    assert_eq!((client.used_on(0), client.used_on(1)), (0, 2 * MIB));
}
