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

use cli_support::{Run as _, gpushare, process, scripted};
use gpushare_base::host::pids;
use gpushare_testbed::{Need, Testbed, Watched, artifact, eventually, needs};
use rustix::process::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Starts a scripted workload through `gpushare run`.
fn start(bed: &Testbed, options: &[&str]) -> Watched {
    scripted(&mut bed.gpushare(&[&["run"], options, &["--"]].concat()))
}

fn on_first_device(bed: &Testbed, name: &str) -> Value {
    process(bed, name)["devices"][0].clone()
}
