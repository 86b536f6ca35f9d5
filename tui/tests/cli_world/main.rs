//! The control program against real workloads on the simulated GPU, end to end.

#[path = "../cli_support/mod.rs"]
mod cli_support;
mod devices;
mod evictions;
mod memory;
mod reserves;
mod shows;
mod workloads;

use std::time::Duration;

use cli_support::Said;
use gpushare_base::host::pids;
use gpushare_testbed::{Need, Testbed, Watched, artifact, eventually, needs};
use rustix::process::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn gpushare(bed: &Testbed, args: &[&str]) -> Said {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .args(args)
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent");
    command.output().expect("the program is built").into()
}

/// Starts a scripted workload through `gpushare run`.
fn start(bed: &Testbed, options: &[&str]) -> Watched {
    let mut command = bed.sim_only(env!("CARGO_BIN_EXE_gpushare"));
    command
        .arg("run")
        .args(options)
        .arg("--")
        .arg(artifact("gpushare-workload"))
        .arg("--script");
    command.env("GPUSHARE_LIB", artifact("libgpushare.so"));
    let mut watched = Watched::spawn(&mut command);
    assert!(watched.line().starts_with("ready"));
    watched
}

fn on_first_device(bed: &Testbed, name: &str) -> Value {
    let ps = gpushare(bed, &["ps", "--json"]).done().json();
    let processes = ps["processes"].as_array().expect("a list").clone();
    let own = processes
        .into_iter()
        .find(|process| process["name"] == name);
    own.map_or(Value::Null, |process| process["devices"][0].clone())
}
