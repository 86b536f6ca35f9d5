//! The files: made by the operator's tool or by the process itself, found, and removed when they are no longer needed.
//!
//! ```text
//!   hidden file ─▶ fallocate ─▶ owner, mode ─▶ head ─▶ rename(trace-SLOT-EPOCH)     a reader never sees half of one
//! ```
//!
//! A new buffer takes the name from an old one; a process that has mapped the old one keeps it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    RECORDS, Reader, TraceError, VERSION,
    layout::{EXE_WORDS, Head, LABEL_WORDS, MAGIC},
    name_of, size,
};
use crate::{
    files::{
        create::{self, Kind},
        dir::Dir,
        locate,
    },
    layout::codec,
    os::clock,
    protocol::crash::crash_point,
    segment::Segments,
    value::{Identity, MAX_PROCESSES, SlotId},
};

/// Time for which [`sweep`] keeps the buffer of a process that has ended, so that it can be exported.
pub const KEEP: Duration = Duration::from_secs(3600);

/// Makes the buffer of a process, in the place of an earlier one.
///
/// Makes a buffer with the owner, group and mode of the state file, without access for others: a user who may write the state
/// may write the buffer.
pub fn create(
    dir: &Path,
    slot: SlotId,
    identity: &Identity,
    records: u32,
) -> Result<PathBuf, TraceError> {
    if !RECORDS.contains(&records) {
        return Err(TraceError::Records { asked: records });
    }
    let brokered = Dir::open(dir).map_err(TraceError::Dir)?.is_brokered();
    let dir = locate::open_or_make_shared(dir).map_err(TraceError::Dir)?;
    forget_earlier_lives(&dir, slot);
    let path = dir.path().join(name_of(slot));
    let scratch = dir
        .scratch("trace", true)
        .map_err(TraceError::io(&path, "create"))?;
    let file = &scratch.file;
    crash_point!("trace:made");
    allocate(&path, file, records)?;
    match brokered {
        true => file
            .set_permissions(fs::Permissions::from_mode(0o600))
            .map_err(TraceError::io(&path, "set the mode of"))?,
        false => as_the_state(&dir, &path, file)?,
    }
    write_head(file, slot, identity, records).map_err(TraceError::io(&path, "initialise"))?;
    crash_point!("trace:initialised");
    scratch
        .publish(&name_of(slot), true)
        .map_err(TraceError::io(&path, "name"))?;
    Ok(path)
}

/// Gives a file the owner, group and mode of the state beside it.
fn as_the_state(dir: &Dir, path: &Path, file: &File) -> Result<(), TraceError> {
    let state = dir
        .existing(Kind::State.name(), false)
        .map_err(TraceError::Dir)?
        .metadata()
        .map_err(TraceError::io(path, "look at the state beside"))?;
    file.set_permissions(fs::Permissions::from_mode(state.mode() & 0o660))
        .map_err(TraceError::io(path, "set the mode of"))?;
    let made = file.metadata().map_err(TraceError::io(path, "look at"))?;
    if (made.uid(), made.gid()) != (state.uid(), state.gid()) {
        fchown(file, Some(state.uid()), Some(state.gid()))
            .map_err(TraceError::io(path, "give to the state's owner"))?;
    }
    Ok(())
}

/// Makes sure that every byte has its place on the file system.
fn allocate(path: &Path, file: &File, records: u32) -> Result<(), TraceError> {
    let want = size(records);
    create::allocate(file, want).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => TraceError::NoSpace {
            path: path.to_path_buf(),
            want,
        },
        _ => TraceError::io(path, "allocate")(source),
    })
}

/// By plain writes: no process has mapped the file yet.
fn write_head(file: &File, slot: SlotId, identity: &Identity, records: u32) -> io::Result<()> {
    macro_rules! put {
        ($($field:ident: $value:expr;)*) => {
            $(file.write_all_at(&$value.to_ne_bytes(), std::mem::offset_of!(Head, $field) as u64)?;)*
        };
    }
    let text = |words: &mut [u64], at: usize, text: &str| {
        codec::text_words(text, words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, at as u64)
    };
    let (boottime, realtime) = moment();
    let boot = create::boot_id();
    put! {
        magic: MAGIC;
        capacity: records;
        size: size(records);
        who: slot.to_word();
        pid: identity.pid;
        uid: identity.uid;
        start_time: identity.start_time;
        boottime_ns: boottime;
        realtime_ns: realtime;
    }
    for (index, word) in boot.into_iter().enumerate() {
        let at = std::mem::offset_of!(Head, boot) + index * 8;
        file.write_all_at(&word.to_ne_bytes(), at as u64)?;
    }
    text(
        &mut [0; EXE_WORDS],
        std::mem::offset_of!(Head, exe),
        &identity.exe,
    )?;
    text(
        &mut [0; LABEL_WORDS],
        std::mem::offset_of!(Head, label),
        &identity.label,
    )?;
    put! { version: VERSION; }
    Ok(())
}

