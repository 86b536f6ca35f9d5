//! musl, and a glibc before 2.34, in which threads and `dlsym` are in separate libraries.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    bench::{Bench, Target},
    programs::{find_the_driver, live, notices_nothing, there},
};

fn musl() -> Option<Target> {
    let compiler = Path::new("/usr/bin/musl-gcc");
    there(compiler, "musl-gcc").then(|| Target {
        compiler: compiler.display().to_string(),
        ..Target::native()
    })
}

#[test]
fn a_musl_program_notices_nothing() {
    if let Some(musl) = musl() {
        notices_nothing(&musl);
    }
}

#[test]
fn a_musl_program_that_finds_a_driver_is_a_guest_like_others() {
    let Some(musl) = musl() else { return };
    find_the_driver(&musl);
    let modes = [
        ("plain", "answers 0"),
        ("threads", "answers 0"),
        ("fork-first", "answers 0 0"),
        ("exit", "left"),
    ];
    live(&musl, &modes);
}

/// Returns a target whose programs start through the dynamic linker of an old glibc in `GPUSHARE_OLD_GLIBC`, with its
/// libraries.
fn old_glibc(and: &[&str]) -> Option<Target> {
    // Without the variable no path exists.
    let dir = PathBuf::from(std::env::var_os("GPUSHARE_OLD_GLIBC").unwrap_or_default());
    if !there(&dir.join("libpthread.so.0"), "older-glibc") {
        return None;
    }
    let of_gcc = |name: &str| {
        let output = Command::new("cc")
            .arg(format!("-print-file-name={name}"))
            .output()
            .expect("the C compiler");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let old = |name: &&str| dir.join(name).display().to_string();
    let rpath = format!("-Wl,-rpath,{}", dir.display());
    let mut for_programs = vec![
        "-nostdlib".to_owned(),
        of_gcc("crt1.o"),
        of_gcc("crti.o"),
        format!("-Wl,--dynamic-linker={}", old(&"ld-linux-x86-64.so.2")),
        rpath.clone(),
        "-Wl,--no-as-needed".to_owned(),
        old(&"libc.so.6"),
    ];
    for_programs.extend(and.iter().map(old));
    for_programs.extend([of_gcc("libgcc.a"), of_gcc("crtn.o")]);
    let for_libraries = vec![
        "-nostdlib".to_owned(),
        rpath,
        "-Wl,--no-as-needed".to_owned(),
        old(&"libc.so.6"),
        old(&"libpthread.so.0"),
    ];
    Some(Target {
        for_programs,
        for_libraries,
        ..Target::native()
    })
}

#[test]
fn a_program_on_an_older_glibc_is_a_guest_like_others() {
    let Some(old) = old_glibc(&["libpthread.so.0", "libdl.so.2"]) else {
        return;
    };
    notices_nothing(&old);
    find_the_driver(&old);
    let modes = [
        ("plain", "answers 0"),
        ("threads", "answers 0"),
        ("fork-first", "answers 0 0"),
        ("exit", "left"),
        ("signals", "answers 0"),
    ];
    live(&old, &modes);
}

#[test]
fn where_an_older_glibc_has_no_threads_yet_the_driver_brings_them() {
    // The program is linked only with libdl, the driver with libpthread as NVIDIA's is, and it is opened locally.
    let Some(old) = old_glibc(&["libdl.so.2"]) else {
        return;
    };
    let said = Bench::on(old).says("reopening.c", &[], &[]);
    assert_eq!(said, ["first 0", "closed 0", "again ours 0"]);
}

#[test]
fn where_an_older_glibc_has_no_threads_at_all_it_runs_without_a_lock() {
    let Some(mut old) = old_glibc(&["libdl.so.2"]) else {
        return;
    };
    old.for_libraries.pop();
    old.complaint = "cannot start a thread; this process runs without a GPU lock";
    let said = Bench::on(old).says("reopening.c", &[], &[]);
    assert_eq!(said, ["first 0", "closed 0", "again ours 0"]);
}
