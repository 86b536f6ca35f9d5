//! A stage: the private driver, segments and timeline of one test's programs.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use gpushare_testbed::{Watched, artifact, cc, cc_driver, eventually};
use shm_layout::{
    Change, Event, EventReader, LockPolicy, Operator, ProcessView, Segments, SlotId, Snapshot,
    clock, snapshot, text,
};

/// Watchdog, long enough for a busy machine; it is reached only if something hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub pid: u32,
    pub device: u32,
    pub start: i64,
    pub end: i64,
}

pub struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    pub fn new() -> Self {
        Self::with_driver(&[])
    }

    /// Makes a stage with a driver that is compiled with these flags.
    pub fn with_driver(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let driver = cc_driver(&app("timed_driver.c"), flags);
        symlink(driver, dir.path().join("libcuda.so.1")).expect("a fresh directory takes links");
        let segments = dir.path().join("segments");
        fs::create_dir(&segments).expect("a fresh directory");
        fs::set_permissions(&segments, PermissionsExt::from_mode(0o700))
            .expect("our own directory");
        Self { dir }
    }

    pub fn segments(&self) -> PathBuf {
        self.dir.path().join("segments")
    }

    fn timeline(&self) -> PathBuf {
        self.dir.path().join("timeline")
    }

    /// Returns the command of a spinner under a policy; `apps/spinner.c` describes its arguments.
    pub fn spinner(&self, policy: &str, words: &str) -> Command {
        let mut command = self.program("spinner.c", policy);
        command.args(words.split_whitespace());
        command
    }

    /// Returns the command of a program of `apps` under a policy.
    pub fn program(&self, source: &str, policy: &str) -> Command {
        let program = cc(&app(source), source.trim_end_matches(".c"), &["-w"]);
        self.started_by(program, policy)
    }

    /// Returns the command of any program under a policy.
    pub fn started_by(&self, program: impl AsRef<OsStr>, policy: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.dir.path())
            .env("LD_PRELOAD", artifact("libgpushare.so"))
            .env("GPUSHARE_DIR", self.segments())
            .env("TIMELINE", self.timeline());
        if !policy.is_empty() {
            command.env("GPUSHARE_POLICY", exclusive(policy));
        }
        command
    }

    /// Returns the command in a sandbox that forbids these system calls.
    pub fn without(&self, calls: &[i64], command: &Command) -> Command {
        let mut boxed = Command::new(cc(&app("without.c"), "without", &["-w"]));
        boxed
            .args(calls.iter().map(i64::to_string))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => boxed.env(name, value),
                None => boxed.env_remove(name),
            };
        }
        boxed
    }

    /// Starts a spinner and waits until its first kernel has been launched.
    pub fn started(&self, policy: &str, words: &str) -> Watched {
        let mut spinner = Watched::spawn(&mut self.spinner(policy, words));
        assert_eq!(spinner.line(), "ready");
        spinner
    }

    pub fn operator(&self) -> Operator {
        Operator::open(&self.segments()).expect("our own segments")
    }

    pub fn snapshot(&self) -> Snapshot {
        let segments = Segments::open_viewer(&self.segments()).expect("our own segments");
        snapshot(&segments, clock::now())
    }

    pub fn process(&self, pid: u32) -> ProcessView {
        let found = self
            .snapshot()
            .processes
            .into_iter()
            .find(|process| process.identity.pid == pid);
        found.unwrap_or_else(|| panic!("no slot shows process {pid}"))
    }

    /// Makes an edit and waits until every process has acknowledged it.
    pub fn edit(&self, change: &Change) {
        let operator = self.operator();
        let edit = operator
            .edit(None, change, clock::now())
            .expect("a valid edit");
        eventually("every process acknowledges the edit", PATIENCE, || {
            operator.unacknowledged(edit.generation).is_empty()
        });
    }

    pub fn policy(&self, policy: &str) {
        let edit = text::parse_policy(&[&exclusive(policy)]).expect("a policy");
        let policy = edit
            .apply(LockPolicy::default())
            .expect("a policy that makes sense");
        self.edit(&Change::Policy {
            device: None,
            policy: Some(policy),
            until: None,
        });
    }

    pub fn slot_of(&self, pid: u32) -> SlotId {
        self.process(pid).slot
    }

    /// Returns every kernel so far, ordered by start time.
    pub fn kernels(&self) -> Vec<Kernel> {
        let text = fs::read_to_string(self.timeline()).unwrap_or_default();
        let mut kernels: Vec<_> = text.lines().filter_map(kernel).collect();
        kernels.sort_unstable_by_key(|kernel| (kernel.start, kernel.end));
        kernels
    }

    pub fn kernels_of(&self, pid: u32) -> usize {
        self.kernels()
            .iter()
            .filter(|kernel| kernel.pid == pid)
            .count()
    }

    /// Counts kernels that ran while a kernel of another process ran on the same device.
    pub fn overlaps(&self) -> usize {
        let mut ends: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        let mut overlaps = 0;
        for kernel in self.kernels() {
            overlaps += ends
                .iter()
                .filter(|((device, pid), end)| {
                    *device == kernel.device && *pid != kernel.pid && **end > kernel.start
                })
                .count();
            let end = ends.entry((kernel.device, kernel.pid)).or_default();
            *end = kernel.end.max(*end);
        }
        overlaps
    }

    /// Counts how often a device went from one process to another.
    pub fn switches(&self) -> usize {
        let mut last: BTreeMap<u32, u32> = BTreeMap::new();
        let mut switches = 0;
        for kernel in self.kernels() {
            if last
                .insert(kernel.device, kernel.pid)
                .is_some_and(|before| before != kernel.pid)
            {
                switches += 1;
            }
        }
        switches
    }
}

/// Waits for a program to end successfully, and returns its last line.
pub fn last_line(program: Watched) -> String {
    let output = program.wait_output();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{} {text} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "",
        "nothing is said on stderr"
    );
    text.lines().last().unwrap_or_default().to_owned()
}

/// Returns every event that is still in the ring, oldest first.
pub fn events(segments: &Segments) -> Vec<Event> {
    let mut reader = EventReader::from_start(segments.state());
    std::iter::from_fn(|| reader.next(segments.state()))
        .flatten()
        .collect()
}

/// Returns the number after a word in a line.
pub fn number(line: &str, word: &str) -> u64 {
    let rest = line
        .split(word)
        .nth(1)
        .unwrap_or_else(|| panic!("no {word:?} in {line:?}"));
    let digits: String = rest
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no number behind {word:?} in {line:?}"))
}

/// Adds `overlap=0` to a policy with time slices, unless it sets an overlap.
fn exclusive(policy: &str) -> String {
    if policy.starts_with("timeslice") && !policy.contains("overlap=") {
        return format!("{policy} overlap=0");
    }
    policy.to_owned()
}

fn kernel(line: &str) -> Option<Kernel> {
    let mut words = line.split(' ');
    Some(Kernel {
        pid: words.next()?.parse().ok()?,
        device: words.next()?.parse().ok()?,
        start: words.next()?.parse().ok()?,
        end: words.next()?.parse().ok()?,
    })
}

fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(name)
}
