//! Running a client in three ways: on the simulated driver alone, with the library preloaded, and with the library under a
//! policy that makes it share the device with another process.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use gpushare_sim::{World, timeline};
use gpushare_testbed::{Testbed, Watched};

/// The output of a client, and the number of its kernels that the simulated engine ran.
#[derive(Debug, PartialEq)]
pub struct Run {
    pub printed: String,
    pub kernels: usize,
}

/// Returns the path of a file beside the tests.
pub fn client(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients")).join(name)
}

/// Runs the client in each way in a world of its own. Each run must succeed, print the same and launch the same number of
/// kernels.
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

/// Starts a competing process and sets the policy that yields the device after every launch. Its kernels are long, so that the
/// client's kernels still fit into the engine's log.
fn contend(bed: &Testbed) -> Watched {
    let mut policy = bed.gpushare(&["policy", "set", "all", "always"]);
    Watched::spawn(&mut policy).succeed();
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
    let (printed, _) = client.succeed();
    let world = World::open_named(bed.world(), None).expect("the client has made its world");
    let log = timeline::log(&world, 0);
    Run {
        // A client that is a test prints its duration, which differs each time.
        printed: printed
            .lines()
            .filter(|line| !line.starts_with("test result:"))
            .map(|line| format!("{line}\n"))
            .collect(),
        kernels: log.iter().filter(|ran| ran.pid == pid).count(),
    }
}
