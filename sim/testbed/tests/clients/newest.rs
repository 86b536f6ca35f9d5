//! Small programs over the newest releases of NVIDIA's Python packages, one for each area of the driver.
//!
//! A new release looks up new functions and calls old ones in new ways. Each program checks its own results, and prints the
//! same on the simulated driver alone and with the library preloaded.

use std::collections::BTreeSet;

use gpushare_testbed::{Testbed, Watched, newest_python};

use crate::each_way::client;

fn run(mut command: std::process::Command, name: &str) -> String {
    command.arg(client(&format!("newest/{name}.py")));
    Watched::spawn(&mut command).succeed().0
}

fn the_same_alone_and_preloaded(scenario: &str, name: &str) {
    let packages = ["cuda-bindings", "cuda-core", "nvidia-ml-py"];
    let Some(python) = newest_python(&packages) else {
        return;
    };
    let bed = Testbed::with_scenario(scenario);
    let alone = run(bed.sim_only(&python), name);
    let bed = Testbed::with_scenario(scenario);
    let preloaded = run(bed.preloaded(&python), name);
    assert_eq!(alone, preloaded, "alone, preloaded");
    assert!(alone.ends_with("done\n"), "it ended early: {alone}");
}

macro_rules! programs {
    ($($scenario:literal: $($name:ident)*;)*) => {
        $($(
            #[test]
            fn $name() {
                the_same_alone_and_preloaded($scenario, stringify!($name));
            }
        )*)*

        const ALL: &[&str] = &[$($(stringify!($name)),*),*];
    };
}

programs! {
    "two-gpus":
    buffers_and_events_go_to_another_process
    checkpoints_bring_memory_back
    conditional_nodes_run_their_bodies
    green_contexts_have_streams_of_their_own
    kernels_name_their_parameters
    nvml_describes_the_machine
    pools_are_of_every_place_and_kind
    ;
}

#[test]
fn each_program_in_the_folder_is_run() {
    let files = std::fs::read_dir(client("newest")).expect("the folder is here");
    let there: BTreeSet<_> = files
        .flatten()
        .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".py")?.to_owned()))
        .collect();
    let listed: BTreeSet<_> = ALL.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(there, listed);
}
