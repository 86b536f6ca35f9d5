//! The keeper's part of a trace: it follows the operator's orders, publishes and removes buffers, and reports their
//! progress.
//!
//! A new trace is published for all threads, and the previous one is removed. The parameters of every trace buffer of
//! this process, and its private buffer, are here too.
#![allow(unsafe_code, reason = "frees the trace before")]

mod files;

use std::{
    ptr::null_mut,
    sync::{Arc, MutexGuard, PoisonError, TryLockError, atomic::Ordering::*},
    time::{Duration, Instant},
};

use shm_layout::{
    Event, EventKind, Uuid, clock, snapshot,
    trace::{
        self as format, Buffer, DEFAULT_RECORDS, Order, Progress, TraceError, TraceState, create,
    },
};

use crate::{
    driver::INFO,
    managed_process::{self, ManagedProcess},
    notice::{self, Cause},
    sys::{
        barrier,
        futex::{self, Watch},
    },
    thread,
    trace::{
        self, early, quiescence,
        state::{Current, Trace, Tracer},
    },
};

impl Current {
    fn publish(&self, process: &ManagedProcess) {
        publish(process, self.shared.clone(), self.private.clone());
    }
}

const NO_FILES: u32 = 0;
const WRITING: u32 = 1;
const WRITTEN: u32 = 2;

impl Tracer {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, or gives up after 0.2 s: a signal handler may end the process while its own thread has the
    /// lock.
    fn lock_patiently(&self) -> Option<MutexGuard<'_, Current>> {
        for _ in 0..200 {
            match self.current.try_lock() {
                Ok(current) => return Some(current),
                Err(TryLockError::Poisoned(current)) => return Some(current.into_inner()),
                Err(TryLockError::WouldBlock) => futex::nap(Duration::from_millis(1)),
            }
        }
        None
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Starts the traces that `GPUSHARE_TRACE` and `PFLOG` request; called at registration.
    pub fn start(&self, process: &'static ManagedProcess) {
        self.start_trace(process);
        self.start_files(process);
    }

    fn start_files(&self, process: &'static ManagedProcess) {
        if process.environment.profile.is_none() {
            return;
        }
        let Some(buffer) = private(process) else {
            return;
        };
        early::write(&buffer);
        let mut current = self.lock();
        current.private = Some(Arc::clone(&buffer));
        current.unread = Some(buffer);
        self.files.store(WRITING, Relaxed);
        if files::start(process) {
            current.publish(process);
        } else {
            (current.private, current.unread) = (None, None);
            self.files.store(NO_FILES, Relaxed);
        }
        self.say(process, &current);
    }

    /// Starts a trace from the first call on, as requested at launch. The process creates the buffer itself, like the
    /// operator's tool. An order of the operator ends it or replaces it.
    fn start_trace(&self, process: &ManagedProcess) {
        let Some(records) = process.environment.trace else {
            return;
        };
        let (segments, slot) = (process.registration.segments(), process.registration.slot());
        let processes = snapshot(segments, clock::now()).processes;
        let Some(own) = processes.iter().find(|process| process.slot == slot) else {
            return;
        };
        let dir = segments.dir();
        let opened = create(dir, own.slot, &own.identity, records)
            .and_then(|_| with_guest(process, |made| Buffer::adopt(dir, slot, made)));
        let mut current = self.lock();
        match opened {
            Ok(buffer) => {
                early::write(&buffer);
                (current.state, current.shared) = (TraceState::On, Some(Arc::new(buffer)));
                current.publish(process);
            }
            Err(error) => {
                notice::once(
                    Cause::Trace,
                    format_args!("GPUSHARE_TRACE: {error}; the program runs without a trace"),
                );
                current.state = TraceState::of_error(&error);
            }
        }
        self.say(process, &current);
    }

    /// Returns the first buffer whose records become lines, once.
    fn first_private(&self) -> Option<Arc<Buffer>> {
        self.lock().unread.take()
    }

