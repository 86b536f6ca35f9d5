//! On a machine without a GPU the message says what is missing and what to do.

use std::process::Command;

use gpushare_testbed::{Watched, artifact};

#[test]
fn without_a_driver_the_workload_says_so_and_fails() {
    let mut command = Command::new(artifact("gpushare-workload"));
    // Without a loader path only an installed driver can be found.
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD");
    let output = Watched::spawn(command.args(["--seconds", "0"])).wait_output();
    if output.status.success() {
        return; // This machine has a driver, so there is nothing to test.
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("libcuda.so.1"), "{said}");
    assert!(said.contains("gpushare run --sim"), "{said}");
}
