//! The C client `apps/memory.c` with the library preloaded, and its state in the segment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpushare_testbed::{Testbed, Watched, cc};
use shm_layout::{ProcessView, Segments, Snapshot, clock, snapshot};

/// Watchdog, long enough for a busy machine; it is reached only if something hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

pub const INVALID_VALUE: u64 = 1;
pub const OUT_OF_MEMORY: u64 = 2;

pub struct Client<'b> {
    bed: &'b Testbed,
    pub watched: Watched,
}

impl<'b> Client<'b> {
    /// Starts the client with these variables and initialises device 0.
    pub fn start(bed: &'b Testbed, variables: &[(&str, &str)]) -> Self {
        let mut client = Self::start_bare(bed, variables);
        client.ok("init");
        client.ok("device 0");
        client
    }

    /// Starts the client on `apps/odd_driver.c` instead of the simulator.
    pub fn start_on_odd_driver(bed: &'b Testbed, variables: &[(&str, &str)]) -> Self {
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        let driver = cc(&app("odd_driver.c"), "libcuda.so.1", &flags);
        let folder = driver
            .parent()
            .and_then(Path::to_str)
            .expect("a path in UTF-8");
        let variables = [variables, &[("LD_LIBRARY_PATH", folder)]].concat();
        Self::start(bed, &variables)
    }

    /// Starts the client without any CUDA call.
    pub fn start_bare(bed: &'b Testbed, variables: &[(&str, &str)]) -> Self {
        let mut command = bed.preloaded(cc(&app("memory.c"), "memory", &["-ldl", "-pthread"]));
        command.envs(variables.iter().copied());
        Self {
            bed,
            watched: Watched::spawn(&mut command),
        }
    }

    /// Executes one command and returns its code and its output.
    pub fn ask(&mut self, command: &str) -> (u64, Vec<String>) {
        let answer = self.watched.ask(command);
        let mut words = answer.split(' ').map(str::to_owned);
        let code = words.next().and_then(|code| code.parse().ok());
        (
            code.unwrap_or_else(|| panic!("{command}: {answer}")),
            words.collect(),
        )
    }

    pub fn code(&mut self, command: &str) -> u64 {
        self.ask(command).0
    }

    /// Executes one command that must succeed, and returns its numbers.
    pub fn ok(&mut self, command: &str) -> Vec<u64> {
        let (code, words) = self.ask(command);
        assert_eq!(code, 0, "{command}; stderr: {}", self.watched.stderr());
        words.iter().filter_map(|word| word.parse().ok()).collect()
    }

    pub fn denied(&mut self, command: &str) {
        assert_eq!(self.code(command), OUT_OF_MEMORY, "{command}");
    }

    /// Sends a command whose reply comes later.
    pub fn begin(&mut self, command: &str) {
        self.watched.say(command);
    }

    /// Returns the code in the reply to the command of [`Self::begin`].
    pub fn end(&mut self) -> u64 {
        let answer = self.watched.line();
        let code = answer.split(' ').next().and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("{answer}"))
    }

    /// Returns true if the reply does not come within 0.3 s.
    pub fn goes_on(&mut self) -> bool {
        self.watched
            .line_within(Duration::from_millis(300))
            .is_none()
    }

    pub fn process(&self) -> ProcessView {
        let pid = self.watched.pid();
        let processes = look(self.bed).processes;
        let ours = processes
            .into_iter()
            .find(|process| process.identity.pid == pid);
        ours.expect("the client is registered")
    }

    /// Returns the bytes that it holds on a device according to the segment.
    pub fn used_on(&self, ordinal: u8) -> u64 {
        let process = self.process();
        process
            .devices
            .iter()
            .find(|device| device.ordinal == ordinal)
            .expect("entered")
            .used
    }

    pub fn used(&self) -> u64 {
        self.used_on(0)
    }
}

/// Returns the path of a C program of these tests.
pub fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(name)
}

pub fn look(bed: &Testbed) -> Snapshot {
    let segments = Segments::open_viewer(bed.dir()).expect("the client made them");
    snapshot(&segments, clock::now())
}
