//! The audit log: one JSON object a line for each edit that was tried, refused ones too.
//!
//! A line is written with one `write` to a file opened for appending, so lines of several writers
//! never mix. The log is `audit.jsonl` beside the segments, or `/var/log/gpushare/audit.jsonl` where
//! a broker serves the machine: then the broker alone writes it, and earlier parts of it are kept beside it. A record holds what is needed to take the
//! edit back (`undo`), and the start time of the process it was meant for: a number used again by
//! the kernel is not the same process.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use shm_layout::broker::private_dir;
use shm_layout::dir::Dir;
use shm_layout::locate::SYSTEM_DIR;
use shm_layout::{Change, Mode, OpenError, SegmentDir};

use super::change::{self, summary};
use super::request::EditRequest;
pub use super::request::Place;
use crate::host::signal::Signalled;
use crate::sample::keys::{Keys, object};
use crate::text::users;

/// Version of the record's shape.
pub const SCHEMA_VERSION: u32 = 1;

/// Where the log of a system-wide installation is.
pub const SYSTEM_LOGS: &str = "/var/log/gpushare";
/// Its name.
const LOG: &str = "audit.jsonl";
/// How many earlier parts of a broker's log are kept.
const PARTS: usize = 4;

/// The name of an earlier part; the first is the newest.
fn earlier(part: usize) -> String {
    format!("{LOG}.{part}")
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is in force.
    Applied,
    /// Nothing was changed.
    Refused,
}

object! {
    /// One line of the log.
    #[derive(Deserialize)]
    pub Record {
        schema_version: u32, "Version of the line: increases when a key changes its meaning or is removed.";
        time: String, "When, RFC 3339 in UTC.";
        uid: u32, "The user's number.";
        who: String, "The user's name; under sudo also who called it.";
        r#where: Place, "ctl for gpushare, tui for gpushare-top.";
        target: String, "What it was for: 41849 vllm-worker, gpu0, group team-a.";
        target_start_time: Option<u64>, "Clock ticks from boot to the start of that process.";
        old: Option<String>, "What it was before.";
        new: String, "What was asked for.";
        generation: Option<u64>, "The generation that the edit made; null when refused.";
        reason: Option<String>, "Why, as --reason gave it.";
        result: Outcome, "applied or refused.";
        refusal: Option<String>, "Why it was refused.";
        undoes: Option<u64>, "The generation of the edit that this one undoes.";
        #[serde(default)]
        change: Option<Change>, "The edit itself; which keys it has depends on its kind. null where no setting was changed: a signal, or a program that an alert started.";
        #[serde(default, deserialize_with = "readable")]
        restore: Option<Change>, "The edit that would take it back; null where it cannot be read.";
    }
}

impl Record {
    /// Of an edit that is about to be made.
    pub fn of(request: &EditRequest, uid: u32, who: String, undoes: Option<u64>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            time: now(),
            uid,
            who,
            r#where: request.place,
            target: request.target.clone(),
            target_start_time: request.target_start_time,
            old: None,
            new: summary(&request.change),
            generation: None,
            reason: request.reason.clone(),
            result: Outcome::Applied,
            refusal: None,
            undoes,
            change: Some(request.change.clone()),
            restore: None,
        }
    }

    /// When the edit, or the first part of it, ends by itself, on the segments' clock.
    pub fn ends_ns(&self) -> Option<u64> {
        self.change.as_ref().and_then(change::ends_ns)
    }

    /// Whether all that the edit did has ended by itself at a time.
    pub fn has_run_out(&self, now_ns: u64) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change::has_run_out(change, now_ns))
    }

    /// Whether both edits concern the same settings, so that one hides the other.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        let both = self.change.as_ref().zip(other.change.as_ref());
        both.is_some_and(|(one, other)| change::same_subject(one, other))
    }

    /// Of something else that was done: a signal, or a program that an alert started.
    pub fn of_deed(place: Place, new: String, target: String, started: Option<u64>) -> Self {
        let (uid, who) = users::who_am_i();
        Self {
            schema_version: SCHEMA_VERSION,
            time: now(),
            uid,
            who,
            r#where: place,
            target,
            target_start_time: started,
            old: None,
            new,
            generation: None,
            reason: None,
            result: Outcome::Applied,
            refusal: None,
            undoes: None,
            change: None,
            restore: None,
        }
    }

    /// Of a signal that was sent, or not.
    pub fn of_signal(place: Place, signal: &Signalled) -> Self {
        let new = format!("signal {}", signal.word);
        Self::of_deed(place, new, signal.title.clone(), Some(signal.started))
    }

    /// The same, refused for this reason, if there is one.
    pub fn refused(mut self, refusal: Option<String>) -> Self {
        if refusal.is_some() {
            (self.result, self.refusal) = (Outcome::Refused, refusal);
        }
        self
    }
}

fn now() -> String {
    let now = jiff::Timestamp::now().round(jiff::Unit::Millisecond);
    now.unwrap_or_default().to_string()
}

impl Keys for Place {}
impl Keys for Outcome {}
impl Keys for Change {}

/// What cannot be read is left out: the rest of the record is still worth having.
fn readable<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Change>, D::Error> {
    let restore = serde_json::Value::deserialize(source)?;
    Ok(serde_json::from_value(restore).unwrap_or_default())
}

/// What is looked for in a line that is no [`Record`].
#[derive(Default, Deserialize)]
#[serde(default)]
struct Remains {
    generation: Option<u64>,
}

/// A log file, which may not exist yet.
#[derive(Debug, Clone)]
pub struct AuditLog {
    dir: PathBuf,
    /// Who may write it, and who may read it.
    bits: u32,
}

