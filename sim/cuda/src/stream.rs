//! Streams: work in order.
//!
//! Each stream that has had work has a thread that does it, one piece after the other. Work may depend on
//! marks in other streams (an event that is waited for, the rules of the legacy default stream); a mark
//! is always of work that was queued before, so waiting for it ends. A kernel becomes ready when the
//! work before it ended, not when the thread woke up, so short kernels follow each other closely.

#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use gpushare_abi::errors::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OPERATING_SYSTEM,
    CUDA_ERROR_STREAM_DETACHED, CUerror, CUresult,
};
use gpushare_abi::types::CU_STREAM_NON_BLOCKING;
use gpushare_sim::clock;

use crate::driver::driver;
use crate::handles::{Table, fresh, lock};
use crate::own_thread;
use crate::work::Work;

/// Pieces of work a stream holds before the next one has to wait, as the driver's queue is finite too.
const FULL: usize = 1024;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// The stream's handle.
    pub handle: u64,
    /// The handle of the stream's context.
    pub context: u64,
    /// The handle of the context whose events it records.
    pub owner: u64,
    /// Set when the stream's green context was destroyed.
    is_detached: AtomicBool,
    /// The ordinal of the stream's device.
    pub device: i32,
    /// `CU_STREAM_…`.
    pub flags: u32,
    /// Lower is more urgent.
    pub priority: i32,
    /// True for a legacy default stream.
    pub is_legacy: bool,
    /// The streams of the context.
    streams: Weak<Streams>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    submitted: u64,
    completed: u64,
    /// The time at which the latest work ended.
    ended: u64,
    has_thread: bool,
    closed: bool,
}

#[derive(Debug)]
struct Queued {
    after: Vec<Mark>,
    ready: u64,
    work: Arc<dyn Work>,
}

/// A context's streams.
#[derive(Debug)]
pub struct Streams {
    /// The context's handle.
    context: u64,
    /// The handle of the context that owns the objects made in it.
    owner: u64,
    /// The ordinal of the device.
    device: i32,
    closed: AtomicBool,
    /// The legacy default stream.
    legacy: Arc<Stream>,
    others: Mutex<Others>,
}

/// The streams other than the legacy one.
#[derive(Debug, Default)]
struct Others {
    /// Each thread's default stream.
    per_thread: HashMap<ThreadId, Arc<Stream>>,
    /// All streams but the legacy one, default ones too, that may have work.
    all: Vec<Weak<Stream>>,
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

    /// Returns an error if the context of the work is lost.
    pub fn works(&self) -> CUresult {
        driver()?.works_on(self.stream.device)
    }

    /// Returns true if the work is done.
    pub fn is_done(&self) -> bool {
        self.stream.queue().completed >= self.number
    }
}

impl Streams {
    /// Creates the streams of a new context: the legacy default stream.
    pub fn new(context: u64, owner: u64, device: i32) -> Arc<Self> {
        let place = (context, owner, device);
        Arc::new_cyclic(|streams| Self {
            context,
            owner,
            device,
            closed: AtomicBool::new(false),
            legacy: Stream::new(place, Weak::clone(streams), (0, 0), true),
            others: Mutex::default(),
        })
    }

    fn stream(self: &Arc<Self>, flags: u32, priority: i32) -> Arc<Stream> {
        let streams = Arc::downgrade(self);
        let place = (self.context, self.owner, self.device);
        Stream::new(place, streams, (flags, priority.clamp(-5, 0)), false)
    }

    /// Creates a stream.
    pub fn create(self: &Arc<Self>, flags: u32, priority: i32) -> Arc<Stream> {
        let stream = self.stream(flags, priority);
        let mut others = lock(&self.others);
        others.all.retain(|other| other.strong_count() > 0);
        others.all.push(Arc::downgrade(&stream));
        STREAMS.insert(stream.handle, Arc::clone(&stream));
        stream
    }

    /// Returns the legacy default stream.
    pub fn legacy(&self) -> Arc<Stream> {
        Arc::clone(&self.legacy)
    }

    /// Returns the calling thread's default stream.
    pub fn per_thread(self: &Arc<Self>) -> Arc<Stream> {
        let thread = std::thread::current().id();
        let mut others = lock(&self.others);
        if let Some(stream) = others.per_thread.get(&thread) {
            return Arc::clone(stream);
        }
        let stream = self.stream(0, 0);
        others.all.push(Arc::downgrade(&stream));
        others.per_thread.insert(thread, Arc::clone(&stream));
        stream
    }

    /// Returns all streams that may have work.
    pub fn live(&self) -> Vec<Arc<Stream>> {
        let others = lock(&self.others);
        let all = others.all.iter().filter_map(Weak::upgrade);
        std::iter::once(self.legacy()).chain(all).collect()
    }

    /// Marks of all work.
    pub fn tails(&self) -> Vec<Mark> {
        self.live().iter().map(Stream::tail).collect()
    }

