//! Programs that export a hooked name themselves. The linker finds the program's function first; lookups must still reach the
//! library's.

use std::path::Path;

use gpushare_testbed::Watched;

use crate::bench::{Bench, Target, lines, text};

/// A hooked name, its name for `cuGetProcAddress`, its library, and its arguments.
const NAMES: [[&str; 5]; 3] = [
    ["cuInit", "cuInit", "libcuda.so.1", "0", "0"],
    [
        "cuMemAlloc_v2",
        "cuMemAlloc",
        "libcuda.so.1",
        "place",
        "(void *)64",
    ],
    [
        "nvmlDeviceGetMemoryInfo",
        "",
        "libnvidia-ml.so.1",
        "0",
        "place",
    ],
];

/// Checks that such a program, built with these flags, prints the same with and without the library, and reaches it.
fn says_the_same(flags: &[&str]) {
    let bench = Bench::new();
    bench.install("noop_driver.c", "libnvidia-ml.so.1", &["-DNVML"]);
    for [name, base, library, first, second] in NAMES {
        let mut all = [
            format!("-DNAME={name}"),
            format!("-DBASE=\"{base}\""),
            format!("-DLIBRARY=\"{library}\""),
            format!("-DFIRST={first}"),
            format!("-DSECOND={second}"),
        ]
        .to_vec();
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let program = Target::native().program("owns_a_name.c", &all);
        let bare =
            Watched::spawn(bench.command(&program, &[]).env_remove("LD_PRELOAD")).wait_output();
        let ours = Watched::spawn(&mut bench.command(&program, &[])).wait_output();
        let which = format!("{name} {flags:?}");
        let expected = lines(&which, &bare);
        assert_eq!(expected[..2], ["default own", "self own"], "{which}");
        assert!(expected.contains(&"handle other".to_owned()), "{which}");
        assert_eq!(lines(&which, &ours), expected, "{which}");
        assert_eq!(text(&ours.stderr), "ours\n", "{which}");
    }
}

#[test]
fn a_program_that_exports_a_function_of_a_hooked_name_is_no_part_of_ours() {
    says_the_same(&["-rdynamic"]);
    says_the_same(&["-rdynamic", "-no-pie", "-fno-pie"]);
}

#[test]
fn a_program_that_exports_a_variable_of_a_hooked_name_is_no_part_of_ours() {
    says_the_same(&["-rdynamic", "-DDATA"]);
    says_the_same(&["-rdynamic", "-DDATA", "-no-pie", "-fno-pie"]);
}

#[test]
fn a_program_that_is_linked_with_the_driver_and_defines_its_names_is_no_part_of_ours() {
    let target = Target::native();
    let driver = target.library("noop_driver.c", "libcuda.so.1", &[]);
    let nvml = target.library("noop_driver.c", "libnvidia-ml.so.1", &["-DNVML"]);
    let linked = [driver, nvml].map(|library| library.display().to_string());
    says_the_same(&["-Wl,--no-as-needed", &linked[0], &linked[1]]);
}

#[test]
fn a_linked_programs_own_address_of_a_function_stays_the_one_it_looks_up() {
    let driver = Target::native().library("noop_driver.c", "libcuda.so.1", &[]);
    let link = driver.display().to_string();
    // Without position-independent code the program's own linkage entry is the function's address everywhere.
    let flags = ["-no-pie", "-fno-pie", &link];
    let bench = Bench::new();
    let program = Target::native().program("linked_address.c", &flags);
    let run = |preload: Option<&Path>| {
        let mut command = bench.command(&program, &[]);
        if preload.is_none() {
            command.env_remove("LD_PRELOAD");
        }
        lines(
            "linked_address.c",
            &Watched::spawn(&mut command).wait_output(),
        )
    };
    assert_eq!(run(None), ["default the same", "self the same", "init 0"]);
    assert_eq!(run(Some(&Target::native().preload)), run(None));
}
