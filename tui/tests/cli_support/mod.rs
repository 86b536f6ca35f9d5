//! Test support: a private segment directory, the program in it, and registered processes that the test itself plays.

#![allow(dead_code, reason = "each test program uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use gpushare_testbed::{Testbed, Watched, artifact};
use serde_json::Value;
use shm_layout::{
    DEVICE_SIM, Entry, Identity, LaunchLimits, Registration, Segments, Uuid, clock, control_bell,
};

/// A private segment directory without a GPU.
pub struct World {
    dir: tempfile::TempDir,
}

#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Checks that it exited with 0.
    pub fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Checks that it exited with this code and printed one sentence with these words on stderr.
    pub fn refused(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {self:?}");
        }
        assert!(self.err.starts_with("gpushare: "), "{self:?}");
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A command that runs to its end.
pub trait Run {
    /// Runs it and returns what it said.
    fn said(&mut self) -> Said;
}

impl Run for Command {
    fn said(&mut self) -> Said {
        self.output().expect("the program can be started").into()
    }
}

/// Runs the control program on a simulated machine.
pub fn gpushare(bed: &Testbed, args: &[&str]) -> Said {
    bed.gpushare(args).said()
}

/// Returns the processes of a simulated machine, as `ps` shows them.
pub fn processes(bed: &Testbed) -> Vec<Value> {
    let ps = gpushare(bed, &["ps", "--json"]).done().json();
    ps["processes"].as_array().expect("a list").clone()
}

/// Returns the process of this name, or null.
pub fn process(bed: &Testbed, name: &str) -> Value {
    let mut all = processes(bed).into_iter();
    all.find(|process| process["name"] == name)
        .unwrap_or_default()
}

/// Has `gpushare run` start a scripted workload, and waits until it is ready.
pub fn scripted(run: &mut Command) -> Watched {
    run.arg(artifact("gpushare-workload")).arg("--script");
    let mut workload = Watched::spawn(run);
    assert!(workload.line().starts_with("ready"));
    workload
}

impl World {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a command of the control program in this world, without the rest of the caller's environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpushare"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GPUSHARE_") || text.starts_with("CUDA_") || text == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .env("GPUSHARE_DIR", self.dir())
            .env("GPUSHARE_ALLOWED_GPUS", "/nonexistent/ids");
        command
    }

    pub fn gpushare(&self, args: &[&str]) -> Said {
        self.command(args).said()
    }

    /// Registers a process that applies settings, played by this process.
    pub fn actor(&self, label: &str) -> Actor {
        self.actor_with(label, &LaunchLimits::default())
    }

    pub fn actor_with(&self, label: &str, limits: &LaunchLimits) -> Actor {
        let segments = Segments::open_workload(self.dir()).expect("our own directory");
        let registration = shm_layout::register(&segments, &Identity::of_self(label), limits)
            .expect("a free slot");
        let registration = Arc::new(registration);
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, end) = (Arc::clone(&registration), Arc::clone(&stop));
        let keeper = std::thread::spawn(move || {
            let mark = theirs.attach_keeper().expect("a keeper's mark");
            while !end.load(Ordering::Relaxed) {
                let seen = control_bell(theirs.segments()).load(Ordering::Acquire);
                theirs.acknowledge(theirs.control_generation());
                theirs.heartbeat(clock::now());
                shm_layout::wait_bell(theirs.segments(), seen, 20_000_000);
            }
            drop(mark);
        });
        Actor {
            registration,
            stop,
            keeper: Some(keeper),
        }
    }
}

/// Writes an executable through a child process. Otherwise a thread that starts a program at that moment would inherit the open
/// descriptor, and a file that is open for writing cannot be executed.
pub fn executable(path: &Path, content: &str, mode: &str) {
    let script = "printf %s \"$1\" > \"$0\" && chmod \"$2\" \"$0\"";
    run_quietly(
        Command::new("sh")
            .args(["-c", script])
            .arg(path)
            .args([content, mode]),
    );
}

/// Copies a program through a child process, for the same reason.
pub fn copy(program: &str, to: &Path, mode: &str) {
    run_quietly(
        Command::new("sh")
            .args(["-c", "cp \"$1\" \"$0\" && chmod \"$2\" \"$0\""])
            .arg(to)
            .args([program, mode]),
    );
}

fn run_quietly(command: &mut Command) {
    assert!(command.status().expect("sh is everywhere").success());
}

/// Returns a library that loads everywhere and does nothing. It is made once, because tests run concurrently.
pub fn library() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let name = concat!(env!("CARGO_CRATE_NAME"), "-empty");
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
        // Another user who runs the test again may only read it.
        if !source.exists() {
            std::fs::write(&source, "int gpushare_test_nothing;\n").expect("ours");
        }
        gpushare_testbed::cc(&source, &format!("lib{name}.so"), &["-shared", "-fPIC"])
    });
    &LIBRARY
}

/// Returns the UUID of the test's device `number`.
pub fn uuid(number: u8) -> Uuid {
    [number; 16]
}

/// A process that the test plays.
pub struct Actor {
    pub registration: Arc<Registration>,
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Actor {
    /// Enters the test's device `number`, which has 16 GiB.
    pub fn enter(&self, number: u8) -> Entry {
        self.registration
            .add_device(uuid(number), number, "Test GPU", 16 << 30, DEVICE_SIM)
            .expect("room for a device")
    }

    /// Takes memory. Returns true if it was granted.
    pub fn takes(&self, entry: Entry, bytes: u64) -> bool {
        self.registration
            .ledger(entry)
            .reserve(bytes)
            .map(|reservation| reservation.commit())
            .is_ok()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}
