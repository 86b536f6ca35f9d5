//! Reading a buffer: the tools' side, whatever its bytes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::{
    CALLS, Line, RECORDS, Record, Row, Tables, TraceError, VERSION,
    layout::{EXE_WORDS, Head, LABEL_WORDS, MAGIC, Name},
    size,
};
use crate::{
    files::create::boot_id,
    layout::codec,
    protocol::primitive::{Ordering, fence},
    value::{DEVICES_PER_PROCESS, SlotId, Uuid},
};

/// Header of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Slot of the process.
    pub slot: SlotId,
    /// The process, in its own namespace.
    pub pid: u32,
    /// User id of the process.
    pub uid: u32,
    /// Start time in clock ticks.
    pub start_time: u64,
    /// Path of the executable.
    pub exe: String,
    /// Name from `gpushare run --name`.
    pub label: String,
    /// Records there is room for.
    pub capacity: u32,
    /// One moment on the segments' clock. All other times use that clock.
    pub boottime_ns: u64,
    /// The same moment on the wall clock.
    pub realtime_ns: u64,
    /// Time when the process began to write; 0 is not yet.
    pub started_ns: u64,
    /// Time when the process stopped; 0 while it writes, or if it ended without recording it.
    pub stopped_ns: u64,
    /// Time when the keeper last looked.
    pub seen_ns: u64,
    /// Devices, by the process's own ordinals.
    pub devices: Vec<Uuid>,
    /// True for a trace of an earlier boot.
    pub stale: bool,
}

impl Header {
    /// The wall clock's reading at a time of the segments' clock.
    pub fn realtime_of(&self, time_ns: u64) -> u64 {
        time_ns
            .wrapping_sub(self.boottime_ns)
            .wrapping_add(self.realtime_ns)
    }
}

/// Totals of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'n> {
    /// Exported name of the call.
    pub name: &'n str,
    /// Number of calls.
    pub count: u64,
    /// Total duration, with the lock.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Bytes moved, or asked for by allocations.
    pub bytes: u64,
    /// The part of the total spent waiting for the lock.
    pub waited_ns: u64,
}

impl<'n> Stat<'n> {
    /// `None` for a call that was never made.
    pub(super) fn of_row(row: &Row, name: &'n str) -> Option<Stat<'n>> {
        let words = [
            &row.count,
            &row.total_ns,
            &row.longest_ns,
            &row.bytes,
            &row.waited_ns,
        ];
        Stat::of_words(words.map(|word| word.load(Ordering::Relaxed)), name)
    }

    fn of_words(
        [count, total_ns, longest_ns, bytes, waited_ns]: [u64; 5],
        name: &'n str,
    ) -> Option<Stat<'n>> {
        (count != 0).then_some(Stat {
            name,
            count,
            total_ns,
            longest_ns,
            bytes,
            waited_ns,
        })
    }
}

/// A trace as it was when it was opened. Open it again to see more.
pub struct Reader {
    header: Header,
    names: Vec<String>,
    rows: Vec<[u64; 5]>,
    /// Published lines.
    lines: Vec<[u64; 4]>,
    unfinished: u64,
    dropped: u64,
}

const HEAD: usize = size_of::<Head>();

impl Reader {
    /// Reads a buffer. Nothing of the file stays mapped or open.
    pub fn open(path: &Path) -> Result<Reader, TraceError> {
        let foreign = |why| TraceError::Foreign {
            path: path.to_path_buf(),
            why,
        };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(TraceError::io(path, "open"))?;
        let meta = file.metadata().map_err(TraceError::io(path, "look at"))?;
        if !meta.is_file() {
            return Err(foreign("it is not a regular file"));
        }
        let mut tables = vec![0; size_of::<Tables>()];
        let read = |bytes: &mut [u8], at: usize| match file.read_exact_at(bytes, at as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(foreign("it is cut short"))
            }
            other => other.map_err(TraceError::io(path, "read")),
        };
        read(&mut tables, 0)?;
        let tables = Bytes(&tables);
        let version = tables.half(std::mem::offset_of!(Head, version));
        if tables.word(std::mem::offset_of!(Head, magic)) != MAGIC || version == 0 {
            return Err(foreign("it does not begin with a buffer's header"));
        }
        if version != VERSION {
            return Err(TraceError::WrongVersion {
                path: path.to_path_buf(),
                theirs: version,
            });
        }
        let header = header(&tables).ok_or_else(|| foreign("its header is invalid"))?;
        let says = tables.word(std::mem::offset_of!(Head, size));
        if says != size(header.capacity) || meta.len() != says {
            return Err(foreign("its size is not the one in its header"));
        }
        let written = tables.word(std::mem::offset_of!(Head, next));
        let written = written.min(u64::from(header.capacity)) as usize;
        let (lines, unfinished) = lines(&file, written).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => foreign("it is cut short"),
            _ => TraceError::io(path, "read")(error),
        })?;
        Ok(Reader {
            names: names(&tables),
            rows: rows(&tables),
            lines,
            unfinished,
            dropped: tables.word(std::mem::offset_of!(Head, dropped)),
            header,
        })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the totals of each call in the order of the call codes. Calls that were never made are left out.
    pub fn stats(&self) -> Vec<Stat<'_>> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(call, words)| Stat::of_words(*words, self.name(call as u16)?))
            .collect()
    }

    /// The records, in the order they were begun to be written: by their ends, about.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let name = |call| self.name(call);
        self.lines
            .iter()
            .filter_map(move |words| Record::decode(*words, name))
    }

    /// Records that did not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Records that were drawn and not yet written when the file was read, or never will be: their process died.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// The exported name behind a call code.
    pub fn name(&self, call: u16) -> Option<&str> {
        self.names
            .get(usize::from(call))
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }
}

