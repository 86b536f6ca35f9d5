//! Cost that the preload library adds to the driver's memory calls: `cargo bench -p gpushare-shim --bench memory`.
//!
//! One program runs without and with the library on a driver that does nothing. The bench prints nanoseconds for each and,
//! last, the difference.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use gpushare_testbed::{artifact, cc};

fn main() -> std::io::Result<()> {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/apps");
    let driver = cc(
        &apps.join("noop_driver.c"),
        "libcuda.so.1",
        &["-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"],
    );
    let program = cc(
        &apps.join("memory_calls.c"),
        "memory_calls",
        &["-O2", "-ldl"],
    );
    let library = artifact("libgpushare.so");
    let dir = tempfile::tempdir()?;
    let run =
        |variables: &[(&str, &str)], preload: bool| -> std::io::Result<HashMap<String, f64>> {
            let mut command = Command::new(&program);
            command
                .env("GPUSHARE_DIR", dir.path())
                .env("LD_LIBRARY_PATH", driver.parent().unwrap_or(Path::new(".")));
            command.envs(variables.iter().copied());
            if preload {
                command.env("LD_PRELOAD", &library);
            }
            let output = command.output()?;
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(text
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(name, ns)| (name.to_owned(), ns.parse().unwrap_or(0.0)))
                .collect())
        };
    let bare = run(&[], false)?;
    let counted = run(&[], true)?;
    let limited = run(&[("GPUSHARE_MEMORY", "512GiB")], true)?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{:<20} {:>10} {:>12} {:>12} {:>10} {:>10}",
        "ns a call", "bare", "preloaded", "with quota", "added", "added"
    )?;
    for name in [
        "alloc+free@0",
        "alloc+free@1000",
        "alloc+free@10000",
        "alloc+free@100000",
        "cuMemGetInfo",
    ] {
        let [bare, counted, limited] = [&bare, &counted, &limited]
            .map(|numbers| numbers.get(name).copied().unwrap_or(f64::NAN));
        writeln!(
            out,
            "{name:<20} {bare:>10.1} {counted:>12.1} {limited:>12.1} {:>+10.1} {:>+10.1}",
            counted - bare,
            limited - bare
        )?;
    }
    Ok(())
}
