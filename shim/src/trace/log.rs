//! The files of `PFLOG`: what Alnair's hook library wrote, written by the keeper.
//!
//! Calls go into a buffer in our own memory; the keeper takes them out of it, ten times a second at most, and appends
//! whole lines to `timeline.log`: processes that share a directory share that file and lose nothing. `metrics.log` has
//! the sums of one process. The first to come has the plain name for as long as it lives, others write
//! `metrics.PID.log`. A buffer that fills faster than it is emptied counts what it drops; the sums stay exact.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use shm_layout::trace::{
    Buffer, Call, DEFAULT_RECORDS, Guest, Kind, Length, Record, alnair, claim::Claim,
};

use super::tracer::names;
use crate::{
    notice::{self, Cause},
    symbols::Symbol,
};

/// Between two writings of the files.
const PERIOD: u64 = 1_000_000_000;
/// Bytes of lines that are written at once.
const PART: usize = 60_000;

/// The files of one process.
pub struct Log {
    timeline: PathBuf,
    metrics: PathBuf,
    /// Keeps the plain name ours.
    _claim: Option<Claim>,
    buffer: Arc<Buffer>,
    names: Vec<&'static str>,
    /// The next record that has not been written.
    place: u64,
    /// What earlier buffers came to: count and nanoseconds by call code.
    sums: Vec<(u64, u64)>,
    dropped: u64,
    next_ns: u64,
    lines: String,
}

impl Log {
    /// `None`, and a line on stderr, where there can be none.
    pub fn start(dir: &Path, guest: Guest<'_>) -> Option<Log> {
        // The process may change its directory.
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        let buffer = match Buffer::private(DEFAULT_RECORDS, guest) {
            Ok(buffer) => Arc::new(buffer),
            Err(error) => {
                notice::once(Cause::Trace, format_args!("PFLOG: {error}"));
                return None;
            }
        };
        let plain = dir.join("metrics.log");
        let (metrics, claim) = match Claim::of(&plain) {
            Ok(Some(claim)) => (plain, Some(claim)),
            _ => {
                let name = format!("metrics.{}.log", std::process::id());
                (dir.join(name), None)
            }
        };
        let names = names();
        Some(Log {
            timeline: dir.join("timeline.log"),
            metrics,
            _claim: claim,
            buffer,
            sums: vec![(0, 0); names.len()],
            names,
            place: 0,
            dropped: 0,
            next_ns: 0,
            lines: String::new(),
        })
    }

    /// A call from before there was a buffer.
    pub fn first(&self, symbol: Symbol, start_ns: u64, duration_ns: u64) {
        if start_ns != 0 {
            self.buffer.call(&Call {
                code: symbol as u16,
                start_ns,
                duration_ns,
                waited_ns: 0,
                bytes: 0,
                tid: 0,
                device: None,
            });
        }
    }

    /// Where the threads write.
    pub fn buffer(&self) -> Arc<Buffer> {
        Arc::clone(&self.buffer)
    }

    /// How much there is, all buffers together.
    pub fn length(&self) -> Length {
        let now = self.buffer.length();
        Length {
            dropped: self.dropped + now.dropped,
            ..now
        }
    }

    /// Writes the files when it is time.
    pub fn tick(&mut self, now: u64) {
        if now < self.next_ns && !self.is_filling() {
            return;
        }
        self.next_ns = now.saturating_add(PERIOD);
        self.take_lines(false);
        self.write_metrics();
    }

    /// Whether the buffer should be changed for an empty one.
    pub fn is_filling(&self) -> bool {
        let length = self.buffer.length();
        length.records > length.capacity / 2
    }

    /// Takes an empty buffer, and hands out the one there was; `None` without memory for another.
    pub fn next(&mut self, guest: Guest<'_>) -> Option<Arc<Buffer>> {
        let next = Buffer::private(DEFAULT_RECORDS, guest).ok()?;
        Some(std::mem::replace(&mut self.buffer, Arc::new(next)))
    }

    /// Nobody writes to this one any more: its last lines, and its sums.
    pub fn finish(&mut self, full: Arc<Buffer>) {
        let next = std::mem::replace(&mut self.buffer, full);
        self.take_lines(true);
        for (code, sum) in self.sums.iter_mut().enumerate() {
            let (count, total_ns) = self.buffer.sum_of(code as u16);
            *sum = (sum.0.wrapping_add(count), sum.1.wrapping_add(total_ns));
        }
        self.dropped += self.buffer.length().dropped;
        self.buffer = next;
        self.place = 0;
    }

    /// Nobody writes any more at all.
    pub fn end(mut self) {
        self.take_lines(true);
        self.write_metrics();
    }

    fn take_lines(&mut self, nobody_writes: bool) {
        let buffer = Arc::clone(&self.buffer);
        let mut lines = std::mem::take(&mut self.lines);
        let timeline = &self.timeline;
        self.place = buffer.records_from(self.place, &self.names, nobody_writes, |record| {
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
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.metrics)
            .and_then(|file| {
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

/// Whole lines in one write, behind whatever others have written.
fn append(timeline: &Path, lines: &mut String) {
    if lines.is_empty() {
        return;
    }
    let opened = OpenOptions::new().append(true).create(true).open(timeline);
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
                "PFLOG: cannot write {}: {error}; the program goes on",
                path.display()
            ),
        );
    }
}
