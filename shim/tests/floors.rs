#[test]
fn no_import_climbs() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
