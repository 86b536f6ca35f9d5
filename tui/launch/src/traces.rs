//! Traces as files: found, joined to their processes, and written in forms that other programs read.
//!
//! A trace is one buffer file beside the segments. It is there while the process is traced, after the
//! trace was stopped and after the process has died, and it may have been carried to another machine;
//! everything here works from the file and takes what the living know on top.

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

/// A trace and whose it is.
#[derive(Debug, Clone)]
pub struct Found {
    /// The file.
    pub path: PathBuf,
    /// The process: as it is now, or as the file remembers it.
    pub process: ProcessSample,
}

impl Found {
    /// As a person would say it: `41849 train`.
    pub fn title(&self) -> String {
        targets::title(&self.process)
    }

    /// Whether the process is still there.
    pub fn lives(&self) -> bool {
        self.process.state != ProcessState::Gone
    }

    /// Reads the file as it is now.
    pub fn read(&self) -> Result<Reader, Failure> {
        Ok(Reader::open(&self.path)?)
    }
}

/// Every trace in the directory, by slot; files that cannot be read are said and left out.
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

/// A process that has gone, as its trace remembers it.
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

/// The traces meant by a pid, `name:LABEL`, `group:G`, `user:U`, `all`, or by the path of a file.
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
        // It may be any file, so the message does not advise to remove it.
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

/// The target names no process, or none of them has a trace.
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

/// How a trace's devices are called here: `gpu0`, or by the process's own number where that is unknown.
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

/// The name of a record's device.
pub fn device_name(names: &[String], ordinal: Option<u8>) -> Option<&str> {
    names.get(usize::from(ordinal?)).map(String::as_str)
}

/// What was written, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Account {
    /// As a person would say it.
    #[serde(skip)]
    pub title: String,
    /// Pid on this host, or the one the process had.
    pub pid: u32,
    /// Its label.
    pub name: String,
    /// Its executable.
    pub exe: String,
    /// Records written.
    pub records: u64,
    /// Records that found no room in the buffer.
    pub dropped: u64,
    /// Records that its threads were writing, or had not finished when it died.
    pub unfinished: u64,
    /// Records there was room for.
    pub capacity: u32,
    /// When it began, on the segments' clock.
    pub started_ns: u64,
    /// When it ended; 0 while it goes on or when the process died.
    pub stopped_ns: u64,
    /// What to add to a time to have nanoseconds since 1970.
    pub to_unix_ns: i64,
}

impl Account {
    /// An account to which records are yet to be added.
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

    /// What is missing, as a sentence.
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
