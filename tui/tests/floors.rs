//! The order of imports, which point down the layers in `lib.rs`, and the size of `src`.

/// Counts the entries of `src` beside `lib.rs` and `bin`; a module and its folder count as one.
#[test]
fn the_source_has_at_most_twelve_entries() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let entries = std::fs::read_dir(source).expect("our own source");
    let names = entries.map(|entry| entry.expect("an entry").path());
    let stems = names.filter_map(|path| Some(path.file_stem()?.to_owned()));
    let modules: std::collections::BTreeSet<_> = stems
        .filter(|stem| stem != "lib" && stem != "bin")
        .collect();
    assert!(modules.len() <= 12, "{modules:?}");
}

#[test]
fn imports_point_down() {
    gpushare_testbed::floors::check(env!("CARGO_MANIFEST_DIR"));
}
