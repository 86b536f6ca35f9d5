//! Shared parts of the stories: the control program's output, and the device's own figures.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::Command;

use gpushare_sim::{World, timeline, usage};
use gpushare_testbed::{Testbed, Watched, artifact};
use serde_json::Value;

/// A testbed in which programs run under the control program.
pub struct Stage(pub Testbed);

impl Stage {
    pub fn new() -> Self {
        Self(Testbed::with_scenario("one-gpu"))
    }

    /// Returns the command `gpushare run OPTIONS -- PROGRAM …`; the caller adds the program's arguments.
    pub fn run(&self, options: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = self.0.gpushare(&["run"]);
        command.args(options).arg("--").arg(program);
        command
    }

    /// Starts a scripted workload under `gpushare run`.
    pub fn puppet(&self, options: &[&str]) -> Watched {
        let mut command = self.run(options, artifact("gpushare-workload"));
        let mut puppet = Watched::spawn(command.arg("--script"));
        assert_eq!(puppet.line(), format!("ready {}", puppet.pid()));
        puppet
    }

    /// Runs the control program and returns its output; it must succeed.
    pub fn gpushare(&self, args: &[&str]) -> String {
        let output = Watched::spawn(&mut self.0.gpushare(args)).wait_output();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "gpushare {args:?}: {said}");
        String::from_utf8(output.stdout).expect("gpushare writes text")
    }

    /// Returns the processes of `gpushare ps --json`, by name.
    pub fn ps(&self) -> HashMap<String, Value> {
        let document: Value = serde_json::from_str(&self.gpushare(&["ps", "--json"])).unwrap();
        assert_eq!(document["schema_version"], 1);
        let processes = document["processes"].as_array().unwrap().iter();
        processes
            .map(|process| {
                (
                    process["name"].as_str().unwrap_or("").to_owned(),
                    process.clone(),
                )
            })
            .collect()
    }

    /// Returns the only device of a process, as `ps` shows it.
    pub fn on_device(&self, name: &str) -> Value {
        let process = self.ps().remove(name);
        let process = process.unwrap_or_else(|| panic!("ps does not show {name}"));
        process["devices"][0].clone()
    }

    fn world(&self) -> World {
        World::open_named(self.0.world(), None).unwrap()
    }

    /// Returns the bytes that a process holds according to the device.
    pub fn held(&self, pid: u32) -> u64 {
        let on_device = usage::of(&self.world(), 0, 1);
        let own = on_device
            .processes
            .iter()
            .find(|process| process.pid == pid);
        own.map_or(0, |process| process.used)
    }

    /// Returns how many kernels of a process the device has completed.
    pub fn kernels(&self, pid: u32) -> usize {
        let log = timeline::log(&self.world(), 0);
        log.iter().filter(|ran| ran.pid == pid).count()
    }
}
