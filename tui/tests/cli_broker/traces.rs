//! Traces under a broker: each user's are in that user's own directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use gpushare_testbed::{Testbed, Watched};

use crate::cli_support::Said;
use crate::support::*;

/// A machine with the simulated GPU, for real programs with the real library.
struct Simulated {
    machine: Machine,
    bed: Testbed,
}

impl Simulated {
    fn new() -> Option<Self> {
        let machine = Machine::new()?;
        fs::create_dir(machine.path("lib")).expect("ours");
        machine.bring("libgpushare.so", "libgpushare.so");
        machine.bring("gpushare-workload", "gpushare-workload");
        machine.bring("libcuda.so", "lib/libcuda.so.1");
        machine.bring("libnvidia_ml.so", "lib/libnvidia-ml.so.1");
        // The directory for the users' files.
        let out = machine.path("out");
        fs::create_dir(&out).expect("ours");
        fs::set_permissions(&out, Permissions::from_mode(0o777)).expect("ours");
        let bed = Testbed::new();
        Some(Self { machine, bed })
    }

    fn command(&self, uid: u32, words: &[&str]) -> Command {
        let mut command = self.machine.command(uid, words);
        command
            .env("GPUSHARE_SIM", "1")
            .env("GPUSHARE_SIM_WORLD", self.bed.world())
            .env("GPUSHARE_LIB", self.machine.path("libgpushare.so"))
            .env("LD_LIBRARY_PATH", self.machine.path("lib"));
        command
    }

    fn run(&self, uid: u32, words: &[&str]) -> Said {
        said(&mut self.command(uid, words))
    }

    fn path(&self, name: &str) -> String {
        self.machine.path(name).display().to_string()
    }
}

#[test]
fn a_user_traces_its_own_programs_and_nobody_elses() {
    let Some(simulated) = Simulated::new() else {
        return;
    };
    let own = Own::of(ALICE);
    let workload = simulated.path("gpushare-workload");
    let words = ["run", "--name", "work", "--"];
    let mut command = simulated.command(ALICE, &words);
    command.args([&workload, "--kernel-us=500", "--seconds=60"]);
    let _work = Watched::spawn(&mut command);
    simulated.machine.process("work");
    for uid in [MALLORY, 0] {
        let refused = simulated.run(uid, &["trace", "start", "name:work"]);
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(
            refused.err.contains("by the user whose process it is"),
            "{refused:?}"
        );
    }
    let begun = simulated
        .run(ALICE, &["trace", "start", "name:work"])
        .done();
    assert!(begun.out.contains("traced, room for"), "{begun:?}");
    let names = || {
        fs::read_dir(own.0.join("machine"))
            .expect("there")
            .flatten()
    };
    let all: Vec<_> = names().map(|name| name.path()).collect();
    let [file] = &all[..] else {
        panic!("{all:?}");
    };
    let meta = fs::metadata(file).expect("there");
    assert_eq!((meta.uid(), meta.mode() & 0o777), (ALICE, 0o600));
    eventually("its launches are recorded", PATIENCE, || {
        let words = ["trace", "export", "name:work", "--format", "csv", "-o", "-"];
        simulated
            .run(ALICE, &words)
            .done()
            .out
            .contains("cuLaunchKernel")
    });
    // Other users do not see the trace; the user who started it ends it.
    let others = simulated.run(MALLORY, &["trace", "show", "--json"]).done();
    assert_eq!(others.json()["traces"], serde_json::json!([]));
    simulated.run(ALICE, &["trace", "stop", "name:work"]).done();
    simulated.run(ALICE, &["trace", "rm", "name:work"]).done();
    assert_eq!(names().count(), 0);
}

#[test]
fn a_launch_that_asks_for_a_trace_gets_it() {
    let Some(simulated) = Simulated::new() else {
        return;
    };
    let _own = Own::of(LAUNCHER);
    let (file, workload) = (
        simulated.path("out/t.json"),
        simulated.path("gpushare-workload"),
    );
    let words = [
        "run",
        "--trace",
        &file,
        "--",
        &workload,
        "--kernel-us=500",
        "--seconds=1",
    ];
    simulated.run(LAUNCHER, &words).done();
    let text = fs::read_to_string(&file).expect("written");
    assert!(text.contains("cuLaunchKernel"), "{} bytes", text.len());
}
