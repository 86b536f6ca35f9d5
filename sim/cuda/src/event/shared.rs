//! What processes share of an event: how often it was recorded, and how many of the records have happened.
//!
//! The two numbers are in an unnamed file of one page, which another process opens through `/proc` as it opens memory
//! (`crate::memory::ipc`). A wait is for the records that were asked for when it was queued. It ends with the process that
//! recorded last, too: what a dead process queued never happens.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gpushare_sim::clock;

const PAGE: usize = 4096;
const NAME: &std::ffi::CStr = c"gpushare-sim-event";

/// The page.
#[repr(C)]
struct Words {
    /// Records asked for.
    asked: AtomicU64,
    /// The latest that has happened.
    happened: AtomicU64,
    /// The process that asked last.
    pid: AtomicU64,
}

/// An event's page, mapped.
#[derive(Debug)]
pub struct Shared {
    words: NonNull<Words>,
    file: File,
}

// SAFETY: the page holds atomic words only and stays mapped until the drop.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A page for a new event.
    pub fn new() -> Option<Self> {
        // SAFETY: the name is NUL-terminated.
        let raw = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return None;
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        file.set_len(PAGE as u64).ok()?;
        Self::map(file)
    }

    /// Another process's, by its pid and its descriptor there.
    pub fn open(pid: u64, descriptor: u64) -> Option<Self> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let link = std::fs::read_link(&path).ok()?;
        if !link.to_string_lossy().contains(NAME.to_str().ok()?) {
            return None;
        }
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let is_whole = file.metadata().ok()?.len() == PAGE as u64;
        is_whole.then(|| Self::map(file)).flatten()
    }

    fn map(file: File) -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (any, descriptor) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping where the kernel likes.
        let page = unsafe { libc::mmap(any, PAGE, access, libc::MAP_SHARED, descriptor, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        let words = NonNull::new(page.cast())?;
        Some(Self { words, file })
    }

    fn words(&self) -> &Words {
        // SAFETY: the page is mapped as long as `self` is, aligned, and any bytes are valid words.
        unsafe { self.words.as_ref() }
    }

    /// The descriptor by which others find the page.
    pub fn descriptor(&self) -> u64 {
        self.file.as_raw_fd() as u64
    }

    /// A record is queued: its number.
    pub fn ask(&self) -> u64 {
        let words = self.words();
        words
            .pid
            .store(std::process::id().into(), Ordering::Relaxed);
        // ORDER: pairs with `asked`; publishes the pid.
        words.asked.fetch_add(1, Ordering::Release) + 1
    }

    /// A record has happened.
    pub fn happen(&self, number: u64) {
        // ORDER: pairs with `has_happened`; publishes what the work before it wrote.
        self.words().happened.fetch_max(number, Ordering::Release);
    }

    /// The number of the latest record that is queued.
    pub fn asked(&self) -> u64 {
        // ORDER: pairs with `ask`.
        self.words().asked.load(Ordering::Acquire)
    }

    /// Whether a record has happened, or never will.
    pub fn has_happened(&self, number: u64) -> bool {
        // ORDER: pairs with `happen`.
        self.words().happened.load(Ordering::Acquire) >= number || self.is_orphan()
    }

    fn is_orphan(&self) -> bool {
        let pid = self.words().pid.load(Ordering::Relaxed);
        pid != 0 && !std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    /// Waits for a record; returns when it was seen.
    pub fn wait(&self, number: u64) -> u64 {
        while !self.has_happened(number) {
            std::thread::sleep(Duration::from_micros(50));
        }
        clock::now()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `map` with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_seen_through_another_mapping_in_their_order() {
        let own = Shared::new().expect("a page");
        let other = Shared::open(std::process::id().into(), own.descriptor()).expect("the page");
        assert!(other.has_happened(other.asked()), "never recorded");
        let (first, second) = (own.ask(), own.ask());
        own.happen(first);
        assert!(other.has_happened(first) && !other.has_happened(other.asked()));
        own.happen(second);
        assert!(other.has_happened(other.asked()));
    }

    #[test]
    fn what_is_no_event_is_not_opened() {
        assert!(Shared::open(std::process::id().into(), 0).is_none());
        assert!(Shared::open(u64::MAX, 0).is_none());
    }
}
