//! Running a client in both ways: on the simulated driver alone, and with the library preloaded.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use gpushare_sim::{World, timeline};
use gpushare_testbed::{Testbed, Watched};

/// What a client printed, and what the simulated engine saw of it.
pub struct Run {
    pub printed: String,
    pub kernels: usize,
}

/// A file beside the tests.
pub fn client(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients")).join(name)
}

/// Runs the client without and with the preload, each in a world of its own; both must succeed, and
/// must have printed the same.
pub fn both_ways(program: impl AsRef<OsStr>, arrange: impl Fn(&mut Command)) -> Run {
    let (plain, preloaded) = (Testbed::new(), Testbed::new());
    let [plain, preloaded] = [
        run(&plain, plain.sim_only(&program), &arrange),
        run(&preloaded, preloaded.preloaded(&program), &arrange),
    ];
    assert_eq!(plain.printed, preloaded.printed, "plain, preloaded");
    assert_eq!(plain.kernels, preloaded.kernels, "plain, preloaded");
    plain
}

fn run(bed: &Testbed, mut command: Command, arrange: &impl Fn(&mut Command)) -> Run {
    arrange(&mut command);
    let output = Watched::spawn(&mut command).wait_output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    let printed = String::from_utf8(output.stdout).expect("clients print text");
    let world = World::open_named(bed.world(), None).expect("the client has made its world");
    Run {
        // A client that is a test says how long it took, never twice the same.
        printed: printed
            .lines()
            .filter(|line| !line.starts_with("test result:"))
            .map(|line| format!("{line}\n"))
            .collect(),
        kernels: timeline::log(&world, 0).len(),
    }
}