impl AuditLog {
    /// The log that belongs to these segments.
    pub fn of(dir: &SegmentDir) -> Self {
        match dir.mode {
            Mode::System => Self::of_the_machine(&dir.path),
            Mode::User => Self {
                dir: dir.path.clone(),
                bits: 0o640,
            },
        }
    }

    /// The log that belongs to the segments in this directory.
    pub fn of_path(path: &std::path::Path) -> Self {
        let found = shm_layout::locate_existing().ok();
        Self::of(
            &found
                .filter(|found| found.path == path)
                .unwrap_or(SegmentDir {
                    path: path.to_owned(),
                    mode: Mode::User,
                }),
        )
    }

    /// The newest records, oldest first: those in the last `bytes` of the log.
    pub fn newest(&self, bytes: u64) -> io::Result<Vec<Record>> {
        let mut file = match Dir::open(&self.dir).and_then(|dir| dir.read(LOG)) {
            Ok(file) => file,
            Err(OpenError::Missing { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let start = file.metadata()?.len().saturating_sub(bytes);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.take(bytes).read_to_end(&mut tail)?;
        // A line that begins before is no whole record.
        let records = tail.split(|byte| *byte == b'\n');
        Ok(records
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    /// The log of a broker: of another directory than the machine's it is beside the broker's other files.
    pub fn of_the_machine(dir: &Path) -> Self {
        let dir = match dir == Path::new(SYSTEM_DIR) {
            true => SYSTEM_LOGS.into(),
            false => private_dir(dir),
        };
        Self { dir, bits: 0o640 }
    }

    /// Whether a broker keeps it for the machine.
    pub fn is_of_the_machine(&self) -> bool {
        self.dir == Path::new(SYSTEM_LOGS)
    }

    /// Begins a new part where this one has grown long, and removes the oldest.
    pub fn rotate(&self, most: u64) -> io::Result<()> {
        let dir = Dir::open(&self.dir)?;
        let long = dir
            .read(LOG)
            .is_ok_and(|log| log.metadata().is_ok_and(|meta| meta.len() >= most));
        if !long {
            return Ok(());
        }
        for part in (1..PARTS).rev() {
            let _ = dir.rename(&earlier(part), &earlier(part + 1));
        }
        dir.rename(LOG, &earlier(1))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    /// Adds a line.
    pub fn append(&self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut file = self.open_to_append()?;
        // One write: O_APPEND makes it land whole behind every other writer's line.
        let written = file.write(&line)?;
        if written == line.len() {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
    }

    /// Opens the log and creates it if it is missing. A file that another user put in its place is refused.
    pub fn open_to_append(&self) -> io::Result<File> {
        Ok(Dir::open(&self.dir)?.append(LOG, self.bits)?)
    }

    /// All records, oldest first, each with its number from 1; a damaged line is skipped and counted.
    pub fn read(&self) -> io::Result<History> {
        let dir = match Dir::open(&self.dir) {
            Err(OpenError::Missing { .. }) => return Ok(History::default()),
            found => found?,
        };
        let mut history = History::default();
        let names = (1..=PARTS).rev().map(earlier).chain([LOG.to_owned()]);
        let mut lines = Vec::new();
        for name in names {
            match dir.read(&name) {
                Ok(file) => lines.extend(BufReader::new(file).split(b'\n')),
                Err(OpenError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (at, line) in lines.into_iter().enumerate() {
            let line = line?;
            match serde_json::from_slice(&line) {
                Ok(record) => history.entries.push(Entry {
                    number: at as u64 + 1,
                    record,
                }),
                Err(_) if line.is_empty() => {}
                Err(_) => {
                    let remains: Remains = serde_json::from_slice(&line).unwrap_or_default();
                    history.damaged.push(Damaged {
                        number: at as u64 + 1,
                        generation: remains.generation,
                    });
                }
            }
        }
        Ok(history)
    }
}

/// A record and its line number.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The line, from 1.
    pub number: u64,
    /// What it says.
    pub record: Record,
}

/// What the log holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Records, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that could not be read, oldest first.
    pub damaged: Vec<Damaged>,
}

/// A line that is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// The line, from 1.
    pub number: u64,
    /// The generation it names, if it names one.
    pub generation: Option<u64>,
}

impl History {
    /// Only what concerns the present segments: generations count from 1 again in new ones, after a
    /// boot for instance, while the log goes on.
    pub fn of_present_segments(mut self) -> Self {
        let entries = self
            .entries
            .iter()
            .map(|entry| (entry.number, entry.record.generation));
        let damaged = self
            .damaged
            .iter()
            .map(|line| (line.number, line.generation));
        let firsts = entries
            .chain(damaged)
            .filter(|(_, generation)| *generation == Some(1));
        if let Some(start) = firsts.map(|(number, _)| number).max() {
            self.entries.retain(|entry| entry.number >= start);
            self.damaged.retain(|line| line.number >= start);
        }
        self
    }

    /// The generation that the log accounts for, if it has any: a line that cannot be read is taken for one edit.
    pub fn generation(&self) -> Option<(u64, u64)> {
        let named = |line: &Damaged| Some((line.generation?, line.number));
        let entries = self.entries.iter();
        let newest = entries
            .filter_map(|entry| Some((entry.record.generation?, entry.number)))
            .chain(self.damaged.iter().filter_map(named))
            .max();
        let (generation, number) = newest.unwrap_or_default();
        let behind = self.damaged.iter().filter(|line| line.number > number);
        let most = generation + behind.count() as u64;
        (most > 0).then_some((generation, most))
    }

    /// Whether the edit that made `generation` has been undone.
    pub fn is_undone(&self, generation: u64) -> bool {
        self.entries.iter().any(|entry| {
            entry.record.undoes == Some(generation) && entry.record.result == Outcome::Applied
        })
    }
}
