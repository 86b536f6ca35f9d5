//! Trace files: found, matched with their processes, and exported to formats that other programs read.
//!
//! A trace is one buffer file beside the segments. It exists while the process is traced, after the trace is stopped and
//! after the process has died, and it may have been copied to another machine. So everything here works from the file, and
//! live processes only add to it.

use std::path::{Path, PathBuf};

use shm_layout::SlotId;
use shm_layout::trace::{self, Header, Reader, TraceError};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::plain;
use gpushare_base::text::users::Users;
use gpushare_base::text::uuids;
use gpushare_control::targets::{self, Target};
use gpushare_sample::{Identity, ProcessSample, ProcessState, ProcessView, Sample};

pub mod alnair;
pub mod chrome;
pub mod csv;
pub mod ring;

/// A trace, and the process that wrote it.
#[derive(Debug, Clone)]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// The process: its current state, or its state in the file.
    pub process: ProcessSample,
}

impl Found {
    /// Returns the process's title: `41849 train`.
    pub fn title(&self) -> String {
        targets::title(&self.process)
    }

    /// Returns true if the process still runs.
    pub fn lives(&self) -> bool {
        self.process.state != ProcessState::Gone
    }

    /// Reads the file in its present state.
    pub fn read(&self) -> Result<Reader, Failure> {
        Ok(Reader::open(&self.path)?)
    }
}

/// Returns every trace in the directory, by slot. Files that cannot be read are reported with `say` and left out.
pub fn all(dir: &Path, sample: &Sample, mut say: impl FnMut(&str)) -> Vec<Found> {
    let mut found = Vec::new();
    for (slot, path) in trace::list(dir).unwrap_or_default() {
        match of_slot(slot, &path, sample) {
            Ok(process) => found.push(Found { path, process }),
            Err(error) => say(&format!("skipped: {error}")),
        }
    }
    found
}

fn of_slot(slot: SlotId, path: &Path, sample: &Sample) -> Result<ProcessSample, TraceError> {
    if let Some(process) = sample.process(slot) {
        return Ok(process.clone());
    }
    Reader::open(path).map(|reader| remembered(reader.header()))
}

/// Returns an ended process, from the header of its trace.
fn remembered(header: &Header) -> ProcessSample {
    ProcessSample {
        view: ProcessView {
            slot: header.slot,
            identity: Identity {
                pid: header.pid,
                start_time: header.start_time,
                uid: header.uid,
                label: header.label.clone(),
                exe: header.exe.clone(),
                ..Identity::default()
            },
            ..ProcessView::default()
        },
        user: Users::of_this_machine().name(header.uid),
        state: ProcessState::Gone,
        ..ProcessSample::default()
    }
}

/// Returns the traces that are named by a pid, `name:LABEL`, `group:G`, `user:U`, `all`, or the path of a file.
pub fn choose(
    subject: &str,
    dir: &Path,
    sample: &Sample,
    say: impl FnMut(&str),
) -> Result<Vec<Found>, Failure> {
    let target = match subject.parse::<Target>() {
        Ok(target) => target,
        Err(_) if Path::new(subject).exists() => return of_file(subject, sample),
        Err(why) => {
            return Err(Failure::usage(format!(
                "{why}, or the path of a trace; there is no such file"
            )));
        }
    };
    let uid = target.uid()?;
    let mut traces = all(dir, sample, say);
    traces.retain(|found| target.means(&found.process, uid));
    if traces.is_empty() {
        return Err(nothing(&target, sample));
    }
    Ok(traces)
}

