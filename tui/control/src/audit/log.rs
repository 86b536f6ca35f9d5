//! The files of the log.
//!
//! A line is written with one `write` to a file opened for appending, so lines of several writers never mix. The log is
//! `audit.jsonl` beside the segments, or in `/var/log/gpushare` if a broker serves the machine. Then only the broker writes
//! it. The broker keeps earlier parts beside it, and has a separate [`Book`] for edits and refusals of users who are no
//! administrators, so that many of them never displace the administrators' edits that undo needs.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde::Deserialize;
use shm_layout::dir::Dir;
use shm_layout::text::PathText as _;
use shm_layout::{OpenError, SegmentDir};

use super::{Damaged, Entry, History, Record};
use crate::installation::{Installation as _, logs_of_broker};

/// Number of earlier parts that are kept of each of a broker's books.
const PARTS: usize = 4;
/// Number of bytes at the end of a part that are searched for the last line number.
const TAIL: u64 = 64 << 10;
/// Start of a line with a number.
const NUMBER: &str = "{\"number\":";

/// A book is a part of the log with files of its own, so that a full one does not affect the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Book {
    /// Edits of administrators, and all edits in a user's own log.
    Edits,
    /// Edits of other users that were permitted.
    Users,
    /// Edits of other users that were refused.
    Refusals,
}

impl Book {
    const ALL: [Self; 3] = [Self::Edits, Self::Users, Self::Refusals];

    /// Returns the file name of the newest part.
    fn name(self) -> &'static str {
        match self {
            Self::Edits => "audit.jsonl",
            Self::Users => "audit-users.jsonl",
            Self::Refusals => "audit-refused.jsonl",
        }
    }

    /// Returns the file name of an earlier part; the parts count from the newest.
    fn earlier(self, part: usize) -> String {
        format!("{}.{part}", self.name())
    }
}

/// A log, which may not exist yet.
#[derive(Debug, Clone)]
pub struct AuditLog {
    dir: PathBuf,
    /// Group that may read the log, if a broker writes it.
    readers: Option<u32>,
    /// Number of the next line if a broker writes the log; 0 before it is known. Old parts are removed, so a line's
    /// position does not identify it, and each line has its number in it.
    next: Option<Arc<AtomicU64>>,
}

/// Mode of the files: writable by the owner, readable by the group.
const BITS: u32 = 0o640;

impl AuditLog {
    fn in_dir(dir: PathBuf) -> Self {
        let (readers, next) = (None, None);
        Self { dir, readers, next }
    }

    /// Returns the log of these segments.
    pub fn of(dir: &SegmentDir) -> Self {
        Self::in_dir(dir.logs())
    }

    /// Returns the log of the segments in this directory.
    pub fn of_path(path: &Path) -> Self {
        Self::of(&SegmentDir::at(path))
    }

    /// Returns the log of a broker.
    pub fn of_the_machine(dir: &Path) -> Self {
        Self::in_dir(logs_of_broker(dir))
    }

    /// Makes this the broker's own log, with line numbers and files that this group can read.
    #[must_use]
    pub fn readable_by(self, group: u32) -> Self {
        Self {
            readers: Some(group),
            next: Some(Arc::default()),
            ..self
        }
    }

    /// Starts a new part of a book if the present one is longer than `most` bytes, and removes the oldest part.
    pub fn rotate(&self, book: Book, most: u64) -> io::Result<()> {
        let dir = Dir::open(&self.dir)?;
        let long = dir
            .read(book.name())
            .is_ok_and(|log| log.metadata().is_ok_and(|meta| meta.len() >= most));
        if !long {
            return Ok(());
        }
        for part in (1..PARTS).rev() {
            let _ = dir.rename(&book.earlier(part), &book.earlier(part + 1));
        }
        dir.rename(book.name(), &book.earlier(1))
    }

    /// Returns the path of the main book.
    pub fn path(&self) -> PathBuf {
        self.dir.join(Book::Edits.name())
    }

    /// Appends a line to the main book.
    pub fn append(&self, record: &Record) -> io::Result<()> {
        self.append_to(Book::Edits, record)
    }

