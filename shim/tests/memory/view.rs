use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

#[test]
fn without_a_quota_the_driver_speaks_for_itself() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    let before = client.ok("info");
    client.ok(&format!("alloc a {MIB}"));
    let after = client.ok("info");
    assert_eq!(before[1], after[1]);
    assert!(before[0] - after[0] >= MIB);
    assert!(client.ok("total 0")[0] >= after[1]);
}

#[test]
fn what_the_process_sees_is_its_quota() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    assert_eq!(client.ok("info"), [8 * MIB, 8 * MIB]);
    assert_eq!(client.ok("total 0"), [8 * MIB]);
    client.ok(&format!("alloc a {}", 3 * MIB));
    assert_eq!(client.ok("info"), [5 * MIB, 8 * MIB]);
    client.ok("free a");
    assert_eq!(client.ok("info"), [8 * MIB, 8 * MIB]);
}

#[test]
fn null_arguments_are_the_drivers_to_judge() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    client.code("info-null");
    let (code, words) = client.ask("info-free");
    assert!(
        code != 0 || words == [(8 * MIB).to_string()],
        "{code} {words:?}"
    );
    assert_eq!(client.ok("info"), [8 * MIB, 8 * MIB]);
}

#[test]
fn a_quota_larger_than_the_device_changes_nothing() {
    let bed = Testbed::new();
    let plain = Client::start(&bed, &[]).ok("info");
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4TiB")]);
    assert_eq!(client.ok("info")[1], plain[1]);
    client.denied("alloc a 2199023255552");
    assert_eq!(client.used(), 0);
}

#[test]
fn nvml_agrees_with_the_quota_unless_it_is_told_not_to() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "8MiB")]);
    client.ok(&format!("alloc a {MIB}"));
    let [total, free, used, total_v2, reserved, free_v2, used_v2] = client.ok("nvml 0")[..] else {
        panic!("seven numbers")
    };
    assert_eq!((total, free, used), (8 * MIB, 7 * MIB, MIB));
    assert_eq!((total_v2, free_v2, used_v2), (8 * MIB, 7 * MIB, MIB));
    assert!(reserved + free_v2 + used_v2 <= total_v2);
    assert!(client.ok("nvml 1")[0] >= 8 * MIB);

    let mut client = Client::start(
        &bed,
        &[("GPUSHARE_MEMORY", "8MiB"), ("GPUSHARE_NVML_VIEW", "0")],
    );
    assert!(client.ok("nvml 0")[0] > 8 * MIB);
    let mut client = Client::start(&bed, &[]);
    assert!(client.ok("nvml 0")[0] > 8 * MIB);
}
