//! The output to the terminal. As much as the terminal takes is written at once; the rest goes through a thread. A
//! terminal that does not read blocks that thread and not the loop, which continues to handle keys and signals.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A buffer that is handed over when it is flushed.
#[derive(Debug)]
pub struct Out {
    buffer: Vec<u8>,
    /// The terminal, opened again so that a write that would block fails. The open file of other processes keeps its
    /// mode.
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
    /// Set while the thread writes.
    busy: bool,
    /// Set once the terminal has gone.
    lost: bool,
    /// Set while more output follows, so that one frame wakes the thread once.
    held: bool,
    /// Set when the thread should end.
    over: bool,
}

impl State {
    /// Reports whether everything that was handed over is written.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.busy
    }
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is a single assignment: a panic leaves no partial state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    /// Opens standard output.
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

/// Opens standard output again if it is a terminal; `None` if that is not permitted, as after a change of user.
fn direct() -> Option<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags.bits() as i32);
    let is_terminal = io::stdout().is_terminal();
    is_terminal.then(|| options.open("/proc/self/fd/1").ok())?
}

/// The progress of the output.
#[derive(Debug)]
pub struct Drain(Arc<Pipe>);

impl Drain {
    /// Reports whether the terminal has taken everything.
    pub fn is_ready(&self) -> bool {
        self.0.lock().is_idle()
    }

    /// Starts or stops holding flushed output back.
    pub fn hold(&self, held: bool) {
        self.0.lock().held = held;
    }

    /// Waits until the terminal has taken everything, at most `limit`, and reports whether it has.
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
        if state.lost {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.held {
            return Ok(());
        }
        if let (Some(direct), true) = (&mut self.direct, state.is_idle()) {
            // A direct write avoids waking another thread. The thread finds any error too.
            let taken = direct.write(&self.buffer).unwrap_or(0);
            self.buffer.drain(..taken);
            if self.buffer.is_empty() {
                return Ok(());
            }
        }
        if state.waiting.is_empty() {
            // The two buffers alternate, so that no frame allocates memory.
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
