//! Streams: work in order.
//!
//! Each stream that has had work has a thread that does it, one task after the other. A task may depend on
//! marks in other streams (an event that is waited for, the rules of the legacy default stream); a mark
//! is always of work that was queued before, so waiting for it ends. A kernel becomes ready when the
//! work before it ended, not when the thread woke up, so short kernels follow each other closely.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY, CUDA_ERROR_OPERATING_SYSTEM, CUerror, CUresult,
};
use gpushare_abi::types::{CU_STREAM_NON_BLOCKING, CUstream};
use gpushare_sim::clock;

use crate::capture;
use crate::context::{self, Context, Streams};
use crate::driver::driver;
use crate::faces::DefaultStream;
use crate::handles::{Table, fresh, lock};
use crate::task::Task;

/// Tasks a stream holds before the next one has to wait, as the driver's queue is finite too.
const FULL: usize = 1024;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Its handle.
    pub handle: u64,
    /// Its context's handle.
    pub context: u64,
    /// Its device's ordinal.
    pub device: i32,
    /// `CU_STREAM_…`.
    pub flags: u32,
    /// Lower is more urgent.
    pub priority: i32,
    /// It is a legacy default stream.
    pub is_legacy: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    submitted: u64,
    completed: u64,
    /// When the latest task ended.
    ended: u64,
    has_thread: bool,
    closed: bool,
}

#[derive(Debug)]
struct Queued {
    after: Vec<Mark>,
    ready: u64,
    task: Task,
}

/// A place in a stream: everything queued up to then.
#[derive(Clone, Debug)]
pub struct Mark {
    stream: Arc<Stream>,
    number: u64,
}

static STREAMS: Table<Stream> = Table::new();

