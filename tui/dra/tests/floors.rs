//! Imports of this crate point down the floors that its `lib.rs` lists.

#[test]
fn imports_point_down() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
