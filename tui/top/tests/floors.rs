//! The imports between the files of this crate, which have no cycle.

#[test]
fn imports_point_down() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
