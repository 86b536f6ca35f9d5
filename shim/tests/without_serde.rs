//! The preload library is built without serde. Only the tools enable it in `shm-layout`; a build of the library alone, as it is
//! shipped, does not.

use std::process::Command;

use gpushare_testbed::target_dir;

#[test]
fn the_library_built_alone_carries_no_serde() {
    // A separate target directory, because a build of the whole workspace enables the features that any crate asks for.
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