impl Mark {
    /// Waits until the work is done; returns when it was.
    pub fn wait(&self) -> u64 {
        let mut queue = self.stream.queue();
        while queue.completed < self.number {
            queue = self
                .stream
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.ended
    }

    /// The work is done.
    pub fn is_done(&self) -> bool {
        self.stream.queue().completed >= self.number
    }
}

impl Stream {
    fn new(context: u64, device: i32, flags: u32, priority: i32, is_legacy: bool) -> Arc<Self> {
        Arc::new(Self {
            handle: fresh(),
            context,
            device,
            flags,
            priority,
            is_legacy,
            queue: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The legacy default stream of a context that is being made.
    pub fn legacy(context: u64, device: i32) -> Arc<Self> {
        Self::new(context, device, 0, 0, true)
    }

    /// A new stream of a context.
    pub fn create(context: &Context, flags: u32, priority: i32) -> Arc<Self> {
        let stream = Self::new(
            context.handle,
            context.device,
            flags,
            priority.clamp(-5, 0),
            false,
        );
        let mut streams = lock(&context.streams);
        streams.all.retain(|other| other.strong_count() > 0);
        streams.all.push(Arc::downgrade(&stream));
        STREAMS.insert(stream.handle, Arc::clone(&stream));
        stream
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// It does not wait for the legacy default stream, nor that one for it.
    pub fn is_non_blocking(&self) -> bool {
        self.flags & CU_STREAM_NON_BLOCKING != 0
    }

    /// A mark of all that is queued so far.
    pub fn tail(self: &Arc<Self>) -> Mark {
        Mark {
            stream: Arc::clone(self),
            number: self.queue().submitted,
        }
    }

    /// Everything queued is done.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.completed == queue.submitted
    }

    /// Puts a task at the end of a capturing stream's graph, or of the stream.
    pub fn issue(self: &Arc<Self>, task: Task) -> CUresult {
        if capture::add(self, &task)? {
            return Ok(());
        }
        self.submit(task, Vec::new()).map(|_| ())
    }

    /// Queues a task behind what is queued, behind `after`, and behind what default streams demand.
    pub fn submit(self: &Arc<Self>, task: Task, mut after: Vec<Mark>) -> Result<Mark, CUerror> {
        let context = context::by_handle(self.context as _)?;
        let streams = lock(&context.streams);
        self.default_order(&streams, &mut after);
        let mut queue = self.queue();
        if !queue.has_thread {
            start_thread(Arc::clone(self))?;
            queue.has_thread = true;
        }
        queue.waiting.push_back(Queued {
            after,
            ready: clock::now(),
            task,
        });
        queue.submitted += 1;
        let mark = Mark {
            stream: Arc::clone(self),
            number: queue.submitted,
        };
        self.changed.notify_all();
        drop(streams);
        while queue.waiting.len() > FULL {
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(mark)
    }

    /// What has to be done before new work here: the legacy default stream and blocking streams wait for
    /// each other.
    fn default_order(&self, streams: &Streams, after: &mut Vec<Mark>) {
        if self.is_legacy {
            let others = streams.all.iter().filter_map(Weak::upgrade);
            let blocking = others.filter(|other| !other.is_non_blocking() && !other.is_legacy);
            after.extend(
                blocking
                    .map(|other| other.tail())
                    .filter(|mark| !mark.is_done()),
            );
        } else if !self.is_non_blocking() {
            let legacy = streams.legacy.tail();
            after.extend((!legacy.is_done()).then_some(legacy));
        }
    }

    /// Waits for the stream, and for what its next work would have to wait for.
    pub fn settle(self: &Arc<Self>) -> CUresult {
        let mut marks = vec![self.tail()];
        let context = context::by_handle(self.context as _)?;
        self.default_order(&lock(&context.streams), &mut marks);
        for mark in marks {
            mark.wait();
        }
        Ok(())
    }

    /// Ends its thread when what is queued is done.
    pub fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }

    /// The thread's life: do what comes, until the stream is closed and empty.
    fn work(&self) {
        loop {
            let (next, ended) = {
                let mut queue = self.queue();
                loop {
                    if let Some(next) = queue.waiting.pop_front() {
                        break (next, queue.ended);
                    }
                    if queue.closed {
                        queue.has_thread = false;
                        return;
                    }
                    queue = self
                        .changed
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            };
            let mut ready = next.ready.max(ended);
            for mark in &next.after {
                ready = ready.max(mark.wait());
            }
            let ended = match driver() {
                Ok(driver) => next.task.run(driver, self.device, ready),
                Err(_) => ready,
            };
            drop(next);
            let mut queue = self.queue();
            queue.completed += 1;
            queue.ended = ended;
            self.changed.notify_all();
        }
    }
}

/// Starts a stream's thread. It takes no signals: those are the application's.
fn start_thread(stream: Arc<Stream>) -> CUresult {
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets are live, the first is filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    let body = move || {
        // SAFETY: asks for exact wake-ups; no pointers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        stream.work();
    };
    let started = std::thread::Builder::new()
        .name("simulated gpu".into())
        .stack_size(256 << 10)
        .spawn(body);
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    started.map(|_| ()).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}

/// The stream that a handle means in the current context.
pub fn by_handle(default: DefaultStream, handle: CUstream) -> Result<Arc<Stream>, CUerror> {
    let which = match handle as usize {
        0 => Some(default),
        1 => Some(DefaultStream::Legacy),
        2 => Some(DefaultStream::PerThread),
        _ => None,
    };
    let Some(which) = which else {
        driver()?;
        return STREAMS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_HANDLE);
    };
    let context = context::current()?;
    let mut streams = lock(&context.streams);
    if which == DefaultStream::Legacy {
        return Ok(Arc::clone(&streams.legacy));
    }
    let thread = std::thread::current().id();
    if let Some(stream) = streams.per_thread.get(&thread) {
        return Ok(Arc::clone(stream));
    }
    let stream = Stream::new(context.handle, context.device, 0, 0, false);
    streams.all.push(Arc::downgrade(&stream));
    streams.per_thread.insert(thread, Arc::clone(&stream));
    Ok(stream)
}

/// Forgets a stream that the application destroys; what is queued is still done.
pub fn destroy(handle: CUstream) -> CUresult {
    driver()?;
    let stream = STREAMS
        .remove(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    capture::stream_gone(stream.handle);
    stream.close();
    Ok(())
}

/// Forgets all streams of a context.
pub fn close_all(context: u64) {
    capture::context_gone(context);
    for stream in STREAMS.remove_where(|stream| stream.context == context) {
        stream.close();
    }
}

/// `cuStreamSynchronize`.
pub fn synchronize(stream: &Arc<Stream>) -> CUresult {
    capture::forbid_on(stream)?;
    stream.settle()?;
    crate::pool::after_synchronisation();
    Ok(())
}

/// `cuStreamQuery`.
pub fn query(stream: &Arc<Stream>) -> CUresult {
    capture::forbid_on(stream)?;
    if stream.is_idle() {
        Ok(())
    } else {
        Err(CUDA_ERROR_NOT_READY)
    }
}