fn of_file(path: &str, sample: &Sample) -> Result<Vec<Found>, Failure> {
    let reader = Reader::open(Path::new(path)).map_err(|error| match error {
        // The path may be any file, so the message does not advise to remove it.
        TraceError::Foreign { why, .. } => Failure::failed(format!(
            "{} is not a trace: {why}; gpushare trace show lists the traces",
            plain(path)
        )),
        error => error.into(),
    })?;
    let header = reader.header();
    // A file of another boot or machine may name a slot that another process has now.
    let process = sample
        .process(header.slot)
        .filter(|process| {
            !header.stale
                && (process.identity.pid, process.identity.start_time)
                    == (header.pid, header.start_time)
        })
        .cloned();
    Ok(vec![Found {
        path: path.into(),
        process: process.unwrap_or_else(|| remembered(header)),
    }])
}

/// Returns the error for a target that names no process, or only processes without a trace.
fn nothing(target: &Target, sample: &Sample) -> Failure {
    match target.resolve(sample) {
        Ok(living) => {
            let titles: Vec<&str> = living
                .iter()
                .map(|chosen| chosen.title.as_str())
                .take(3)
                .collect();
            let more = if living.len() > 3 { ", …" } else { "" };
            Failure::no_such_target(format!(
                "no trace of {}{more}; gpushare trace start makes one",
                plain(&titles.join(", "))
            ))
        }
        Err(_) if *target == Target::All => {
            Failure::no_such_target("there is no trace here; gpushare trace start TARGET makes one")
        }
        Err(none) => Failure {
            sentence: format!("{none}; gpushare trace show lists the traces"),
            ..none
        },
    }
}

/// Returns the names of a trace's devices on this machine: `gpu0`, or the process's own number if the device is unknown.
pub fn device_names(header: &Header, sample: &Sample) -> Vec<String> {
    let name = |(ordinal, uuid): (usize, &shm_layout::Uuid)| {
        let here = sample
            .devices
            .iter()
            .position(|device| uuids::parse(&device.uuid).as_ref() == Some(uuid));
        here.map_or_else(|| format!("device{ordinal}"), |gpu| format!("gpu{gpu}"))
    };
    header.devices.iter().enumerate().map(name).collect()
}

/// Returns the name of a record's device.
pub fn device_name(names: &[String], ordinal: Option<u8>) -> Option<&str> {
    names.get(usize::from(ordinal?)).map(String::as_str)
}

/// The result of an export: counts of the records that were written and lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Account {
    /// Title of the process: `41849 train`.
    #[serde(skip)]
    pub title: String,
    /// Pid on this host, or the pid that the process had.
    pub pid: u32,
    /// Label of the process.
    pub name: String,
    /// Executable of the process.
    pub exe: String,
    /// Records written.
    pub records: u64,
    /// Records that were dropped because the buffer was full.
    pub dropped: u64,
    /// Records that were incomplete when the file was read.
    pub unfinished: u64,
    /// Capacity of the buffer in records.
    pub capacity: u32,
    /// Start of the trace in nanoseconds on the segments' clock.
    pub started_ns: u64,
    /// End of the trace; 0 while it runs, and if the process died.
    pub stopped_ns: u64,
    /// Nanoseconds to add to a time to get Unix time.
    pub to_unix_ns: i64,
}

impl Account {
    /// Makes an account without records.
    pub fn new(found: &Found, reader: &Reader) -> Self {
        let header = reader.header();
        Self {
            title: found.title(),
            pid: found.process.shown_pid(),
            name: header.label.clone(),
            exe: header.exe.clone(),
            records: 0,
            dropped: reader.dropped(),
            unfinished: reader.unfinished(),
            capacity: header.capacity,
            started_ns: header.started_ns,
            stopped_ns: header.stopped_ns,
            to_unix_ns: header
                .realtime_ns
                .wrapping_sub(header.boottime_ns)
                .cast_signed(),
        }
    }

    /// Returns a sentence about the records that are missing.
    pub fn complaint(&self) -> Option<String> {
        (self.dropped > 0).then(|| {
            format!(
                "{}: {} records did not fit in its buffer of {}; counts and times of gpushare trace stats are \
                 complete, and gpushare trace start --records makes it larger",
                plain(&self.title),
                self.dropped,
                self.capacity
            )
        })
    }
}
