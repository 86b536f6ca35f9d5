//! A test control program of MPS, first in PATH. It stores the daemon's pid where NVIDIA's program does, and records its input.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

pub use crate::cli_support::library;
use crate::cli_support::{Run as _, Said, World, executable};

/// Files beside it: `record` has its input; `servers` and `clients-PID` have its replies; and `broken`, `hangs`, `ignores-quit`
/// and `busy` (it refuses the next command) make it fail. Like NVIDIA's program it refuses a second user at the same time. The
/// daemon ends when its pid file is gone.
const CONTROL: &str = r#"#!/bin/sh
here=$(dirname "$0")
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
[ "$1" = -d ] && asked=-d || read -r asked
echo "$asked pipe=$CUDA_MPS_PIPE_DIRECTORY log=$CUDA_MPS_LOG_DIRECTORY preload=$LD_PRELOAD" >> "$here/record"
[ -e "$here/hangs" ] && sleep 600
if [ "$asked" = -d ]; then
    [ -e "$here/broken" ] && { echo "the device is broken"; exit 1; }
    : > "$pid"
    (while [ -e "$pid" ]; do sleep 0.02; done) &
    echo $! > "$pid"
    exit 0
fi
away() { echo "Cannot send command to MPS control daemon process"; exit 1; }
mkdir "$here/asking" 2>/dev/null || away
trap 'rmdir "$here/asking"' EXIT
[ -e "$here/slow" ] && sleep 0.2
[ -e "$here/busy" ] && { rm "$here/busy"; away; }
grep -q nvidia-cuda "/proc/$(cat "$pid" 2>/dev/null)/comm" 2>/dev/null || { echo "Cannot find MPS control daemon process"; exit 1; }
case $asked in
get_server_list) cat "$here/servers" 2>/dev/null ;;
get_client_list*) cat "$here/clients-${asked#get_client_list }" 2>/dev/null ;;
quit) [ -e "$here/ignores-quit" ] || rm "$pid" ;;
"quit -t 0") rm "$pid" ;;
esac
exit 0
"#;

/// A world with the control program.
pub struct Mps {
    pub world: World,
    pub bin: tempfile::TempDir,
}

impl Mps {
    pub fn new() -> Self {
        let bin = tempfile::tempdir().expect("a temporary directory");
        executable(&bin.path().join("nvidia-cuda-mps-control"), CONTROL, "755");
        // This program records that the compute mode was set.
        let smi = "#!/bin/sh\ntouch \"$(dirname \"$0\")/smi-was-called\"\n";
        executable(&bin.path().join("nvidia-smi"), smi, "755");
        let world = World::new();
        Self { world, bin }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut path = self.bin.path().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").expect("a PATH"));
        let mut command = self.world.command(args);
        command.env("PATH", path).env("GPUSHARE_LIB", library());
        command
    }

    pub fn gpushare(&self, args: &[&str]) -> Said {
        self.command(args).said()
    }

    pub fn started() -> Self {
        let mps = Self::new();
        mps.gpushare(&["mps", "start"]).done();
        mps
    }

    pub fn pipe(&self) -> PathBuf {
        self.world.dir().join("mps/pipe")
    }

    pub fn pid_file(&self) -> PathBuf {
        self.pipe().join("nvidia-cuda-mps-control.pid")
    }

    pub fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.pid_file()).expect("it runs");
        text.trim().parse().expect("a pid")
    }

    /// Puts a reply or a fault beside the control program.
    pub fn puts(&self, name: &str, content: &str) {
        fs::write(self.bin.path().join(name), content).expect("ours");
    }

    pub fn takes(&self, name: &str) {
        fs::remove_file(self.bin.path().join(name)).expect("it was put");
    }

    /// Returns the control program's input, one line per command.
    pub fn record(&self) -> String {
        fs::read_to_string(self.bin.path().join("record")).unwrap_or_default()
    }

    pub fn asked(&self, command: &str) -> usize {
        let start = format!("{command} pipe=");
        let record = self.record();
        record
            .lines()
            .filter(|line| line.starts_with(&start))
            .count()
    }

    /// Starts a program that prints `started`.
    pub fn starts(&self, options: &[&str]) -> Said {
        self.gpushare(&[&["run"], options, &["--", "echo", "started"]].concat())
    }

    /// Returns the MPS variables of a program under `gpushare run`, with `-` for a variable that is not set.
    pub fn finds(&self, options: &[&str], set: &[(&str, &str)]) -> String {
        let mut command = self.command(&[&["run"], options, &SHOW].concat());
        command.envs(set.iter().copied());
        command.said().done().out.trim().to_owned()
    }
}

const SHOW: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "echo ${CUDA_MPS_PIPE_DIRECTORY--} ${CUDA_MPS_CLIENT_PRIORITY--} ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE--}",
];

impl Drop for Mps {
    fn drop(&mut self) {
        // The daemon ends when its pid file is removed.
        let _ = fs::remove_file(self.pid_file());
    }
}

pub fn finding(doctor: &Value) -> Value {
    let findings = doctor["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["check"] == "mps");
    found.cloned().unwrap_or(Value::Null)
}
