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
//! A house.
//!
//! # Floors
//!
//! ```text
//! high   top              what people see
//! low    left, right
//! ```

pub use left::Left;
pub const ROOM: usize = 1;
mod left;
mod right;
mod top;
";

fn house(left: &str, right: &str, top: &str) -> Vec<String> {
    faults_of(&[
        ("lib.rs", ROOT),
        ("left.rs", left),
        ("right.rs", right),
        ("top.rs", top),
    ])
}

#[test]
fn a_module_may_use_what_stands_below() {
    let top = "use crate::{left::Left, right::{self, Right}};\nfn top() { crate::right::go() }";
    assert_eq!(house("pub struct Left;", "", top), [""; 0]);
}

#[test]
fn the_line_that_climbs_is_named() {
    let left = "// crate::top\nfn left() {\n    let a = \"crate::top\";\n    crate::top::go(a)\n}";
    let wanted = "src/left.rs:4: `crate::top::go` climbs from low to high";
    assert_eq!(house(left, "", ""), [wanted]);
    let left = "use crate::{\n    right,\n    top::{self},\n};";
    let beside = "src/left.rs:2: `crate::right` leads from left to right on the same floor, low";
    let climbs = "src/left.rs:3: `crate::top` climbs from low to high";
    assert_eq!(house(left, "", ""), [beside, climbs]);
}

#[test]
fn nothing_uses_what_only_the_root_declares() {
    let top = "use crate::ROOM;\nuse crate::Left;";
    let wanted = "src/top.rs:1: `crate::ROOM` climbs from high to the crate's root";
    assert_eq!(house("pub struct Left;", "", top), [wanted]);
}

#[test]
fn a_name_that_is_passed_on_leads_to_who_declares_it() {
    let right = "use crate::Left;";
    let wanted = "src/right.rs:1: `crate::Left` leads from right to left on the same floor, low";
    assert_eq!(house("pub struct Left;", right, ""), [wanted]);
}

#[test]
fn tests_may_use_everything() {
    let left = "#[cfg(test)]\nmod tests {\n    use crate::top;\n}\n#[cfg(test)]\nfn test<A, B>() { crate::top::go() }";
    assert_eq!(house(left, "", ""), [""; 0]);
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
    let wanted = "src/left.rs:2: `crate::top::size` climbs from low to high";
    assert_eq!(house(left, "", ""), [wanted]);
    let left = "#[derive(Debug)]\n#[cfg(test)]\n#[arg(crate::top::size)]\nfn test() {}";
    assert_eq!(house(left, "", ""), [""; 0]);
}

#[test]
fn files_of_one_module_do_not_use_each_other_in_a_circle() {
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
    let circle = [
        "src/top/first.rs:1: `super::Second` is part of a circle of files",
        "src/top/second.rs:1: `super::first::go` is part of a circle of files",
    ];
    assert_eq!(faults_of(&files("use super::first::go;")), circle);
}

#[test]
fn a_module_within_a_file_counts_as_that_file() {
    let left = "mod inner {\n    use super::Left;\n    use super::super::top;\n}";
    let wanted = "src/left.rs:3: `self::super::top` climbs from low to high";
    assert_eq!(house(left, "", ""), [wanted]);
}

#[test]
fn the_list_and_the_modules_are_the_same() {
    let files = [
        ("lib.rs", ROOT),
        ("left.rs", ""),
        ("attic.rs", ""),
        ("top.rs", ""),
    ];
    let wanted = [
        "src/lib.rs: no floor lists the module attic",
        "src/lib.rs: there is no module right",
    ];
    assert_eq!(faults_of(&files), wanted);
}

#[test]
fn a_crate_without_a_list_is_one_module() {
    let lib = (
        "lib.rs",
        "//! A house.\nmod left;\nmod right;\npub fn door() {}",
    );
    let right = ("right.rs", "use crate::door;");
    let left = ("left.rs", "use crate::right;");
    assert_eq!(faults_of(&[lib, left, right]), [""; 0]);
    let back = ("right.rs", "use crate::left;");
    assert_eq!(faults_of(&[lib, left, back]).len(), 2);
}