    /// Marks the streams of a destroyed green context, which can then only be destroyed.
    pub fn detach(&self) {
        self.closed.store(true, Relaxed);
        for stream in self.live() {
            stream.is_detached.store(true, Relaxed);
        }
    }

    /// Refuses more work, and ends the streams' threads when the queued work is done. Their handles are then those of
    /// streams in a destroyed context.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
        self.live().iter().for_each(|stream| stream.close());
    }
}

impl Stream {
    fn new(
        (context, owner, device): (u64, u64, i32),
        streams: Weak<Streams>,
        (flags, priority): (u32, i32),
        is_legacy: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            handle: fresh(),
            context,
            owner,
            is_detached: AtomicBool::new(false),
            device,
            flags,
            priority,
            is_legacy,
            streams,
            queue: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Returns the context's streams, or an error if the context is destroyed.
    fn streams(&self) -> Result<Arc<Streams>, CUerror> {
        let streams = self.streams.upgrade();
        let open = streams.filter(|streams| !streams.closed.load(Relaxed));
        open.ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Returns true if the stream and the legacy default stream do not wait for each other.
    pub fn is_non_blocking(&self) -> bool {
        self.flags & CU_STREAM_NON_BLOCKING != 0
    }

    /// Returns a mark behind all queued work.
    pub fn tail(self: &Arc<Self>) -> Mark {
        Mark {
            stream: Arc::clone(self),
            number: self.queue().submitted,
        }
    }

    /// Returns true if all queued work is done.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue();
        queue.completed == queue.submitted
    }

    /// Queues work behind the queued work, behind `after`, and behind the work that the rules of default streams
    /// require.
    pub fn queue_behind(
        self: &Arc<Self>,
        work: Arc<dyn Work>,
        mut after: Vec<Mark>,
    ) -> Result<Mark, CUerror> {
        let driver = driver()?;
        let streams = self.streams()?;
        // Held until the work is queued, so that no other stream's work comes between.
        let others = lock(&streams.others);
        self.default_order(&streams.legacy, &others, &mut after);
        let mut queue = self.queue();
        if !queue.has_thread {
            start_thread(Arc::clone(self))?;
            queue.has_thread = true;
        }
        queue.waiting.push_back(Queued {
            after,
            ready: clock::now(),
            work,
        });
        driver.member.queued(true);
        queue.submitted += 1;
        let mark = Mark {
            stream: Arc::clone(self),
            number: queue.submitted,
        };
        self.changed.notify_all();
        drop(others);
        while queue.waiting.len() > FULL {
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(mark)
    }

    /// Adds the work that must be done before new work here, because the legacy default stream and blocking streams
    /// wait for each other.
    fn default_order(&self, legacy: &Arc<Self>, others: &Others, after: &mut Vec<Mark>) {
        if self.is_legacy {
            let others = others.all.iter().filter_map(Weak::upgrade);
            let blocking = others.filter(|other| !other.is_non_blocking());
            after.extend(
                blocking
                    .map(|other| other.tail())
                    .filter(|mark| !mark.is_done()),
            );
        } else if !self.is_non_blocking() {
            let legacy = legacy.tail();
            after.extend((!legacy.is_done()).then_some(legacy));
        }
    }

    /// Waits for the stream's work, and for the work that its next work would have to wait for.
    pub fn settle(self: &Arc<Self>) -> CUresult {
        let mut marks = vec![self.tail()];
        let streams = self.streams()?;
        self.default_order(&streams.legacy, &lock(&streams.others), &mut marks);
        for mark in marks {
            mark.wait();
        }
        Ok(())
    }

    /// Ends the stream's thread when the queued work is done.
    pub fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }

    /// Runs the stream's thread: does queued work until the stream is closed and empty.
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
                Ok(driver) => next.work.run(driver, self.device, ready),
                Err(_) => ready,
            };
            drop(next);
            if let Ok(driver) = driver() {
                driver.member.queued(false);
            }
            let mut queue = self.queue();
            queue.completed += 1;
            queue.ended = ended;
            self.changed.notify_all();
        }
    }
}

/// Starts a stream's thread.
fn start_thread(stream: Arc<Stream>) -> CUresult {
    let body = move || {
        // SAFETY: asks for exact wake-ups; no pointers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        stream.work();
    };
    own_thread::start(body).map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)
}

/// Returns the stream that the application created under this handle.
pub fn by_handle(handle: u64) -> Result<Arc<Stream>, CUerror> {
    let driver = driver()?;
    let stream = STREAMS.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if stream.is_detached.load(Relaxed) {
        return Err(CUDA_ERROR_STREAM_DETACHED);
    }
    stream.streams()?;
    driver.works_on(stream.device)?;
    Ok(stream)
}

/// Removes a stream that the application destroys; its queued work is still done.
pub fn destroy(handle: u64) -> Result<Arc<Stream>, CUerror> {
    driver()?;
    let stream = STREAMS.remove(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    stream.close();
    if !stream.is_detached.load(Relaxed) {
        stream.streams()?;
    }
    Ok(stream)
}
