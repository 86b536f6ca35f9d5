//! Shared parts of the tests: a private directory, and children that run this test binary again.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test file uses its own part of it"
)]

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub use gpushare_testbed::eventually;
use gpushare_testbed::{Need, needs};
use shm_layout::*;

pub const MIB: u64 = 1 << 20;
pub const GPU: Uuid = [7; 16];

/// A private directory with segments, removed at the end. It is in shared memory if there is any.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Dir {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() {
            shm.to_path_buf()
        } else {
            std::env::temp_dir()
        };
        Dir(tempfile::Builder::new()
            .prefix("gpushare-test-")
            .tempdir_in(base)
            .expect("a directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn open(&self) -> Segments {
        Segments::open_workload(self.path()).expect("segments")
    }

    pub fn operator(&self) -> Operator {
        shm_layout::Operator::open(self.path()).expect("operator")
    }

    pub fn viewer(&self) -> Segments {
        Segments::open_viewer(self.path()).expect("viewer")
    }

    /// Makes an edit as the operator. Returns the generation.
    pub fn edit(&self, change: &Change) -> u64 {
        let made = self.operator().edit(None, change, clock::now());
        made.expect("edited").generation
    }

    /// Limits the test's device.
    pub fn limit(&self, bytes: u64) -> u64 {
        let value = QuotaValue::Bytes(bytes);
        self.edit(&Change::DeviceLimit { uuid: GPU, value })
    }

    /// Sets the policy of every device.
    pub fn policy(&self, policy: LockPolicy) {
        self.edit(&Change::Policy {
            device: None,
            policy: Some(policy),
            until: None,
        });
    }

    /// Creates or changes a group with a quota.
    pub fn group(&self, name: &str, bytes: u64) {
        self.edit(&Change::Group {
            name: name.to_owned(),
            settings: shm_layout::GroupEdit {
                memory: Set::To(QuotaValue::Bytes(bytes)),
                ..shm_layout::GroupEdit::default()
            },
            remove: false,
        });
    }

    /// Sets a process's quota on all its devices.
    pub fn quota(&self, process: &Registration, value: QuotaValue) {
        self.edit(&Change::ProcessQuota {
            slot: process.slot(),
            device: None,
            value,
            until: None,
        });
    }
}

pub fn process(segments: &Segments, label: &str) -> (Registration, Entry) {
    with_limits(segments, label, &LaunchLimits::default())
}

/// Registers a process in the slot that another has given up. A fork in another test may hold the lock on an earlier slot for a moment,
/// which is free again by now.
pub fn heir(segments: &Segments, slot: SlotId, label: &str) -> (Registration, Entry) {
    let mut others = Vec::new();
    loop {
        let next = process(segments, label);
        if next.0.slot().index == slot.index {
            return next;
        }
        others.push(next);
    }
}

pub fn with_limits(
    segments: &Segments,
    label: &str,
    limits: &LaunchLimits,
) -> (Registration, Entry) {
    let registration = register(segments, &Identity::of_self(label), limits).expect("a slot");
    let entry = registration
        .add_device(GPU, 0, "Test GPU", 1024 * MIB, DEVICE_SIM)
        .expect("an entry");
    (registration, entry)
}

/// Enters devices until the table is full; a process holds the first one.
pub fn fill_devices(segments: &Segments) -> Registration {
    let take = || register(segments, &Identity::default(), &LaunchLimits::default());
    let all: Vec<Registration> = (0..MAX_DEVICES / DEVICES_PER_PROCESS)
        .map(|_| take().expect("a slot"))
        .collect();
    for index in 0..MAX_DEVICES {
        let uuid = [index as u8 + 101; 16];
        let uuid = if index == 0 { [1; 16] } else { uuid };
        all[index / DEVICES_PER_PROCESS]
            .add_device(uuid, 0, "Full GPU", MIB, 0)
            .expect("room");
    }
    let stays = take().expect("a slot");
    stays
        .add_device([1; 16], 0, "", MIB, 0)
        .expect("it is there");
    stays
}

/// Waits for the lock until the process has it.
pub fn acquire(process: &Registration, entry: Entry) {
    let got = process.lock(entry).acquire(&|| false);
    assert!(matches!(got, Acquire::Held { .. }), "{got:?}");
}

pub fn look(segments: &Segments) -> Snapshot {
    snapshot(segments, clock::now())
}

pub const NOBODY: u32 = 65534;

/// Returns true if tests may run as several users.
pub fn may_be_others() -> bool {
    needs(Need::Root)
}

/// Runs the named test of this binary as another user. Returns its output, or `None` if that is not possible.
pub fn as_user(uid: u32, test: &str, dir: &Dir) -> Option<String> {
    use std::os::unix::{fs::PermissionsExt as _, process::CommandExt as _};
    if !may_be_others() {
        return None;
    }
    let place = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("a directory");
    let copy = place.path().join("test");
    // A child makes the copy: if this process had the file open for writing, a program started by another test would inherit
    // the descriptor, and the kernel would refuse to start the copy.
    let made = Command::new("install")
        .args(["-m", "755"])
        .arg(std::env::current_exe().expect("our own path"))
        .arg(&copy)
        .status();
    assert!(made.expect("started").success());
    let output = Command::new(&copy)
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, "other")
        .env(DIR, dir.path())
        .uid(uid)
        .gid(uid)
        .output()
        .expect("started");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Limit of [`eventually`]: a watchdog, not a measurement.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Kid(pub Child);

impl Kid {
    /// Starts this test binary again for `test` only. The test finds `role` in its environment.
    pub fn spawn(test: &str, dir: &Dir, role: &str, extra: &[(&str, &str)]) -> Kid {
        Kid::spawn_through(&[], test, dir, role, extra)
    }

    /// Starts this test binary through another program.
    pub fn spawn_through(
        program: &[&str],
        test: &str,
        dir: &Dir,
        role: &str,
        extra: &[(&str, &str)],
    ) -> Kid {
        let exe = std::env::current_exe().expect("our own path");
        let mut command = match program {
            [] => Command::new(exe),
            [name, arguments @ ..] => {
                let mut command = Command::new(name);
                command.args(arguments).arg(exe);
                command
            }
        };
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        for (name, value) in extra {
            command.env(name, value);
        }
        Kid(command.spawn().expect("a child"))
    }

    /// Reads until the child has written a word.
    pub fn hear(&mut self, word: &str) {
        let out = self.0.stdout.as_mut().expect("its output");
        let mut heard = Vec::new();
        let mut byte = [0];
        while !heard.ends_with(word.as_bytes()) {
            let got = out.read(&mut byte).expect("readable");
            assert!(
                got == 1,
                "the child ended before it said {word:?}: {}",
                String::from_utf8_lossy(&heard)
            );
            heard.push(byte[0]);
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it is ours");
    }

    /// Returns true if the child is stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        stat.is_ok_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
        })
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the child hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const DIR: &str = "GPUSHARE_TEST_DIR";
const ROLE: &str = "GPUSHARE_TEST_ROLE";

/// Returns, in a child, its role and directory.
pub fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(DIR)?.into()))
}

/// Writes, in a child, a word to the parent.
pub fn say(word: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}

/// Sleeps, in a child, until the parent ends or kills it.
pub fn sleep_on() -> ! {
    let mut byte = [0];
    let _ = std::io::stdin().read(&mut byte);
    std::process::exit(0)
}
