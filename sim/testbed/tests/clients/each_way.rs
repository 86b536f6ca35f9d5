//! Running a client in each way: on the simulated driver alone, with the library preloaded, and with
//! the library making it take turns with a neighbour.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use gpushare_sim::{World, timeline};
use gpushare_testbed::{Testbed, Watched};

/// What a client printed, and how many kernels of it the simulated engine ran.
#[derive(Debug, PartialEq)]
pub struct Run {
    pub printed: String,
    pub kernels: usize,
}

/// A file beside the tests.
pub fn client(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients")).join(name)
}

/// Runs the client each way in a world of its own. Each time it must succeed, print the same and
/// launch the same.
pub fn each_way(program: impl AsRef<OsStr>, arrange: impl Fn(&mut Command)) -> Run {
    let bed = Testbed::new();
    let alone = run(&bed, bed.sim_only(&program), &arrange);

    let bed = Testbed::new();
    let preloaded = run(&bed, bed.preloaded(&program), &arrange);
    assert_eq!(alone, preloaded, "alone, preloaded");

    let bed = Testbed::new();
    let _neighbour = contend(&bed);
    let in_turns = run(&bed, bed.preloaded(&program), &arrange);
    assert_eq!(alone, in_turns, "alone, in turns");
    alone
}

/// A neighbour at work, and the policy that yields the device after every launch. The neighbour's
/// kernels are long, so that the engine's log has room for the client's.
fn contend(bed: &Testbed) -> Watched {
    let mut policy = bed.gpushare(&["policy", "set", "all", "always"]);
    let output = Watched::spawn(&mut policy).wait_output();
    assert!(output.status.success(), "{output:?}");
    let mut neighbour = Watched::spawn(&mut bed.workload(&["--script"]));
    neighbour.line();
    neighbour.ask("launch 10000");
    neighbour.say("spin 10000 600000");
    neighbour
}

fn run(bed: &Testbed, mut command: Command, arrange: &impl Fn(&mut Command)) -> Run {
    arrange(&mut command);
    let client = Watched::spawn(&mut command);
    let pid = client.pid();
    let output = client.wait_output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    let printed = String::from_utf8(output.stdout).expect("clients print text");
    let world = World::open_named(bed.world(), None).expect("the client has made its world");
    let log = timeline::log(&world, 0);
    Run {
        // A client that is a test says how long it took, never twice the same.
        printed: printed
            .lines()
            .filter(|line| !line.starts_with("test result:"))
            .map(|line| format!("{line}\n"))
            .collect(),
        kernels: log.iter().filter(|ran| ran.pid == pid).count(),
    }
}