/// Returns one moment on the segments' clock and on the wall clock.
pub(super) fn moment() -> (u64, u64) {
    let realtime = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        u64::try_from(i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec))
            .unwrap_or(0)
    };
    // Of three looks the one that was interrupted least.
    let looks = std::array::from_fn::<_, 3, _>(|_| {
        let before = clock::now();
        let wall = realtime();
        let took = clock::now().saturating_sub(before);
        (took, before.saturating_add(took / 2), wall)
    });
    let (_, boottime, realtime) = looks.into_iter().min().unwrap_or_default();
    (boottime, realtime)
}

/// The buffers in a directory, by slot and epoch.
pub fn list(dir: &Path) -> Result<Vec<(SlotId, PathBuf)>, TraceError> {
    let dir = locate::open_shared(dir).map_err(TraceError::Dir)?;
    let slots = slots(&dir).map_err(TraceError::io(dir.path(), "list"))?;
    let path = |slot| dir.path().join(name_of(slot));
    Ok(slots.into_iter().map(|slot| (slot, path(slot))).collect())
}

fn slots(dir: &Dir) -> io::Result<Vec<SlotId>> {
    let mut slots: Vec<SlotId> = dir
        .names()?
        .iter()
        .filter_map(|name| slot_of(name))
        .collect();
    slots.sort();
    Ok(slots)
}

fn slot_of(name: &str) -> Option<SlotId> {
    let (index, epoch) = name.strip_prefix("trace-")?.split_once('-')?;
    let slot = SlotId {
        index: index.parse().ok()?,
        epoch: epoch.parse().ok()?,
    };
    let ours = usize::from(slot.index) < MAX_PROCESSES && slot.epoch != 0;
    // Written as we write it: no sign, no leading zero.
    (ours && name == name_of(slot)).then_some(slot)
}

/// Removes a buffer. A process that writes it continues, and its records are lost.
pub fn remove(dir: &Path, slot: SlotId) -> Result<(), TraceError> {
    let dir = locate::open_shared(dir).map_err(TraceError::Dir)?;
    let path = dir.path().join(name_of(slot));
    dir.remove(&name_of(slot))
        .map_err(TraceError::io(&path, "remove"))
}

/// Removes what processes left that have ended more than `keep` ago, and buffers without a process. Returns how many
/// files it removed.
pub fn sweep(segments: &Segments, keep: Duration, now_ns: u64) -> usize {
    let Ok(dir) = locate::open_shared(segments.dir()) else {
        return 0;
    };
    let mut removed = 0;
    for slot in slots(&dir).unwrap_or_default() {
        if is_current(segments, slot) {
            continue;
        }
        let keep_ns = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
        let wanted = Reader::open(&dir.path().join(name_of(slot))).is_ok_and(|reader| {
            let header = reader.header();
            let last = header
                .seen_ns
                .max(header.started_ns)
                .max(header.boottime_ns);
            now_ns.saturating_sub(last) < keep_ns
        });
        if !wanted && dir.remove(&name_of(slot)).is_ok() {
            removed += 1;
        }
    }
    removed + sweep_hidden(&dir)
}

fn is_current(segments: &Segments, slot: SlotId) -> bool {
    segments.is_current(slot) && !matches!(segments.is_gone(usize::from(slot.index)), Ok(true))
}

/// Removes files of makers that were killed halfway. To make a buffer takes less than a minute.
fn sweep_hidden(dir: &Dir) -> usize {
    let names = dir.names().unwrap_or_default().into_iter();
    names
        .filter(|name| name.starts_with(".trace."))
        .filter(|name| dir.age(name).is_ok_and(|age| age > Duration::from_secs(60)))
        .filter(|name| dir.remove(name).is_ok())
        .count()
}

/// The slot has a new life: what its earlier ones left has had its time.
fn forget_earlier_lives(dir: &Dir, slot: SlotId) {
    for other in slots(dir).unwrap_or_default() {
        if other.index == slot.index && other.epoch != slot.epoch {
            let _ = dir.remove(&name_of(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_we_write_them_are_buffers() {
        let slot = SlotId {
            index: 3,
            epoch: 17,
        };
        assert_eq!(slot_of("trace-3-17"), Some(slot));
        for name in [
            "trace-3-0",
            "trace-256-1",
            "trace-+3-17",
            "trace-03-17",
            "trace-3",
            "trace-3-17x",
            "state",
        ] {
            assert_eq!(slot_of(name), None, "{name}");
        }
    }
}
