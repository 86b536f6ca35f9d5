//! Lookups of driver functions: every way leads to the library's function, and nothing else changes. The programs in `apps`
//! print which library defines the function that they found. The driver does nothing; see `apps/noop_driver.c`.

mod bench;
mod errno;
mod owners;
mod preloads;
mod requests;

use std::{fs, path::Path};

use bench::{BY_DLSYM, Bench, Target, app};
use gpushare_testbed::{Need, cc, needs};

#[test]
fn dlsym_on_a_handle_finds_ours_and_leaves_the_rest() {
    assert_eq!(Bench::new().says("by_dlsym.c", &[], &[]), BY_DLSYM);
}

#[test]
fn pseudo_handles_see_the_driver_only_once_it_is_there() {
    assert_eq!(
        Bench::new().says("by_dlvsym.c", &[], &[]),
        [
            "default before null",
            "next before null",
            "self before null",
            "error libc's",
            "default after a local open null",
            "default ours",
            "next ours",
            "self ours",
            "dlvsym null",
            "dlvsym of libc found",
            "dlsym by dlsym ours",
        ]
    );
}

const BY_PROC_ADDRESS: [&str; 12] = [
    "look ours",
    "cuInit ours status 0",
    "cuDriverGetVersion driver",
    "cuMemAlloc ours as by dlsym",
    "its first form ours",
    "its next form ours",
    "per-thread ours as by dlsym",
    "legacy ours as by dlsym",
    "cuNoSuch null status 1",
    "v2 of itself ours",
    "v1 of itself ours",
    "cuMemFree by v1 ours",
];

#[test]
fn get_proc_address_answers_as_dlsym_does() {
    assert_eq!(
        Bench::new().says("by_proc_address.c", &[], &[]),
        BY_PROC_ADDRESS
    );
}

#[test]
fn get_proc_address_is_followed_through_doors_of_its_own() {
    let bench = Bench::new();
    bench.install("noop_driver.c", "libcuda.so.1", &["-DOTHER_DOORS"]);
    assert_eq!(bench.says("by_proc_address.c", &[], &[]), BY_PROC_ADDRESS);
}

#[test]
fn a_linked_driver_is_reached_through_us() {
    let driver = Target::native().library("noop_driver.c", "libcuda.so.1", &[]);
    let link = driver.to_str().expect("a plain path");
    assert_eq!(
        Bench::new().says("linked.c", &[link], &[]),
        [
            "cuInit ours 0",
            "cuMemAlloc_v2 ours 0",
            "address given",
            "cuDriverGetVersion driver 0",
            "default ours",
            "next ours",
        ]
    );
}

#[test]
fn sixteen_threads_may_ask_first() {
    for _ in 0..10 {
        assert_eq!(Bench::new().says("racing.c", &[], &[]), ["16 of 16"]);
    }
}

#[test]
fn a_plugin_sees_what_it_was_linked_with_and_its_host_does_not() {
    let bench = Bench::new();
    let driver = Target::native().library("noop_driver.c", "libcuda.so.1", &[]);
    let driver = driver.to_str().expect("a plain path");
    let plugin = cc(
        &app("plugin.c"),
        "plugin.so",
        &["-shared", "-fPIC", "-w", driver],
    );
    for mode in ["local", "deepbind"] {
        assert_eq!(
            bench.says("host.c", &[], &[&plugin, Path::new(mode)]),
            ["asks ours", "calls ours", "host asks null"],
            "{mode}"
        );
    }
}

#[test]
fn a_driver_that_loads_another_one_is_asked_once() {
    let bench = Bench::new();
    bench.install("noop_driver.c", "libcuda_inner.so.1", &[]);
    bench.install("loader_driver.c", "libcuda.so.1", &[]);
    assert_eq!(
        bench.says("over_loader.c", &[], &[]),
        ["init ours 0", "alloc ours 0 given", "calls 2"]
    );
}

#[test]
fn a_driver_opened_by_its_whole_path_is_reached_through_us() {
    let driver = Target::native().library("noop_driver.c", "libcuda.so.1", &[]);
    assert_eq!(
        Bench::new().says("by_path.c", &[], &[&driver]),
        ["once ours again ours calls 0"]
    );
}

#[test]
fn a_driver_that_was_closed_and_opened_again_still_works() {
    assert_eq!(
        Bench::new().says("reopening.c", &[], &[]),
        ["first 0", "closed 0", "again ours 0"]
    );
}

#[test]
fn a_launch_can_be_looked_at_from_within() {
    let line = "answer 999 main seen nested 0 again 0";
    let said = Bench::new().says("unwinding.c", &["-rdynamic"], &[]);
    assert_eq!(said, [line, line, line]);
}

#[test]
fn a_call_may_be_left_by_an_exception_or_by_the_end_of_its_thread() {
    if !needs(Need::Tool("c++")) {
        return;
    }
    let said = Bench::new().says("leaves_by_unwinding.cpp", &["-lstdc++"], &[]);
    assert_eq!(said, ["wrong 0 0, ended 4, kept 0, then 0"]);
}

#[test]
fn a_call_may_be_left_by_a_longjmp() {
    let said = Bench::new().says("leaves_by_longjmp.c", &[], &[]);
    assert_eq!(said, ["wrong 0, nested 2, then 0"]);
}

#[test]
fn a_process_without_a_driver_notices_nothing() {
    let bench = Bench::new();
    let output = bench
        .command(Path::new("/bin/sh"), &[])
        .args(["-c", "echo fine"])
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let left = fs::read_dir(bench.segments())
        .expect("the directory")
        .count();
    assert_eq!(left, 0, "it left a trace");
}