    /// Makes the threads write to an empty buffer; afterwards no thread writes to the previous one. Returns false at
    /// the end.
    fn change_private(&self, process: &ManagedProcess, empty: &Arc<Buffer>) -> bool {
        let mut current = self.lock();
        let Some(full) = current.private.replace(Arc::clone(empty)) else {
            current.private = None;
            return false;
        };
        current.publish(process);
        current.dropped += full.length().dropped;
        true
    }

    /// Sleeps for `time`. Returns true at once when nothing more will be written.
    fn sleep_unless_over(&self, time: Duration) -> bool {
        // ORDER: Acquire pairs with the Release in `end`; a new number comes with `over`.
        let seen = self.bell.load(Acquire);
        if !self.is_over() {
            let watch = Watch {
                word: &self.bell,
                seen,
                private: true,
            };
            futex::wait_any(&[watch], time);
        }
        self.is_over()
    }

    /// Records that the thread that writes the files has written everything.
    fn files_are_written(&self) {
        // ORDER: Release pairs with the Acquire in `wait_for_files`; the last lines are written.
        self.files.store(WRITTEN, Release);
        futex::wake_private(&self.files);
    }

    /// Waits until the last lines are written, at most 2 s, because the file system may hang. Called after
    /// [`end`](Self::end).
    pub fn wait_for_files(&self) {
        let until = Instant::now() + Duration::from_secs(2);
        // ORDER: Acquire pairs with the Release in `files_are_written`.
        while self.files.load(Acquire) == WRITING && Instant::now() < until {
            let watch = Watch {
                word: &self.files,
                seen: WRITING,
                private: true,
            };
            futex::wait_any(&[watch], Duration::from_millis(20));
        }
    }

    /// Follows the operator's order. When it returns, every launch that begins is traced, or none is.
    pub fn follow(&self, process: &ManagedProcess) {
        let order = process.registration.trace_order();
        let mut current = self.lock();
        if order == current.order || self.is_over() {
            return;
        }
        current.order = order;
        let opened = order.and_then(Order::room).map(|_| {
            let registration = &process.registration;
            let dir = registration.segments().dir();
            with_guest(process, |made| {
                Buffer::adopt(dir, registration.slot(), made)
            })
        });
        let (state, next) = match opened {
            None => (TraceState::Off, None),
            Some(Ok(buffer)) => (TraceState::On, Some(Arc::new(buffer))),
            Some(Err(error)) => {
                refused(process, &error);
                (TraceState::of_error(&error), None)
            }
        };
        let before = std::mem::replace(&mut current.shared, next);
        current.state = state;
        current.publish(process);
        if let Some(buffer) = before {
            close(process, &buffer);
        }
        self.say(process, &current);
    }

    /// Updates the buffer's time and its progress; the keeper calls this at each heartbeat.
    pub fn tick(&self, process: &ManagedProcess, now: u64) {
        let current = self.lock();
        if let Some(buffer) = &current.shared {
            buffer.seen(now);
        }
        if current.shared.is_some() || current.private.is_some() {
            self.say(process, &current);
        }
    }

    /// Ends the trace because the process ends or becomes unmanaged. Afterwards the buffers are complete.
    pub fn end(&self, process: &ManagedProcess) {
        let Some(mut current) = self
            .lock_patiently()
            .filter(|_| !self.over.swap(true, Relaxed))
        else {
            return;
        };
        let shared = current.shared.take();
        let private = current.private.take();
        if shared.is_none() && private.is_none() {
            return;
        }
        current.publish(process);
        if let Some(buffer) = shared {
            close(process, &buffer);
        }
        // ORDER: Release pairs with the Acquire in `sleep_unless_over` and publishes `over`.
        self.bell.fetch_add(1, Release);
        futex::wake_private(&self.bell);
    }

