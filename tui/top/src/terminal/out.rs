//! What is drawn goes to the terminal at once as far as it takes it, and the rest through a thread of its own: a terminal
//! that does not read blocks that thread and not the loop, which goes on hearing keys and signals.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Collects what is written and hands it over when it is flushed.
#[derive(Debug)]
pub struct Out {
    buffer: Vec<u8>,
    /// The terminal, opened by us so that a write that would block fails; that of others who have it is as it was.
    direct: Option<File>,
    pipe: Arc<Pipe>,
}

#[derive(Debug, Default)]
struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// The thread writes now.
    busy: bool,
    /// The terminal has gone.
    lost: bool,
    /// Nothing that is written matters any more.
    closed: bool,
    /// More belongs to what was written: one frame wakes the thread once.
    held: bool,
    /// The thread should end.
    over: bool,
}

impl State {
    /// Was all that was handed over taken?
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.busy
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is a single assignment: a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    /// A way to standard output.
    pub fn new() -> io::Result<(Self, Drain)> {
        let pipe = Arc::<Pipe>::default();
        let theirs = Arc::clone(&pipe);
        thread::Builder::new()
            .name("screen".into())
            .stack_size(64 << 10)
            .spawn(move || write(&theirs))?;
        let drain = Drain(Arc::clone(&pipe));
        let out = Self {
            buffer: Vec::new(),
            direct: direct(),
            pipe,
        };
        Ok((out, drain))
    }
}

/// Standard output if it is a terminal that we may open, as who has become another user may not.
fn direct() -> Option<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags.bits() as i32);
    let is_terminal = io::stdout().is_terminal();
    is_terminal.then(|| options.open("/proc/self/fd/1").ok())?
}

/// How far the terminal has come.
#[derive(Debug)]
pub struct Drain(Arc<Pipe>);

impl Drain {
    /// Has the terminal taken all that was drawn?
    pub fn is_ready(&self) -> bool {
        self.0.lock().is_idle()
    }

    /// From now on what is written is dropped, or is not.
    pub fn close(&self, closed: bool) {
        self.0.lock().closed = closed;
    }

    /// From now on what is flushed waits, or does not.
    pub fn hold(&self, held: bool) {
        self.0.lock().held = held;
    }

    /// Waits until the terminal has taken all, at most `limit`; whether it has.
    pub fn settle(&self, limit: Duration) -> bool {
        let state = self.0.lock();
        let unfinished = |state: &mut State| !state.is_idle() && !state.lost;
        let waited = self.0.changed.wait_timeout_while(state, limit, unfinished);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.pipe.lock().over = true;
        self.pipe.changed.notify_all();
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut state = self.pipe.lock();
        if state.closed {
            self.buffer.clear();
            return Ok(());
        }
        if state.lost {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.held {
            return Ok(());
        }
        if let (Some(direct), true) = (&mut self.direct, state.is_idle()) {
            // Who can be told at once is told without waking another thread. Whatever is wrong, the thread finds it too.
            let taken = direct.write(&self.buffer).unwrap_or(0);
            self.buffer.drain(..taken);
            if self.buffer.is_empty() {
                return Ok(());
            }
        }
        if state.waiting.is_empty() {
            // The two take turns, so that nothing is allocated for each frame.
            std::mem::swap(&mut state.waiting, &mut self.buffer);
        } else {
            state.waiting.append(&mut self.buffer);
        }
        drop(state);
        self.pipe.changed.notify_all();
        Ok(())
    }
}

fn write(pipe: &Pipe) {
    let mut bytes = Vec::new();
    loop {
        let mut state = pipe.lock();
        while state.waiting.is_empty() && !state.over {
            state = pipe
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.waiting.is_empty() {
            return;
        }
        bytes.clear();
        std::mem::swap(&mut bytes, &mut state.waiting);
        state.busy = true;
        drop(state);
        let mut out = io::stdout().lock();
        let written = out.write_all(&bytes).and_then(|()| out.flush());
        drop(out);
        let mut state = pipe.lock();
        state.busy = false;
        state.lost |= written.is_err();
        drop(state);
        pipe.changed.notify_all();
    }
}
