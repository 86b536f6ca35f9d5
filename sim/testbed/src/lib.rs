//! Test support: a private world in which a test runs programs.
//!
//! A [`Testbed`] is a segment directory and a simulated world that no other test uses. Programs started in it find the
//! simulator's driver and NVML first and, on request, the preload library. Its drop ends the programs and removes the shared
//! memory, so a test that fails leaves nothing behind.
//!
//! Other tools: [`artifact()`] builds what a test starts, [`cc()`] compiles a small C program, [`python()`] provides clients
//! from PyPI, [`needs()`] checks what the machine has, [`Watched`] is a child with a time limit, and [`eventually`]
//! polls a condition that has no event.

mod artifact;
mod cc;
mod needs;
mod ordinary;
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
pub use ordinary::as_ordinary_user;
pub use own_run::own_run;
pub use python::{newest_python, python};
pub use wait::eventually;
pub use watched::Watched;

/// The simulator's libraries, and the names under which clients open them.
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
    /// Makes a world with the default scenario.
    pub fn new() -> Self {
        Self::build(None)
    }

    /// Makes a world with a built-in scenario, or with one from a file.
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
        // An earlier run with the same pid may have been killed before it removed its memory.
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

    /// Returns the segment directory (`GPUSHARE_DIR`).
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the simulated world's name (`GPUSHARE_SIM_WORLD`).
    pub fn world(&self) -> &str {
        &self.world
    }

    /// Returns a command that finds the simulator in place of an installed driver, without the preload library.
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

    /// Returns a command with the simulator and `libgpushare.so` preloaded.
    pub fn preloaded(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.sim_only(program);
        command.env("LD_PRELOAD", artifact("libgpushare.so"));
        command
    }

    /// Returns a command of the control program, in this world.
    pub fn gpushare(&self, args: &[&str]) -> Command {
        let mut command = self.sim_only(artifact("gpushare"));
        command
            .env("GPUSHARE_LIB", artifact("libgpushare.so"))
            .args(args);
        command
    }

    /// Returns a command of the workload program with the preload library.
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
