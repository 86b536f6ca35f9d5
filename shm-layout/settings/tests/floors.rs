//! Imports point down the layers that `src/lib.rs` lists.

#[test]
fn imports_point_down() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
