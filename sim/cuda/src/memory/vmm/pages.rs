//! The pages behind virtual memory: files of host memory and where they are mapped.
//!
//! A reserved address that shows nothing is mapped without access, so that touching it is a fault and no
//! other mapping gets it.
#![allow(unsafe_code)]

use std::{
    fs::File,
    os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd},
};

use crate::memory::vmm::space::Place;

/// The host's page.
pub const PAGE: u64 = 4096;

/// A file's name starts with this; the place follows.
const NAME: &str = "gpushare-sim-memory:";

/// A file that another process sent.
pub struct Found {
    /// The file.
    pub file: OwnedFd,
    /// The size in bytes.
    pub bytes: u64,
    /// The location of the memory.
    pub place: Place,
}

/// Creates a file of zeros. Its name contains the location of the memory, for processes that receive the descriptor.
pub fn create(bytes: u64, place: Place) -> Option<OwnedFd> {
    let name = std::ffi::CString::new(format!("{NAME}{place}")).ok()?;
    // SAFETY: the name ends in NUL.
    let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return None;
    }
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { File::from_raw_fd(raw) };
    file.set_len(bytes).ok()?;
    Some(file.into())
}

/// Duplicates the descriptor of a file for the application.
pub fn duplicate(file: &OwnedFd) -> Option<i32> {
    Some(file.try_clone().ok()?.into_raw_fd())
}

/// Returns the contents of a descriptor of the application, if it is one of these files. The descriptor stays open.
pub fn open(descriptor: i32) -> Option<Found> {
    if descriptor < 0 {
        return None;
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(NAME)?;
    let place = name.split(' ').next()?.parse().ok()?;
    // SAFETY: the descriptor is open: its link was just read, and it is the caller's to keep so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let file = File::from(borrowed.try_clone_to_owned().ok()?);
    let bytes = file.metadata().ok()?.len();
    Some(Found {
        file: file.into(),
        bytes,
        place,
    })
}

fn map(at: u64, bytes: u64, access: i32, flags: i32, file: i32, offset: u64) -> Option<u64> {
    let (at, bytes) = (at as *mut libc::c_void, usize::try_from(bytes).ok()?);
    // SAFETY: either the kernel chooses the address, or this process has reserved the range.
    let address = unsafe { libc::mmap(at, bytes, access, flags, file, offset as i64) };
    (address != libc::MAP_FAILED).then_some(address as u64)
}

const NOTHING: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Reserves addresses: where wanted, if that is free and aligned, else anywhere.
pub fn reserve(bytes: u64, alignment: u64, wanted: u64) -> Option<u64> {
    if wanted != 0 && wanted.is_multiple_of(alignment) {
        let flags = NOTHING | libc::MAP_FIXED_NOREPLACE;
        match map(wanted, bytes, libc::PROT_NONE, flags, -1, 0) {
            Some(address) if address == wanted => return Some(address),
            // An old kernel treats the address as a hint.
            Some(elsewhere) => unreserve(elsewhere, bytes),
            None => {}
        }
    }
    let room = bytes.checked_add(alignment)?;
    let start = map(0, room, libc::PROT_NONE, NOTHING, -1, 0)?;
    let address = start.next_multiple_of(alignment);
    unreserve(start, address - start);
    unreserve(address + bytes, start + room - address - bytes);
    Some(address)
}

/// Releases addresses.
pub fn unreserve(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the range is part of a reservation of this process that is being released.
        unsafe { libc::munmap(address as *mut _, bytes as usize) };
    }
}

/// Shows a file's bytes in a reserved range.
pub fn show(address: u64, bytes: u64, file: i32, offset: u64) -> Option<()> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
    map(address, bytes, access, flags, file, offset).map(|_| ())
}

/// Shows nothing in a reserved range.
pub fn hide(address: u64, bytes: u64) {
    // It stays reserved; should even that fail, the old bytes stay in sight.
    let _ = map(
        address,
        bytes,
        libc::PROT_NONE,
        NOTHING | libc::MAP_FIXED,
        -1,
        0,
    );
}
