use gpushare_testbed::Testbed;

use crate::client::{Client, MIB};

#[test]
fn anothers_memory_is_shown_as_imported_and_charged_once() {
    let bed = Testbed::new();
    let mut maker = Client::start(&bed, &[]);
    let mut user = Client::start(&bed, &[("GPUSHARE_MEMORY", "4096")]);
    maker.ok(&format!("alloc a {MIB}"));
    let (code, words) = maker.ask("ipc-get a");
    assert_eq!(code, 0);
    user.ok(&format!("ipc-open b {}", words[0]));
    assert_eq!((maker.used(), user.used()), (MIB, 0));
    assert_eq!(user.process().devices[0].counters.imported_bytes, MIB);
    user.ok("ipc-close b");
    assert_eq!(user.process().devices[0].counters.imported_bytes, 0);
    assert_eq!(maker.used(), MIB);
}
