//! The order of imports in this crate: they point down the layers that its `lib.rs` lists.

#[test]
fn no_import_climbs() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
