//! The files of `PFLOG`, in the format of Alnair's hook library, written by a thread of its own.
//!
//! Calls go into a buffer in private memory, from registration on. Of earlier calls, the look-ups are summed up and
//! the first `cuInit` is recorded. The thread reads the buffer once a second, or when it is half full, and appends
//! whole lines to `timeline.log`: processes that share a directory share that file and lose nothing. `metrics.log`
//! has the sums of one process: the first one uses this name for as long as it lives, others write `metrics.PID.log`.
//! A half full buffer is replaced by an empty one. A buffer that fills earlier counts the records that it drops, and
//! the sums stay exact. A file system that hangs delays only this thread, and the end of the program by at most two
//! seconds. A program that is killed loses the lines of its last second.
#![allow(unsafe_code, reason = "the thread's entry")]

use std::{
    ffi::c_void,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use shm_layout::{
    clock,
    trace::{
        Buffer, Kind, Record, alnair,
        claim::{self, Claim},
    },
};

use crate::{
    managed_process::{self, ManagedProcess},
    notice::{self, Cause},
    sys::own_thread,
    trace::control::{names, private},
};

/// Period of writing the files, in nanoseconds.
const PERIOD: u64 = 1_000_000_000;
/// Polling period of the buffer.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of lines that are written at once.
const PART: usize = 60_000;

/// Starts the thread; it gets its buffer from the tracer.
pub fn start(process: &'static ManagedProcess) -> bool {
    let started = own_thread::start(process, body);
    if !started {
        notice::once(
            Cause::Trace,
            format_args!("PFLOG: cannot start a thread; the program continues without it"),
        );
    }
    started
}

extern "C" fn body(process: *mut c_void) -> *mut c_void {
    // SAFETY: `start` passes a managed process, which is never freed.
    let process: &'static ManagedProcess = unsafe { &*process.cast::<ManagedProcess>() };
    let _unwatched = own_thread::begin(c"gpushare-log");
    if catch_unwind(AssertUnwindSafe(|| keep(process))).is_err() {
        managed_process::fault();
    }
    process.tracer.files_are_written();
    std::ptr::null_mut()
}

fn keep(process: &'static ManagedProcess) {
    let (Some(dir), Some(buffer)) = (&process.environment.profile, process.tracer.first_private())
    else {
        return;
    };
    let mut log = Log::start(dir, buffer);
    while !process.tracer.sleep_unless_over(LOOK) {
        log.tick(clock::now());
        if log.is_filling()
            && let Some(empty) = private(process)
            && process.tracer.change_private(process, &empty)
        {
            log.go_on_with(empty);
        }
    }
    log.end();
}

/// The files of one process.
struct Log {
    timeline: PathBuf,
    metrics: PathBuf,
    /// The claim on the plain name `metrics.log`.
    _claim: Option<Claim>,
    buffer: Arc<Buffer>,
    names: Vec<&'static str>,
    /// The next record that has not been written.
    place: u64,
    /// The sums of earlier buffers: count and nanoseconds by call code.
    sums: Vec<(u64, u64)>,
    next_ns: u64,
    lines: String,
}

impl Log {
    fn start(dir: &Path, buffer: Arc<Buffer>) -> Log {
        let plain = dir.join("metrics.log");
        let (metrics, claim) = match Claim::of(&plain) {
            Ok(Some(claim)) => (plain, Some(claim)),
            _ => {
                let name = format!("metrics.{}.log", std::process::id());
                (dir.join(name), None)
            }
        };
        let names = names();
        Log {
            timeline: dir.join("timeline.log"),
            metrics,
            _claim: claim,
            buffer,
            sums: vec![(0, 0); names.len()],
            names,
            place: 0,
            next_ns: 0,
            lines: String::new(),
        }
    }

    /// Writes the files when it is time.
    fn tick(&mut self, now: u64) {
        if now >= self.next_ns || self.is_filling() {
            self.next_ns = now.saturating_add(PERIOD);
            self.take_lines(false);
            self.write_metrics();
        }
    }

    /// Returns true if the buffer should be replaced by an empty one.
    fn is_filling(&self) -> bool {
        let length = self.buffer.length();
        length.records > length.capacity / 2
    }

    /// Writes the last lines of a buffer to which no thread writes any more, adds its sums, and continues with
    /// another buffer.
    fn go_on_with(&mut self, next: Arc<Buffer>) {
        self.take_lines(true);
        for (code, sum) in self.sums.iter_mut().enumerate() {
            let (count, total_ns) = self.buffer.sum_of(code as u16);
            *sum = (sum.0.wrapping_add(count), sum.1.wrapping_add(total_ns));
        }
        self.buffer = next;
        self.place = 0;
    }

    /// Writes the rest after the last write of any thread.
    fn end(mut self) {
        self.take_lines(true);
        self.write_metrics();
    }

    fn take_lines(&mut self, is_final: bool) {
        let buffer = Arc::clone(&self.buffer);
        let mut lines = std::mem::take(&mut self.lines);
        let timeline = &self.timeline;
        self.place = buffer.records_from(self.place, &self.names, is_final, |record| {
            line(&record, &buffer, &mut lines);
            if lines.len() > PART {
                append(timeline, &mut lines);
            }
        });
        append(timeline, &mut lines);
        self.lines = lines;
    }

    fn write_metrics(&self) {
        let calls = self.names.iter().enumerate().map(|(code, name)| {
            let (count, total_ns) = self.buffer.sum_of(code as u16);
            let (before, before_ns) = self.sums[code];
            (
                *name,
                count.wrapping_add(before),
                total_ns.wrapping_add(before_ns),
            )
        });
        let text = alnair::metrics(calls.filter(|(_, count, _)| *count != 0));
        let written = claim::write(&self.metrics).and_then(|file| {
            file.write_all_at(text.as_bytes(), 0)?;
            file.set_len(text.len() as u64)
        });
        complain(&self.metrics, written);
    }
}

fn line(record: &Record<'_>, buffer: &Buffer, lines: &mut String) {
    let name = match (record.kind, record.name) {
        (Kind::Call, Some(name)) => alnair::name(name),
        (kind, _) => alnair::name_of_kind(kind),
    };
    let start_ns = buffer.realtime_ns(record.start_ns);
    lines.push_str(&alnair::timeline_line(name, start_ns, record.duration_ns));
}

/// Appends whole lines in one write, after the lines of other processes.
fn append(timeline: &Path, lines: &mut String) {
    if lines.is_empty() {
        return;
    }
    let opened = claim::append(timeline);
    complain(
        timeline,
        opened.and_then(|mut file| file.write_all(lines.as_bytes())),
    );
    lines.clear();
}

fn complain(path: &Path, result: io::Result<()>) {
    if let Err(error) = result {
        notice::once(
            Cause::Trace,
            format_args!(
                "PFLOG: cannot write {}: {error}; the program continues",
                path.display()
            ),
        );
    }
}
