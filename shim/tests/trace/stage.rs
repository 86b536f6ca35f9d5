//! A traced program, and its operator.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use gpushare_testbed::{Testbed, Watched, cc, cc_driver, eventually};
use shm_layout::{
    Change, Operator, ProcessView, Segments, SlotId, clock, snapshot,
    trace::{self, Reader, TraceState},
};

/// Watchdog, long enough for a busy machine; it is reached only if something hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program `apps/traced.c`, which executes commands.
pub struct Program {
    pub watched: Watched,
    dir: PathBuf,
}

impl Program {
    /// Starts the program on the simulator and calls `cuInit`.
    pub fn start(bed: &Testbed, variables: &[(&str, &str)]) -> Program {
        let mut program = Self::bare(bed, variables);
        program.tell("init");
        program
    }

    /// Starts the program without any CUDA call.
    pub fn bare(bed: &Testbed, variables: &[(&str, &str)]) -> Program {
        let mut command = bed.preloaded(app());
        command.envs(variables.iter().copied());
        Self::of(&mut command, bed.dir())
    }

    /// Starts the program on a driver that does nothing, which makes calls fast.
    pub fn on_noop_driver(dir: &Path, variables: &[(&str, &str)]) -> Program {
        let driver = cc_driver(&source("noop_driver.c"), &["-O2"]);
        let mut command = Command::new(app());
        command
            .env("LD_PRELOAD", gpushare_testbed::artifact("libgpushare.so"))
            .env("LD_LIBRARY_PATH", driver.parent().expect("a folder"))
            .env("GPUSHARE_DIR", dir)
            .envs(variables.iter().copied());
        let mut program = Self::of(&mut command, dir);
        program.tell("init");
        program
    }

    fn of(command: &mut Command, dir: &Path) -> Program {
        Program {
            watched: Watched::spawn(command),
            dir: dir.to_path_buf(),
        }
    }

    /// Executes one command that must succeed, and returns its number of calls.
    pub fn tell(&mut self, what: &str) -> u64 {
        let (code, did) = self.try_tell(what);
        assert_eq!(code, 0, "{what}; stderr: {}", self.watched.stderr());
        did
    }

    /// Executes one command and returns the driver's code and the number of calls.
    pub fn try_tell(&mut self, what: &str) -> (u64, u64) {
        let answer = self.watched.ask(what);
        let words = answer
            .split_once(' ')
            .and_then(|(code, did)| Some((code.parse().ok()?, did.parse().ok()?)));
        words.unwrap_or_else(|| panic!("{what}: {answer}"))
    }

    pub fn operator(&self) -> Operator {
        Operator::open(&self.dir).expect("our own segments")
    }

    pub fn view(&self) -> ProcessView {
        let segments = Segments::open_viewer(&self.dir).expect("our own segments");
        let processes = snapshot(&segments, clock::now()).processes;
        let found = processes
            .into_iter()
            .find(|process| process.identity.pid == self.watched.pid());
        found.expect("it has a slot")
    }

    pub fn slot(&self) -> SlotId {
        self.view().slot
    }

    pub fn path(&self) -> PathBuf {
        trace::path(&self.dir, self.slot())
    }

    /// Makes an edit and waits until the process has applied it.
    pub fn edit(&self, on: Option<u32>) {
        let operator = self.operator();
        let change = Change::Trace {
            slot: self.slot(),
            on,
        };
        let edit = operator
            .edit(None, &change, clock::now())
            .expect("a valid edit");
        eventually("the process acknowledges the edit", PATIENCE, || {
            operator.unacknowledged(edit.generation).is_empty()
        });
    }

    pub fn trace(&self, records: u32) -> PathBuf {
        let view = self.view();
        let path = trace::create(&self.dir, view.slot, &view.identity, records)
            .expect("room for a buffer");
        self.edit(Some(records));
        assert_eq!(self.state(), TraceState::On);
        path
    }

    pub fn state(&self) -> TraceState {
        self.view().trace.progress.state
    }

    /// Checks that the program ends successfully, without a message.
    pub fn ends(mut self) {
        self.watched.say("exit");
        self.watched.close_input();
        assert_eq!(self.watched.succeed().1, "");
    }
}

/// Returns how often a call was made according to the trace; a missing row is zero.
pub fn count(reader: &Reader, name: &str) -> u64 {
    reader
        .stats()
        .iter()
        .find(|stat| stat.name == name)
        .map_or(0, |stat| stat.count)
}

fn app() -> PathBuf {
    cc(&source("traced.c"), "traced", &["-ldl", "-lpthread", "-w"])
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/apps")
        .join(name)
}
