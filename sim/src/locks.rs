//! File locks of a world: the lock for its creation and membership, and a liveness lock per process.
//!
//! The liveness of a process is an open-file-description lock on one byte. Only a mapping that forks do not inherit keeps the
//! file open. The lock therefore ends with the address space: not when the process closes all its descriptors, not when a
//! forked child exits, and always when the process is killed.

#![allow(unsafe_code)]

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock;

/// Offset of the first lock byte. Locks need no file size, so the file stays empty.
const FIRST_BYTE: i64 = 1 << 32;
/// The byte that every process with the open world holds as a shared lock.
const PRESENT: i64 = FIRST_BYTE - 1;

/// Opens a lock file, or creates it if it is missing.
fn open(path: &Path) -> io::Result<File> {
    // Another process may remove the file between the two calls.
    for _ in 0..8 {
        match existing(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match options().create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
    Err(io::Error::other("others make and remove it all the time"))
}

/// Opens a file of a world. Every user may create any name in `/dev/shm`, so the file must belong to this user, be regular, and
/// be writable by no other user. The open follows no link and never waits.
pub(crate) fn existing(path: &Path) -> io::Result<File> {
    match options().open(path) {
        Ok(file) => judge(&file.metadata()?).map(|()| file),
        // A wrong owner explains more than the error of the open.
        Err(error) => Err(std::fs::symlink_metadata(path)
            .and_then(|found| judge(&found))
            .err()
            .unwrap_or(error)),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

fn judge(found: &Metadata) -> io::Result<()> {
    const WRITTEN_BY_OTHERS: u32 = 0o022;
    // SAFETY: geteuid has no preconditions.
    let us = unsafe { libc::geteuid() };
    let why = if found.uid() != us {
        format!(
            "it belongs to user {}, not to user {us}; set GPUSHARE_SIM_WORLD to a name of your own",
            found.uid()
        )
    } else if !found.is_file() {
        "it is not a regular file; remove it".to_owned()
    } else if found.mode() & WRITTEN_BY_OTHERS != 0 {
        "other users may write to it; remove it".to_owned()
    } else {
        return Ok(());
    };
    Err(io::Error::other(why))
}

/// The lock file of a world's memory.
pub fn lock_path(memory: &Path) -> PathBuf {
    let mut path = memory.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// The exclusive lock for making a world or changing its members. `Drop` or the kernel releases it.
#[derive(Debug)]
pub struct Exclusive {
    file: File,
}

/// Maximum wait for the lock. Only a stopped process holds it that long.
const PATIENCE: Duration = Duration::from_secs(5);

impl Exclusive {
    /// Waits for the lock. After a few seconds it continues without the lock, because a process that is stopped with the lock
    /// must not stop all others.
    pub fn lock(path: &Path) -> io::Result<Self> {
        let mut file = open(path)?;
        let end = clock::now() + PATIENCE.as_nanos() as u64;
        let mut pause = Duration::from_micros(50);
        loop {
            let locked = try_flock(&file)?;
            if clock::now() >= end {
                break;
            }
            if !is_named(&file, path) {
                // The owner removed the file. A lock on a file without a name excludes no process.
                file = open(path)?;
            } else if locked {
                break;
            } else {
                clock::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
            }
        }
        Ok(Self { file })
    }

    /// Takes the lock if it is free.
    pub fn try_lock(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        Ok((try_flock(&file)? && is_named(&file, path)).then_some(Self { file }))
    }
}

/// Returns true if the open file is still the one of that name.
fn is_named(file: &File, path: &Path) -> bool {
    let named = std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    let open = file.metadata().map(|found| (found.dev(), found.ino()));
    matches!((named, open), (Ok(named), Ok(open)) if named == open)
}

fn try_flock(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open for as long as `file` lives.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        busy if busy.kind() == io::ErrorKind::WouldBlock => Ok(false),
        other => Err(other),
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Unlocked explicitly, because a child that was forked in between shares the open file.
        // SAFETY: the descriptor is open for as long as `file` lives.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn byte(index: usize) -> libc::flock {
    // SAFETY: a flock of zeros is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = FIRST_BYTE + index as i64;
    lock.l_len = 1;
    lock
}

/// A byte that stays locked until this address space ends.
#[derive(Debug)]
pub struct Life {
    mapping: *mut libc::c_void,
    pid: u32,
}

// SAFETY: the mapping is never read or written; it only exists.
unsafe impl Send for Life {}
// SAFETY: as above.
unsafe impl Sync for Life {}

const LIFE_BYTES: usize = 4096;

impl Life {
    /// Locks byte `index` of the file for the life of this address space, or of the returned value.
    pub fn begin(path: &Path, index: usize) -> io::Result<Self> {
        Self::hold(path, byte(index))
    }

    /// Registers this address space as a user of the world, with a shared lock.
    pub fn present(path: &Path) -> io::Result<Self> {
        let mut lock = byte(0);
        lock.l_type = libc::F_RDLCK as libc::c_short;
        lock.l_start = PRESENT;
        Self::hold(path, lock)
    }

    /// Returns true if this process took the lock, false in a forked child.
    pub fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    fn hold(path: &Path, lock: libc::flock) -> io::Result<Self> {
        let file = open(path)?;
        // SAFETY: descriptor and struct are live.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh mapping; its pages are not in use yet.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LIFE_BYTES,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(mapping, LIFE_BYTES, libc::MADV_DONTFORK) };
        // The mapping keeps the open file, and so the lock, when `file` is closed here.
        Ok(Self {
            mapping,
            pid: std::process::id(),
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference to it is left.
        unsafe { libc::munmap(self.mapping, LIFE_BYTES) };
    }
}

/// The liveness locks of a world. The file is opened once for many queries, and not kept: a fork would inherit it.
pub struct Lives(Option<File>);

impl Lives {
    /// Opens the lock file.
    pub fn of(path: &Path) -> Self {
        Self(open(path).ok())
    }

    /// Returns true if another address space holds byte `index`, or if the file cannot be read.
    pub fn has(&self, index: usize) -> bool {
        let byte = FIRST_BYTE + index as i64;
        self.0.as_ref().is_none_or(|file| is_held(file, byte, 1))
    }
}

/// Returns true if another process has the world open or is a member, apart from the slots in `indices` (ascending), or if the
/// file cannot be read.
pub fn anyone_but(path: &Path, indices: &[usize]) -> bool {
    let Ok(file) = open(path) else { return true };
    let mut start = PRESENT;
    for index in indices {
        let byte = FIRST_BYTE + *index as i64;
        if byte > start && is_held(&file, start, byte - start) {
            return true;
        }
        start = byte + 1;
    }
    const TO_THE_END: i64 = 0;
    is_held(&file, start, TO_THE_END)
}

/// Returns true if another open file holds one of these bytes.
fn is_held(file: &File, start: i64, length: i64) -> bool {
    let mut lock = byte(0);
    (lock.l_start, lock.l_len) = (start, length);
    // SAFETY: descriptor and struct are live.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    answer != 0 || lock.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_shows_until_it_ends() {
        let path = std::env::temp_dir().join(format!("gpushare-life-{}", std::process::id()));
        let life = Life::begin(&path, 7).expect("a fresh byte");
        let lives = Lives::of(&path);
        assert!(lives.has(7) && !lives.has(8));
        assert!(Life::begin(&path, 7).is_err(), "a byte has one owner");
        assert!(anyone_but(&path, &[6, 8]));
        assert!(!anyone_but(&path, &[7]));
        let before = Life::begin(&path, 6).expect("a fresh byte");
        assert!(anyone_but(&path, &[7]) && !anyone_but(&path, &[6, 7]));
        drop(before);
        let present = Life::present(&path).expect("beside the others");
        assert!(anyone_but(&path, &[7]));
        drop(present);
        drop(life);
        assert!(!lives.has(7) && !anyone_but(&path, &[]));
        std::fs::remove_file(path).expect("the file is there");
    }
}
