//! No export is brought down by zeros.

use std::ffi::c_void;
use std::process::Command;

use gpushare_testbed::Testbed;

use crate::client::{call_at, context, in_a_process, symbol};

/// Every function the library exports, from its own symbol table.
fn names() -> Vec<String> {
    let library = gpushare_testbed::artifact("libcuda.so");
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library)
        .output();
    let output = output.expect("binutils are there where Rust links");
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    let last = text
        .lines()
        .filter_map(|line| line.split_whitespace().next_back());
    let names: Vec<_> = last
        .filter(|name| name.starts_with("cu"))
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 600, "{}", names.len());
    names
}

fn all_with_zeros() {
    for name in names() {
        let address: *const c_void = symbol(&name).expect("exported");
        // Whatever it answers, it answers.
        call_at(address, &[]);
    }
}

fn run(test: &str) {
    let testbed = Testbed::new();
    let output = in_a_process(&testbed, test).output().expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn zeros_before_cu_init_are_errors() {
    run("nulls::child_without_init");
}

#[test]
fn zeros_without_a_context_are_errors() {
    run("nulls::child_without_a_context");
}

#[test]
fn zeros_with_a_context_are_errors() {
    run("nulls::child_with_a_context");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_without_init() {
    for name in names().iter().filter(|name| *name != "cuInit") {
        call_at(symbol(name).expect("exported"), &[]);
    }
}

#[test]
#[ignore = "run in a process of its own"]
fn child_without_a_context() {
    crate::ok!(cuInit(0));
    all_with_zeros();
}

#[test]
#[ignore = "run in a process of its own"]
fn child_with_a_context() {
    context();
    all_with_zeros();
    context();
}
