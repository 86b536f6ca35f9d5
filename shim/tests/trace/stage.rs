//! A traced program, and the operator beside it.

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

/// Long enough for a busy machine; nothing waits for it unless something hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// `apps/traced.c`, which does what it is told.
pub struct Program {
    pub watched: Watched,
    dir: PathBuf,
}

impl Program {
    /// Starts it on the simulator; it has called `cuInit`.
    pub fn start(bed: &Testbed, variables: &[(&str, &str)]) -> Program {
        let mut program = Self::bare(bed, variables);
        program.tell("init");
        program
    }

    /// Starts it; it has not touched CUDA yet.
    pub fn bare(bed: &Testbed, variables: &[(&str, &str)]) -> Program {
        let mut command = bed.preloaded(app());
        command.envs(variables.iter().copied());
        Self::of(&mut command, bed.dir())
    }

    /// Starts it on a driver that does nothing, and so is quick.
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

    /// Does one command, well, and says what it did.
    pub fn tell(&mut self, what: &str) -> u64 {
        let (code, did) = self.try_tell(what);
        assert_eq!(code, 0, "{what}; stderr: {}", self.watched.stderr());
        did
    }

    /// Does one command; the driver's code and what it did.
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

    /// Makes an edit and waits until it is obeyed.
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

    /// Makes the buffer and switches the trace on.
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

    /// It ends well and has said nothing.
    pub fn ends(mut self) {
        self.watched.say("exit");
        self.watched.close_input();
        let output = self.watched.wait_output();
        assert!(output.status.success(), "{}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// How often a call was made, by the trace's rows; no row is no call.
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
