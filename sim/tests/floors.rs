//! The order of imports in this crate: they point down the layers that its `lib.rs` lists.

#[test]
fn imports_point_down() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
