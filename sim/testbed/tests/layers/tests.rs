use super::*;

/// Checks a crate with these files; the first is `lib.rs`.
fn faults_of(files: &[(&str, &str)]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    faults(dir.path())
}

const ROOT: &str = "\
//! A crate.
//!
//! # Layers
//!
//! ```text
//! high   top              what people see
//! low    left, right
//! ```

pub use left::Left;
pub const SIZE: usize = 1;
mod left;
mod right;
mod top;
";

fn layered(left: &str, right: &str, top: &str) -> Vec<String> {
    faults_of(&[
        ("lib.rs", ROOT),
        ("left.rs", left),
        ("right.rs", right),
        ("top.rs", top),
    ])
}

#[test]
fn a_module_may_use_lower_layers() {
    let top = "use crate::{left::Left, right::{self, Right}};\nfn top() { crate::right::go() }";
    assert_eq!(layered("pub struct Left;", "", top), [""; 0]);
}

#[test]
fn a_line_that_imports_from_a_higher_layer_is_named() {
    let left = "// crate::top\nfn left() {\n    let a = \"crate::top\";\n    crate::top::go(a)\n}";
    let wanted = "src/left.rs:4: `crate::top::go` points up from low to high";
    assert_eq!(layered(left, "", ""), [wanted]);
    let left = "use crate::{\n    right,\n    top::{self},\n};";
    let beside = "src/left.rs:2: `crate::right` points from left to right in the same layer, low";
    let up = "src/left.rs:3: `crate::top` points up from low to high";
    assert_eq!(layered(left, "", ""), [beside, up]);
}

#[test]
fn a_module_may_not_use_what_only_the_root_declares() {
    let top = "use crate::SIZE;\nuse crate::Left;";
    let wanted = "src/top.rs:1: `crate::SIZE` points up from high to the crate's root";
    assert_eq!(layered("pub struct Left;", "", top), [wanted]);
}

#[test]
fn a_reexported_name_counts_as_its_declaration() {
    let right = "use crate::Left;";
    let wanted = "src/right.rs:1: `crate::Left` points from right to left in the same layer, low";
    assert_eq!(layered("pub struct Left;", right, ""), [wanted]);
}

#[test]
fn tests_may_use_everything() {
    let left = "#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n#[cfg(test)]\nfn test<A, B>() { crate::top::go() }";
    assert_eq!(layered(left, "", ""), [""; 0]);
    let files = [
        ("lib.rs", ROOT),
        ("left.rs", "#[cfg(test)]\nmod tests;"),
        ("left/tests.rs", "use crate::top;"),
        ("right.rs", ""),
        ("top.rs", ""),
    ];
    assert_eq!(faults_of(&files), [""; 0]);
}

#[test]
fn an_attribute_uses_what_it_names() {
    let left = "struct Left {\n    #[arg(value_parser = crate::top::size, default_value = \"1\")]\n    size: u32,\n}";
    let wanted = "src/left.rs:2: `crate::top::size` points up from low to high";
    assert_eq!(layered(left, "", ""), [wanted]);
    let left = "#[derive(Debug)]\n#[cfg(test)]\n#[arg(crate::top::size)]\nfn test() {}";
    assert_eq!(layered(left, "", ""), [""; 0]);
}

#[test]
fn files_of_one_module_have_no_import_cycle() {
    let files = |second: &'static str| {
        [
            ("lib.rs", ROOT),
            ("left.rs", ""),
            ("right.rs", ""),
            (
                "top.rs",
                "mod first;\nmod second;\npub use second::Second;\nfn top() { first::go() }",
            ),
            ("top/first.rs", "use super::Second;"),
            ("top/second.rs", second),
        ]
    };
    assert_eq!(faults_of(&files("use super::top;")), [""; 0]);
    let cycle = [
        "src/top/first.rs:1: `super::Second` is part of an import cycle",
        "src/top/second.rs:1: `super::first::go` is part of an import cycle",
    ];
    assert_eq!(faults_of(&files("use super::first::go;")), cycle);
}

#[test]
fn a_module_within_a_file_counts_as_that_file() {
    let left = "mod inner {\n    use super::Left;\n    use super::super::top;\n}";
    let wanted = "src/left.rs:3: `self::super::top` points up from low to high";
    assert_eq!(layered(left, "", ""), [wanted]);
}

#[test]
fn the_list_and_the_modules_are_the_same() {
    let files = [
        ("lib.rs", ROOT),
        ("left.rs", ""),
        ("extra.rs", ""),
        ("top.rs", ""),
    ];
    let wanted = [
        "src/lib.rs: no layer lists the module extra",
        "src/lib.rs: there is no module right",
    ];
    assert_eq!(faults_of(&files), wanted);
}

#[test]
fn a_crate_without_a_list_is_one_module() {
    let lib = (
        "lib.rs",
        "//! A crate.\nmod left;\nmod right;\npub fn open() {}",
    );
    let right = ("right.rs", "use crate::open;");
    let left = ("left.rs", "use crate::right;");
    assert_eq!(faults_of(&[lib, left, right]), [""; 0]);
    let back = ("right.rs", "use crate::left;");
    assert_eq!(faults_of(&[lib, left, back]).len(), 2);
}
