//! The part of an event that other processes see: the number of its queued records, and how many of them have
//! happened.
//!
//! The two numbers are in a page of an unnamed file, which another process opens through `/proc` like memory
//! (`crate::memory::ipc`). All shared events of a process are in one file, so a handle can be opened as long as the
//! process runs: clients send an event to another process and destroy it before that process has opened it. A wait
//! covers the records that were queued before it. It also ends when the process that recorded last ends, because its
//! queued records never happen.

#![allow(unsafe_code)]

use std::{
    fs::{File, OpenOptions},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gpushare_sim::clock;

use crate::handles::lock;

const PAGE: usize = 4096;
const NAME: &std::ffi::CStr = c"gpushare-sim-event";

/// The page.
#[repr(C)]
struct Words {
    /// Number of records that were queued.
    asked: AtomicU64,
    /// The latest that has happened.
    happened: AtomicU64,
    /// The process that queued a record last.
    pid: AtomicU64,
}

/// The file with the pages of this process's events.
struct Pages {
    file: File,
    count: u64,
    /// Pages of destroyed events. The next event takes the latest of them, and with it its handle, as on a driver (580.159).
    free: Vec<u64>,
}

static PAGES: Mutex<Option<Pages>> = Mutex::new(None);

impl Pages {
    fn new() -> Option<Self> {
        // SAFETY: the name is NUL-terminated.
        let raw = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return None;
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        Some(Self {
            file,
            count: 0,
            free: Vec::new(),
        })
    }

    /// Takes the number of a page that no event uses.
    fn take(&mut self) -> Option<u64> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        self.file.set_len((self.count + 1) * PAGE as u64).ok()?;
        self.count += 1;
        Some(self.count - 1)
    }
}

/// An event's page, mapped.
#[derive(Debug)]
pub struct Shared {
    words: NonNull<Words>,
    /// The number of its page, for an event of this process.
    page: Option<u64>,
}

// SAFETY: the page holds atomic words only and stays mapped until the drop.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates a page for a new event.
    pub fn new() -> Option<Self> {
        let mut pages = lock(&PAGES);
        if pages.is_none() {
            *pages = Pages::new();
        }
        let pages = pages.as_mut()?;
        let page = pages.take()?;
        let Some(words) = map(&pages.file, page) else {
            pages.free.push(page);
            return None;
        };
        let shared = Self {
            words,
            page: Some(page),
        };
        // Another process may still have the destroyed event that was here. Its numbers go on, so that no wait for one of
        // them lasts for ever.
        shared.happen(shared.asked());
        shared.words().pid.store(0, Ordering::Relaxed);
        Some(shared)
    }

    /// Opens another process's event, by its pid, its descriptor and the page's number there.
    pub fn open(pid: u64, descriptor: u64, page: u64) -> Option<Self> {
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let link = std::fs::read_link(&path).ok()?;
        if !link.to_string_lossy().contains(NAME.to_str().ok()?) {
            return None;
        }
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let is_there = page < file.metadata().ok()?.len() / PAGE as u64;
        let words = is_there.then(|| map(&file, page)).flatten()?;
        Some(Self { words, page: None })
    }

    /// Returns the descriptor and the page's number by which other processes find it; `None` for an event of another
    /// process.
    pub fn export(&self) -> Option<(u64, u64)> {
        let page = self.page?;
        let descriptor = lock(&PAGES).as_ref()?.file.as_raw_fd();
        Some((descriptor as u64, page))
    }

    fn words(&self) -> &Words {
        // SAFETY: the page is mapped as long as `self` is, aligned, and any bytes are valid words.
        unsafe { self.words.as_ref() }
    }

    /// Records that a record was queued; returns its number.
    pub fn ask(&self) -> u64 {
        let words = self.words();
        words
            .pid
            .store(std::process::id().into(), Ordering::Relaxed);
        // ORDER: pairs with `asked`; publishes the pid.
        words.asked.fetch_add(1, Ordering::Release) + 1
    }

    /// Records that a record has happened.
    pub fn happen(&self, number: u64) {
        // ORDER: pairs with `has_happened`; publishes what the work before it wrote.
        self.words().happened.fetch_max(number, Ordering::Release);
    }

    /// Returns the number of the latest queued record.
    pub fn asked(&self) -> u64 {
        // ORDER: pairs with `ask`.
        self.words().asked.load(Ordering::Acquire)
    }

    /// Returns true if a record has happened, or never will.
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
        if let Some(page) = self.page
            && let Some(pages) = lock(&PAGES).as_mut()
        {
            pages.free.push(page);
        }
    }
}

fn map(file: &File, page: u64) -> Option<NonNull<Words>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (any, descriptor) = (std::ptr::null_mut(), file.as_raw_fd());
    let offset = i64::try_from(page).ok()?.checked_mul(PAGE as i64)?;
    // SAFETY: a new mapping where the kernel likes.
    let page = unsafe { libc::mmap(any, PAGE, access, libc::MAP_SHARED, descriptor, offset) };
    if page == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_seen_through_another_mapping_in_their_order() {
        let own = Shared::new().expect("a page");
        let (descriptor, page) = own.export().expect("its own");
        let pid = std::process::id().into();
        let other = Shared::open(pid, descriptor, page).expect("the page");
        assert!(other.has_happened(other.asked()), "never recorded");
        let (first, second) = (own.ask(), own.ask());
        own.happen(first);
        assert!(other.has_happened(first) && !other.has_happened(other.asked()));
        own.happen(second);
        assert!(other.has_happened(other.asked()));
    }

    #[test]
    fn a_wait_for_a_destroyed_event_ends_when_its_page_is_used_again() {
        let own = Shared::new().expect("a page");
        let (descriptor, page) = own.export().expect("its own");
        let other = Shared::open(std::process::id().into(), descriptor, page).expect("the page");
        let number = own.ask();
        drop(own);
        // If a test beside this one has taken the page, that one ended the wait.
        let _next = Shared::new();
        assert!(other.has_happened(number));
    }

    #[test]
    fn what_is_no_event_is_not_opened() {
        assert!(Shared::open(std::process::id().into(), 0, 0).is_none());
        assert!(Shared::open(u64::MAX, 0, 0).is_none());
        let (descriptor, _) = Shared::new().and_then(|own| own.export()).expect("a page");
        let pid = std::process::id().into();
        assert!(Shared::open(pid, descriptor, 1 << 40).is_none());
    }
}
