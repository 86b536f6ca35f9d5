//! tinygrad, unmodified from PyPI, on the simulator through PTX.

use gpushare_testbed::python;

use crate::each_way::{client, each_way};

#[test]
fn tinygrad_copies_and_launches_on_the_simulated_device() {
    let Some(python) = python(&["tinygrad==0.14.0"]) else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let run = each_way(python, |command| {
        command
            .arg(client("tinygrad_tensors.py"))
            .env("DEV", "CUDA:PTX")
            .env("XDG_CACHE_HOME", cache.path());
    });
    assert_eq!(run.printed, "done on CUDA PTXRenderer\n");
    // The sum, and five rounds of two kernels.
    assert!(run.kernels >= 11, "{} kernels", run.kernels);
}