    /// Appends a line to a book.
    pub fn append_to(&self, book: Book, record: &Record) -> io::Result<()> {
        let mut line = self.numbered(serde_json::to_string(record)?)?;
        line.push('\n');
        let mut file = self.open_to_append(book)?;
        if is_torn(&file)? {
            line.insert(0, '\n');
        }
        // With O_APPEND, one write puts the whole line behind the lines of all other writers.
        let written = file.write(line.as_bytes())?;
        if written == line.len() {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
    }

    /// Returns the line with its number, if a broker writes the log.
    fn numbered(&self, line: String) -> io::Result<String> {
        let Some(next) = &self.next else {
            return Ok(line);
        };
        self.look_for_next()?;
        let number = next.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{NUMBER}{number},{}", &line[1..]))
    }

    /// Finds the number of the next line in the present files.
    fn look_for_next(&self) -> io::Result<()> {
        if let Some(next) = &self.next
            && next.load(Ordering::Relaxed) == 0
        {
            // A log from before lines had numbers is counted.
            let last = match self.last_number()? {
                Some(last) => last,
                None => self.read()?.last(),
            };
            next.store(last + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the highest number in the last lines of each book.
    fn last_number(&self) -> io::Result<Option<u64>> {
        let Some(dir) = self.dir()? else {
            return Ok(None);
        };
        let mut lines = Lines::default();
        for book in Book::ALL {
            for name in [book.earlier(1), book.name().to_owned()] {
                lines.add(&dir, &name, Some(TAIL))?;
            }
        }
        Ok(lines.0.iter().filter_map(|line| line.number).max())
    }

    /// Opens the main book, and creates it if it is missing.
    pub fn make(&self) -> io::Result<()> {
        self.open_to_append(Book::Edits)?;
        // Done here so that no client waits for it. If the log cannot be read, the first edit reports the error.
        let _ = self.look_for_next();
        Ok(())
    }

    /// Opens a book, and creates it if it is missing. A file of another user is refused.
    fn open_to_append(&self, book: Book) -> io::Result<File> {
        let file = Dir::open(&self.dir)?.append(book.name(), BITS)?;
        if let Some(group) = self.readers
            && file.metadata()?.gid() != group
        {
            file.set_permissions(Permissions::from_mode(BITS))?;
            fchown(&file, Some(0), Some(group))?;
        }
        Ok(file)
    }

    /// Returns the newest records, oldest first: those in the last `bytes` of each book.
    pub fn newest(&self, bytes: u64) -> io::Result<Vec<Record>> {
        let Some(dir) = self.dir()? else {
            return Ok(Vec::new());
        };
        let mut books = Vec::new();
        for book in Book::ALL {
            let mut lines = Lines::default();
            lines.add(&dir, book.name(), Some(bytes))?;
            books.push(lines.0);
        }
        Ok(merged(books).filter_map(|line| line.what.ok()).collect())
    }

    /// Returns all records, oldest first, each with its number. A line without a number gets the number after the line
    /// before it. Damaged lines are listed apart.
    pub fn read(&self) -> io::Result<History> {
        let mut history = History::default();
        let Some(dir) = self.dir()? else {
            return Ok(history);
        };
        let mut books = Vec::new();
        for book in Book::ALL {
            let mut lines = Lines::default();
            let earlier = (1..=PARTS).rev().map(|part| book.earlier(part));
            for name in earlier.chain([book.name().to_owned()]) {
                lines.add(&dir, &name, None)?;
            }
            books.push(lines.0);
        }
        let mut number = 0;
        for line in merged(books) {
            number = line.number.unwrap_or(number + 1);
            match line.what {
                Ok(record) => history.entries.push(Entry { number, record }),
                Err(generation) => history.damaged.push(Damaged { number, generation }),
            }
        }
        Ok(history)
    }

    fn dir(&self) -> io::Result<Option<Dir>> {
        match Dir::open(&self.dir) {
            Err(OpenError::Missing { .. }) => Ok(None),
            found => Ok(Some(found?)),
        }
    }
}

/// Returns the sentence for a log that cannot be read.
pub fn unreadable(dir: &SegmentDir, error: &io::Error) -> String {
    let path = AuditLog::of(dir).path();
    let path = path.shown();
    match error.kind() {
        io::ErrorKind::PermissionDenied if !dir.is_log_ours() => {
            format!("only root and the administrators' group may read the audit log {path}")
        }
        _ => format!("the audit log {path} cannot be read: {error}"),
    }
}

/// A line of a book. If it is no [`Record`], the generation in it is kept.
struct Line {
    number: Option<u64>,
    time: Timestamp,
    what: Result<Record, Option<u64>>,
}

/// The fields that are read from a line that is no [`Record`].
#[derive(Default, Deserialize)]
#[serde(default)]
struct Remains {
    generation: Option<u64>,
}

/// The lines of a book, oldest first.
#[derive(Default)]
struct Lines(Vec<Line>);

impl Lines {
    /// Adds the lines of a file, which may be missing. With `last`, only the last bytes are read, and an incomplete first
    /// line is skipped.
    fn add(&mut self, dir: &Dir, name: &str, last: Option<u64>) -> io::Result<()> {
        let mut file = match dir.read(name) {
            Ok(file) => file,
            Err(OpenError::Missing { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if let Some(last) = last {
            let start = file.metadata()?.len().saturating_sub(last);
            file.seek(SeekFrom::Start(start))?;
        }
        let mut text = Vec::new();
        file.take(last.unwrap_or(u64::MAX)).read_to_end(&mut text)?;
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            let record: Result<Record, _> = serde_json::from_slice(line);
            let time = record.as_ref().ok().and_then(|one| one.time.parse().ok());
            let before = self.0.last().map(|line| line.time);
            self.0.push(Line {
                number: number_of(line),
                time: time.or(before).unwrap_or_default(),
                what: record.map_err(|_| {
                    let remains: Remains = serde_json::from_slice(line).unwrap_or_default();
                    remains.generation
                }),
            });
        }
        Ok(())
    }
}

/// Returns the number at the start of a line.
fn number_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(NUMBER.as_bytes())?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Line {
    /// Returns the key by which the lines of two books are merged: the time, then the number and the generation.
    fn order(&self) -> (Timestamp, Option<u64>, Option<u64>) {
        let record = self.what.as_ref().ok();
        (
            self.time,
            self.number,
            record.and_then(|record| record.generation),
        )
    }
}

/// Merges the lines of several books by their times. The order within a book is kept, even if its times are not in order.
fn merged(books: Vec<Vec<Line>>) -> impl Iterator<Item = Line> {
    let books = books.into_iter().map(|lines| lines.into_iter().peekable());
    let mut books: Vec<_> = books.collect();
    std::iter::from_fn(move || {
        let heads = books.iter_mut().enumerate();
        let heads = heads.filter_map(|(at, book)| Some((book.peek()?.order(), at)));
        let (_, at) = heads.min()?;
        books[at].next()
    })
}

/// Returns true if the last line has no end, because the disk was full when it was written.
fn is_torn(file: &File) -> io::Result<bool> {
    let mut last = [b'\n'];
    if let Some(at) = file.metadata()?.len().checked_sub(1) {
        file.read_at(&mut last, at)?;
    }
    Ok(last != [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Place;

    #[test]
    fn a_line_behind_one_that_was_cut_short_is_not_lost() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let log = AuditLog::in_dir(place.path().to_owned());
        let record = |what: &str| Record::of_action(Place::Ctl, what.into(), "x".into(), None);
        log.append(&record("one")).expect("ours");
        let file = File::options().write(true).open(log.path());
        let file = file.expect("ours");
        let bytes = file.metadata().expect("ours").len();
        file.set_len(bytes - 5).expect("ours");
        log.append(&record("two")).expect("ours");
        log.append(&record("three")).expect("ours");
        let history = log.read().expect("ours");
        let read: Vec<_> = history
            .entries
            .iter()
            .map(|entry| &entry.record.new)
            .collect();
        assert_eq!(read, ["two", "three"]);
        assert_eq!(history.damaged.len(), 1);
    }

    #[test]
    fn the_number_of_an_edit_stays_when_older_parts_end_and_another_broker_goes_on() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let log = || {
            let group = rustix::process::getegid().as_raw();
            let log = AuditLog::in_dir(place.path().to_owned());
            log.readable_by(group)
        };
        let record =
            |what: &str| Record::of_action(Place::Ctl, what.to_owned(), "x".to_owned(), None);
        let numbers = || {
            let history = log().read().expect("ours");
            let entries = history.entries.iter();
            let of = |entry: &Entry| (entry.record.new.clone(), entry.number);
            entries.map(of).collect::<Vec<_>>()
        };
        let broker = log();
        for (what, book) in [
            ("one", Book::Refusals),
            ("two", Book::Edits),
            ("three", Book::Refusals),
        ] {
            broker.append_to(book, &record(what)).expect("ours");
        }
        let named = |what: &str, number| (what.to_owned(), number);
        assert_eq!(
            numbers(),
            [named("one", 1), named("two", 2), named("three", 3)]
        );
        for _ in 0..=PARTS {
            broker.rotate(Book::Refusals, 1).expect("ours");
            broker
                .append_to(Book::Refusals, &record("more"))
                .expect("ours");
        }
        assert_eq!(numbers()[0], named("two", 2));
        let last = numbers().last().expect("some").1;
        assert_eq!(last, 3 + PARTS as u64 + 1);
        log().append(&record("late")).expect("ours");
        assert_eq!(numbers().last(), Some(&named("late", last + 1)));
        // A damaged line has its own number, and the lines of a log without numbers count from 1.
        assert_eq!(number_of(b"{\"number\":57,\"sch"), Some(57));
        assert_eq!(number_of(b"{\"schema_version\":1"), None);
    }
}
