//! Test support: a private world to run programs in.
//!
//! A [`Testbed`] is one segment directory and one simulated world that no other test sees. Programs
//! started in it find the simulator's driver and NVML first, and, if asked for, the preload. When it
//! is dropped its programs are ended and its shared memory is removed, so a test that fails midway
//! leaves nothing behind.
//!
//! Around it: [`artifact()`] builds what a test needs to start, [`cc()`] compiles a tiny C program,
//! [`python()`] provides clients from PyPI, [`needs()`] says whether the machine has what a test needs, [`Watched`] is a child that cannot outlive its limit, and
//! [`eventually`] waits for what has no event to wait for. [`floors`] holds a crate's imports to the order that its
//! `lib.rs` draws.

mod artifact;
mod cc;
pub mod floors;
mod needs;
mod own_run;
mod python;
mod remains;
mod wait;
mod watched;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub use artifact::{artifact, artifact_for, target_dir};
pub use cc::{cc, cc_by, cc_driver};
pub use needs::{Need, needs};
pub use own_run::own_run;
pub use python::{newest_python, python};
pub use wait::eventually;
pub use watched::Watched;

/// The simulator's libraries and the names clients open them by.
const SIM_LIBRARIES: [(&str, &[&str]); 2] = [
    ("libcuda.so", &["libcuda.so", "libcuda.so.1"]),
    ("libnvidia_ml.so", &["libnvidia-ml.so", "libnvidia-ml.so.1"]),
];

/// A private segment directory and a private simulated world.
pub struct Testbed {
    dir: tempfile::TempDir,
    world: String,
    scenario: Option<String>,
}

impl Testbed {
    /// A world with the default scenario.
    pub fn new() -> Self {
        Self::build(None)
    }

    /// A world with a built-in scenario, or with one from a file.
    pub fn with_scenario(name_or_path: &str) -> Self {
        Self::build(Some(name_or_path.to_owned()))
    }

    fn build(scenario: Option<String>) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::Builder::new()
            .prefix("gpushare-test-")
            .tempdir()
            .expect("a temporary directory");
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let world = format!("gpushare-test-{}-{number}", std::process::id());
        // An earlier run of the same pid may have been killed before it could clean up.
        remains::remove_shared_memory(&world);

        let libraries = dir.path().join("sim-lib");
        std::fs::create_dir(&libraries).expect("the directory was just made");
        for (name, links) in SIM_LIBRARIES {
            let library = artifact(name);
            for link in links {
                std::os::unix::fs::symlink(&library, libraries.join(link))
                    .expect("a fresh directory takes links");
            }
        }
        Self {
            dir,
            world,
            scenario,
        }
    }

    /// The segment directory (`GPUSHARE_DIR`).
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The simulated world's name (`GPUSHARE_SIM_WORLD`).
    pub fn world(&self) -> &str {
        &self.world
    }

    /// A program that finds the simulator where a machine with a GPU has the driver; not preloaded.
    pub fn sim_only(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("GPUSHARE_") || name_text.starts_with("CUDA_") {
                command.env_remove(name);
            }
        }
        command
            .env_remove("LD_PRELOAD")
            .env("GPUSHARE_DIR", self.dir())
            .env("GPUSHARE_SIM", "1")
            .env("GPUSHARE_SIM_WORLD", &self.world)
            .env("LD_LIBRARY_PATH", self.dir().join("sim-lib"));
        if let Some(scenario) = &self.scenario {
            command.env("GPUSHARE_SIM_SCENARIO", scenario);
        }
        command
    }

    /// The same, with `libgpushare.so` preloaded.
    pub fn preloaded(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.sim_only(program);
        command.env("LD_PRELOAD", artifact("libgpushare.so"));
        command
    }

    /// The control program, in this world.
    pub fn gpushare(&self, args: &[&str]) -> Command {
        let mut command = self.sim_only(artifact("gpushare"));
        command
            .env("GPUSHARE_LIB", artifact("libgpushare.so"))
            .args(args);
        command
    }

    /// The preloaded workload program.
    pub fn workload(&self, args: &[&str]) -> Command {
        let mut command = self.preloaded(artifact("gpushare-workload"));
        command.args(args);
        command
    }
}

impl Default for Testbed {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        remains::end_programs_of(&self.world);
        remains::remove_shared_memory(&self.world);
    }
}