    /// Publishes the progress.
    fn say(&self, process: &ManagedProcess, current: &Current) {
        let buffer = current.shared.as_ref().or(current.private.as_ref());
        let length = buffer.map(|buffer| buffer.length()).unwrap_or_default();
        let earlier = if current.shared.is_some() {
            0
        } else {
            current.dropped
        };
        process.registration.trace_progress(&Progress {
            state: current.state,
            logs: current.private.is_some(),
            records: length.records,
            dropped: length.dropped + earlier,
        });
    }
}

/// Publishes the error in an event. The operator sees it there and in the slot, so the process's terminal gets no
/// line.
fn refused(process: &ManagedProcess, error: &TraceError) {
    let slot = process.registration.slot();
    process.registration.segments().state().publish(Event {
        seq: 0,
        time_ns: clock::now(),
        slot: slot.index,
        epoch: slot.epoch,
        device: u8::MAX,
        kind: EventKind::Trouble,
        arg0: TraceState::of_error(error) as u64,
        arg1: 0,
        call: u16::MAX,
    });
}

/// Longest wait for a thread to finish a write. A buffer that is in use for longer stays mapped forever.
const PATIENCE: Duration = Duration::from_secs(1);

/// Makes all threads write to these buffers. Afterwards no thread writes to the previous buffers, unless the wait
/// timed out.
pub fn publish(
    process: &ManagedProcess,
    shared: Option<Arc<Buffer>>,
    private: Option<Arc<Buffer>>,
) {
    let Some(page) = managed_process::page() else {
        return;
    };
    let on = shared.is_some() || private.is_some();
    let next = if on {
        Box::into_raw(Box::new(Trace { shared, private }))
    } else {
        null_mut()
    };
    // ORDER: Release publishes the trace to `writing`; Acquire for the previous one.
    let before = page.trace.swap(next, AcqRel);
    trace::switch(on);
    for device in &process.devices {
        device.turn.retrace(device);
    }
    // Afterwards every launching thread sees its gate as it is now.
    barrier::heavy();
    if old_one_is_unused() && !before.is_null() {
        // SAFETY: it was published here, is the only one of its kind, and no thread uses it any more.
        drop(unsafe { Box::from_raw(before) });
    }
}

/// Waits until every thread was seen outside a write since the pointer was changed. Returns false after a timeout.
fn old_one_is_unused() -> bool {
    quiescence::changed();
    let until = Instant::now() + PATIENCE;
    for thread in thread::all() {
        let mark = &thread.tracing.mark;
        let seen = quiescence::read(mark);
        while !quiescence::has_left(mark, seen) {
            if Instant::now() > until {
                return false;
            }
            futex::nap(Duration::from_micros(20));
        }
    }
    true
}

/// Writes the holds that still last as the last records of a buffer.
pub fn close(process: &ManagedProcess, buffer: &Buffer) {
    let now = clock::now();
    for device in &process.devices {
        if let Some(since) = device.turn.held_since() {
            buffer.hold(since, now.saturating_sub(since), device.ordinal, None);
        }
    }
    buffer.stopped(now);
}

// A buffer has a name and a row for every function of the table.
const _: () = assert!(crate::driver::COUNT <= format::CALLS);

/// Returns the exported names by call code.
fn names() -> Vec<&'static str> {
    INFO.iter().map(|info| info.name).collect()
}

/// Calls `make` with the parameters of this process's trace buffers.
fn with_guest<T>(process: &ManagedProcess, make: impl FnOnce(format::Guest<'_>) -> T) -> T {
    let devices: Vec<Uuid> = process.devices.iter().map(|device| device.uuid).collect();
    make(format::Guest {
        calls: &names(),
        devices: &devices,
    })
}

/// Creates a private buffer.
fn private(process: &ManagedProcess) -> Option<Arc<Buffer>> {
    match with_guest(process, |made| Buffer::private(DEFAULT_RECORDS, made)) {
        Ok(buffer) => Some(Arc::new(buffer)),
        Err(error) => {
            notice::once(Cause::Trace, format_args!("PFLOG: {error}"));
            None
        }
    }
}
