//! The files of this crate use each other in no circle.

#[test]
fn imports_point_down() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
