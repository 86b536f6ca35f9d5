//! Is it alive? Two answers, for two questions.
//!
//! * *Is the process gone, so that its memory may be given back?* An open-file-description lock on the slot's byte
//!   of the state file, held by a mapping: lock a fresh descriptor, map it, `MADV_DONTFORK`, close it. The lock then
//!   lives exactly as long as the address space: it outlives close-all-fds, does not outlive exec, is not
//!   inherited by children, and is dropped after every descriptor, the driver's too.
//! * *Is the holder gone, so that the device lock may be taken over now?* A robust futex word in the slot, owned by
//!   the keeper thread. The keeper registers a robust list of its own, so the list's form is ours under any libc;
//!   the kernel marks the word within microseconds of the thread's death, whatever the size of the process.
//!
//! A child forked by another thread within the microseconds between open and close inherits the locked
//! description; the slot then counts as alive until that child closes it or ends. In the shim a fork waits for the
//! registration, and a reaper unlocks the byte before it closes the descriptor.

#![expect(
    unsafe_code,
    reason = "OFD locks and robust lists are raw system calls"
)]

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    sync::atomic::AtomicUsize,
};

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::protocol::primitive::{AtomicU32, Ordering};

// The kernel's ABI (linux/futex.h); not all libcs name them.
const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// Offset of the slots' bytes, far beyond the file's end: locks need no bytes.
const FIRST_BYTE: i64 = 1 << 40;

/// The state file, freshly opened, if it still is the file that is mapped.
pub(crate) struct Bytes {
    file: File,
}

/// Identity of the file that a mapping belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl FileId {
    pub(crate) fn of(file: &File) -> io::Result<FileId> {
        let meta = file.metadata()?;
        Ok(FileId {
            dev: meta.dev(),
            ino: meta.ino(),
        })
    }
}

impl Bytes {
    /// Makes the lock bytes of a file: to lock some (the file is open for writing) or only to query them.
    pub(crate) fn of(file: File, id: FileId) -> io::Result<Bytes> {
        if FileId::of(&file)? != id {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the segment was replaced by another one",
            ));
        }
        Ok(Bytes { file })
    }

    /// Makes the lock bytes of a file without a mapping.
    pub(crate) fn of_any(file: File) -> Bytes {
        Bytes { file }
    }

    /// Returns the file that holds the locks.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Locks a byte for this descriptor; false if another process has it.
    pub(crate) fn try_lock(&self, byte: usize) -> io::Result<bool> {
        match ofd(&self.file, libc::F_OFD_SETLK, libc::F_WRLCK, byte) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Unlocks a byte for all processes that share this descriptor. Closing it does not, if a child has inherited it.
    pub(crate) fn unlock(&self, byte: usize) {
        let _ = ofd(&self.file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
    }

    /// Returns true if another process holds the byte.
    pub(crate) fn is_locked(&self, byte: usize) -> io::Result<bool> {
        let answer = ofd(&self.file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)?;
        Ok(i32::from(answer) != libc::F_UNLCK)
    }

    /// Hands the locks of this descriptor to a mapping, and closes it.
    pub(crate) fn keep(self) -> io::Result<Alive> {
        let map = MmapOptions::new().len(4096).map_raw_read_only(&self.file)?;
        map.advise(Advice::DontFork)?;
        Ok(Alive { _map: map })
    }
}

/// Holds a slot's byte until dropped, or until the address space is gone.
pub(crate) struct Alive {
    _map: MmapRaw,
}

fn ofd(file: &File, command: i32, kind: i32, byte: usize) -> io::Result<i16> {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: FIRST_BYTE + byte as i64,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the lock record is on our stack and the descriptor is open by the borrow.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(lock.l_type)
    }
}

/// `struct robust_list_head` of the kernel's ABI, and the list's one node. The words are addresses.
#[repr(C)]
pub(crate) struct RobustList {
    head: AtomicUsize,
    futex_offset: libc::c_long,
    pending: usize,
    node: AtomicUsize,
}

impl RobustList {
    /// Ends the ownership: the kernel will touch no word on this list's account.
    pub(crate) fn unlink(&self) {
        self.head
            .store((&raw const self.head) as usize, Ordering::Relaxed);
    }
}

/// Makes the calling thread the owner of `word`: when it ends, however it ends, the kernel marks the word and wakes
/// one sleeper on it. The thread must use no robust mutex of its own. The list is leaked (32 bytes), because the
/// kernel reads it when the thread ends.
pub(crate) fn own_word(word: &AtomicU32) -> io::Result<&'static RobustList> {
    let list: &'static mut RobustList = Box::leak(Box::new(RobustList {
        head: AtomicUsize::new(0),
        futex_offset: 0,
        pending: 0,
        node: AtomicUsize::new(0),
    }));
    let node = (&raw const list.node) as usize;
    list.futex_offset = (word.as_ptr() as usize).wrapping_sub(node) as libc::c_long;
    let list: &'static RobustList = list;
    list.node
        .store((&raw const list.head) as usize, Ordering::Relaxed);
    list.head.store(node, Ordering::Relaxed);
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    // ORDER: Release; pairs with the Acquire in mark_of: a reader that sees the mark sees the registration.
    word.store(tid & FUTEX_TID_MASK | FUTEX_WAITERS, Ordering::Release);
    let size = std::mem::offset_of!(RobustList, node);
    // SAFETY: the head is leaked and linked to itself through its node; `size` is the kernel's head alone.
    let result = unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const list.head, size) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(list)
    }
}

/// Puts the calling thread's mark back where it was written over.
pub(crate) fn own_again(word: &AtomicU32) {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    if word.load(Ordering::Relaxed) & !FUTEX_WAITERS != tid & FUTEX_TID_MASK {
        // ORDER: Release, as in own_word.
        word.store(tid & FUTEX_TID_MASK | FUTEX_WAITERS, Ordering::Release);
    }
}

/// Gives the word up. The kernel ignores a word that is not a thread's own.
pub(crate) fn disown_word(word: &AtomicU32) {
    word.store(0, Ordering::Relaxed);
}

/// State of a process, as its keeper word holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// No keeper has started.
    None,
    /// The keeper lives.
    Alive,
    /// The keeper died.
    Dead,
}

/// Reads a keeper word.
pub(crate) fn mark_of(word: &AtomicU32) -> Mark {
    // ORDER: Acquire; what the dead did before its death is visible.
    match word.load(Ordering::Acquire) {
        0 => Mark::None,
        dead if dead & FUTEX_OWNER_DIED != 0 => Mark::Dead,
        _ => Mark::Alive,
    }
}
