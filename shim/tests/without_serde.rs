//! The library in other people's processes has no serde. Only the tools ask `shm-layout` for it; a build of the library
//! alone, which is the one to ship, does not have it.

use std::process::Command;

use gpushare_testbed::target_dir;

#[test]
fn the_library_built_alone_carries_no_serde() {
    // A directory of its own: a build of the whole workspace gives all of it the features that any of it asks for.
    let directory = target_dir().join("library-alone");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "gpushare-shim",
            "--target-dir",
        ])
        .arg(&directory)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo starts");
    assert!(status.success(), "the library does not build alone");
    let library = std::fs::read(directory.join("debug/libgpushare.so")).expect("the library");
    let has = |text: &[u8]| library.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"shm_layout"), "what is linked is told by its names");
    assert!(!has(b"serde"), "something of the tools is linked");
}