/// Bytes of the file as its words.
struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn word(&self, at: usize) -> u64 {
        self.0
            .get(at..at + 8)
            .and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)))
            .unwrap_or(0)
    }

    fn half(&self, at: usize) -> u32 {
        self.0
            .get(at..at + 4)
            .and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)))
            .unwrap_or(0)
    }

    fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        std::array::from_fn(|index| self.word(at + index * 8))
    }
}

/// `None` where a value makes no sense.
fn header(bytes: &Bytes<'_>) -> Option<Header> {
    macro_rules! word {
        ($field:ident) => {
            bytes.word(std::mem::offset_of!(Head, $field))
        };
    }
    macro_rules! half {
        ($field:ident) => {
            bytes.half(std::mem::offset_of!(Head, $field))
        };
    }
    let capacity = half!(capacity);
    let devices = half!(devices_named) as usize;
    if !RECORDS.contains(&capacity) || devices > DEVICES_PER_PROCESS {
        return None;
    }
    let boot: [u64; 2] = bytes.words(std::mem::offset_of!(Head, boot));
    let now = boot_id();
    Some(Header {
        slot: SlotId::from_word(word!(who))?,
        pid: half!(pid),
        uid: half!(uid),
        start_time: word!(start_time),
        exe: codec::text_of(&bytes.words::<EXE_WORDS>(std::mem::offset_of!(Head, exe))),
        label: codec::text_of(&bytes.words::<LABEL_WORDS>(std::mem::offset_of!(Head, label))),
        capacity,
        boottime_ns: word!(boottime_ns),
        realtime_ns: word!(realtime_ns),
        started_ns: word!(started_ns),
        stopped_ns: word!(stopped_ns),
        seen_ns: word!(seen_ns),
        devices: (0..devices)
            .map(|index| {
                let [low, high] = bytes.words(std::mem::offset_of!(Head, devices) + index * 16);
                codec::uuid_of(low, high)
            })
            .collect(),
        stale: boot != now && now != [0, 0] && boot != [0, 0],
    })
}

fn names(bytes: &Bytes<'_>) -> Vec<String> {
    let named = bytes.half(std::mem::offset_of!(Head, calls_named)) as usize;
    (0..named.min(CALLS))
        .map(|call| codec::text_of(&bytes.words::<8>(HEAD + call * size_of::<Name>())))
        .collect()
}

fn rows(bytes: &Bytes<'_>) -> Vec<[u64; 5]> {
    let first = std::mem::offset_of!(Tables, rows);
    (0..CALLS)
        .map(|call| bytes.words(first + call * size_of::<Row>()))
        .collect()
}

/// Bytes read at a time.
const PART: usize = 256 * 1024;

/// The published lines, and how many are not.
///
/// Reads every part twice: the first read shows which lines are published, the second has their words. In a single read a
/// line's last word may be newer than its first.
fn lines(file: &File, count: usize) -> io::Result<(Vec<[u64; 4]>, u64)> {
    let line = size_of::<Line>();
    let mut found = Vec::with_capacity(count);
    let (mut first, mut second) = (vec![0; PART], vec![0; PART]);
    let end = count * line;
    let mut at = 0;
    while at < end {
        let part = PART.min(end - at);
        let from = (size_of::<Tables>() + at) as u64;
        file.read_exact_at(&mut first[..part], from)?;
        // ORDER: the second look comes after the first; pairs with the Release in `Buffer::put`.
        fence(Ordering::Acquire);
        file.read_exact_at(&mut second[..part], from)?;
        for place in (0..part).step_by(line) {
            if Bytes(&first).word(place + std::mem::offset_of!(Line, what)) != 0 {
                found.push(Bytes(&second).words(place));
            }
        }
        at += part;
    }
    let unfinished = (count - found.len()) as u64;
    Ok((found, unfinished))
}
