use gpushare_testbed::Testbed;

use crate::client::Client;

const U8: u32 = 0x01;
const HALF: u32 = 0x10;
const FLOAT: u32 = 0x20;
const LAYERED: u32 = 1;
const CUBEMAP: u32 = 4;

#[test]
fn arrays_are_charged_by_their_shape() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    for (command, bytes) in [
        (format!("array x 1001 0 {FLOAT} 4"), 1001 * 16),
        (format!("array x 101 33 {HALF} 2"), 101 * 33 * 4),
        (format!("array3d x 65 0 0 {U8} 1 0"), 65),
        (format!("array3d x 65 17 0 {U8} 4 0"), 65 * 17 * 4),
        (format!("array3d x 33 17 9 {FLOAT} 2 0"), 33 * 17 * 9 * 8),
        (format!("array3d x 33 0 5 {FLOAT} 1 {LAYERED}"), 33 * 5 * 4),
        (
            format!("array3d x 32 32 6 {FLOAT} 1 {CUBEMAP}"),
            32 * 32 * 6 * 4,
        ),
    ] {
        client.ok(&command);
        assert_eq!(client.used(), bytes, "{command}");
        client.ok("array-destroy x");
        assert_eq!(client.used(), 0, "{command}");
    }
}

#[test]
fn mip_levels_are_charged_all_together() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[]);
    client.ok(&format!("mipmapped x 64 16 0 {FLOAT} 1 0 7"));
    let texels: u64 = (0..7)
        .map(|level| (64 >> level) * (16_u64 >> level).max(1))
        .sum();
    assert_eq!(client.used(), texels * 4);
    client.ok("mipmapped-destroy x");
    assert_eq!(client.used(), 0);
}

#[test]
fn an_array_over_quota_is_denied() {
    let bed = Testbed::new();
    let mut client = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    client.ok(&format!("array x 32 32 {FLOAT} 1"));
    client.denied(&format!("array y 1 0 {U8} 1"));
    client.ok("array-destroy x");
    client.ok(&format!("array y 1 0 {U8} 1"));
    assert_eq!(client.used(), 1);
}
