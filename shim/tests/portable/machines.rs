//! aarch64, with user-mode emulation.

use std::path::Path;

use gpushare_testbed::{Need, artifact_for, needs};

use crate::{
    bench::{Bench, Target},
    elf,
    programs::{find_the_driver, live, notices_nothing, there},
};

const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// The emulator has no robust futexes. The process reports that, and only its file lock shows its death.
const NO_ROBUST_LIST: &str = "cannot register for robust lists";

fn aarch64() -> Option<Target> {
    let preload = artifact_for("aarch64-unknown-linux-gnu", COMPILER, "libgpushare.so");
    needs(Need::Works("aarch64", preload.is_some()));
    let preload = preload?;
    elf::asks_little(&preload);
    elf::reaches_itself_directly(&preload);
    let libc = Path::new("/usr/aarch64-linux-gnu/lib/libc.so.6");
    let emulator = Path::new("/usr/bin/qemu-aarch64");
    if !there(emulator, "qemu-user") || !there(libc, "libc6-dev-arm64-cross") {
        return None;
    }
    Some(Target {
        compiler: COMPILER.to_owned(),
        runner: [emulator.to_str()?, "-L", "/usr/aarch64-linux-gnu"]
            .map(str::to_owned)
            .to_vec(),
        preload,
        complaint: NO_ROBUST_LIST,
        ..Target::native()
    })
}

#[test]
fn on_aarch64_every_way_to_the_driver_leads_to_us() {
    let Some(aarch64) = aarch64() else { return };
    notices_nothing(&aarch64);
    find_the_driver(&aarch64);
    let bench = Bench::on(aarch64.clone());
    assert_eq!(
        bench.says("by_dlvsym.c", &[], &[])[..3],
        [
            "default before null",
            "next before null",
            "self before null"
        ]
    );
    let driver = aarch64.library("noop_driver.c", "libcuda.so.1", &[]);
    let plugin = aarch64.library(
        "plugin.c",
        "plugin.so",
        &[driver.to_str().expect("a plain path")],
    );
    for mode in ["local", "deepbind"] {
        assert_eq!(
            bench.says("host.c", &[], &[&plugin, Path::new(mode)]),
            ["asks ours", "calls ours", "host asks null"]
        );
    }
}

#[test]
fn on_aarch64_guests_live_in_peace() {
    let Some(aarch64) = aarch64() else { return };
    let modes = [
        ("plain", "answers 0"),
        ("threads", "answers 0"),
        ("fork-first", "answers 0 0"),
        ("vfork", "answers 0"),
        ("close-all", "answers 0"),
        ("signals", "answers 0"),
        ("exit", "left"),
    ];
    live(&aarch64, &modes);
}

#[test]
fn on_aarch64_a_launch_can_be_looked_at_from_within() {
    let Some(aarch64) = aarch64() else { return };
    let bench = Bench::on(aarch64.clone());
    let program = aarch64.program("unwinding.c", &["-rdynamic"]);
    let output = bench
        .command(&program, &[])
        .output()
        .expect("the emulator starts");
    let line = "answer 999 main seen nested 0 again 0";
    assert_eq!(
        crate::bench::lines("unwinding", &output),
        [line, line, line]
    );
}
