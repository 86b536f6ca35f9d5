//! Tests of actions that permissions forbid to all users but root.

use std::any::type_name;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::geteuid;

use crate::artifact::profile_dir;
use crate::{Need, needs};

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// Runs a test as a user whom permissions restrict. Root has it run by `nobody`, in a process of its own, with artifacts that are
/// made already. Without a way to the programs, as in a checkout below `/root`, the need is not met.
///
/// # Panics
///
/// If the test fails there, or `test` is not a closure inside the test's function.
pub fn as_ordinary_user<F: FnOnce()>(test: F) {
    if !geteuid().is_root() {
        return test();
    }
    // `cli_run::limits::a_name::{{closure}}`; the harness leaves out the program.
    let path = type_name::<F>();
    let name = path
        .split_once("::")
        .and_then(|(_, path)| path.strip_suffix("::{{closure}}"))
        .unwrap_or_else(|| panic!("{path} is not inside a test"));
    let own = std::env::current_exe().expect("a test knows its own path");
    let home = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("root's");
    let output = Command::new(own)
        .args(["--exact", name])
        .env("GPUSHARE_ARTIFACTS", profile_dir())
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    let reached = !matches!(&output, Err(error) if error.kind() == ErrorKind::PermissionDenied);
    if !needs(Need::Works("ordinary-user", reached)) {
        return;
    }
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{said}{}", String::from_utf8_lossy(&output.stderr));
}
