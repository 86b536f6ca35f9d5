//! The [pages](crate::layout::private_account) of a machine's processes, mapped: one's own to write, those of others to read.

#![expect(
    unsafe_code,
    reason = "mappings at places of our own, and the casts from them to pages"
)]

use std::{
    ffi::c_void,
    fs::File,
    io,
    os::fd::OwnedFd,
    path::Path,
    ptr,
    sync::{Mutex, OnceLock, TryLockError},
    time::Duration,
};

use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::{
    broker::{
        socket,
        wire::{self, Field, Message, Verb},
    },
    files::error::OpenError,
    layout::private_account::{self, PrivateAccount},
    os::clock,
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    value::{MAX_PROCESSES, SlotId},
};

/// A process's own, for the life of its slot.
pub(crate) struct OwnAccount(MmapRaw);

impl OwnAccount {
    /// Maps the memory that the broker handed out.
    pub(crate) fn map(memory: OwnedFd) -> io::Result<OwnAccount> {
        let mut options = MmapOptions::new();
        let map = options
            .len(private_account::SIZE as usize)
            .map_raw(&File::from(memory))?;
        Ok(OwnAccount(map))
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &PrivateAccount {
        // SAFETY: a mapping is page-aligned, longer than a Page and lives as long as `self`; a Page is Shared: atomics only,
        // any bytes valid. The broker made the memory so long and sealed it.
        unsafe { &*self.0.as_ptr().cast::<PrivateAccount>() }
    }
}

/// Time without new requests after the broker did not reply.
const REST_NS: u64 = 1_000_000_000;
/// Time in ms that a thread waits for another of the process's threads that asks; somewhat longer than a reply may take.
const PATIENCE_MS: u32 = 1200;

/// The accounts of other processes, one place for each slot.
pub(crate) struct AccountMap {
    places: OnceLock<Option<AddressRange>>,
    /// By slot, the life whose account is mapped in its place; 0 for none.
    lives: [AtomicU32; MAX_PROCESSES],
    asking: Mutex<()>,
    resting_until: AtomicU64,
}

/// Room for all of them, side by side.
struct AddressRange {
    begin: *mut c_void,
    stride: usize,
}

// SAFETY: a range of addresses of this process, which stays reserved as long as the value lives.
unsafe impl Send for AddressRange {}
// SAFETY: as above; what lies there are atomics.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    fn reserve() -> Option<AddressRange> {
        let stride = rustix::param::page_size();
        let (length, flags) = (MAX_PROCESSES * stride, MapFlags::PRIVATE);
        // SAFETY: new memory, at a place of the kernel's choice.
        let begin =
            unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ, flags) }.ok()?;
        Some(AddressRange { begin, stride })
    }

    fn at(&self, index: usize) -> *mut c_void {
        self.begin.wrapping_byte_add(index * self.stride)
    }

    /// Replaces the mapping in a slot's place. A concurrent reader reads the old one or the new one.
    fn lay(&self, index: usize, memory: &File) -> bool {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let (place, length) = (self.at(index), private_account::SIZE as usize);
        // SAFETY: replaces a part of our own reservation; references into it are of atomics that only the kernel's pages behind
        // them change.
        unsafe { mmap(place, length, ProtFlags::READ, flags, memory, 0) }.is_ok()
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: no reference into it outlives `self`.
        let _ = unsafe { munmap(self.begin, MAX_PROCESSES * self.stride) };
    }
}

impl AccountMap {
    pub(crate) fn new() -> AccountMap {
        AccountMap {
            places: OnceLock::new(),
            lives: std::array::from_fn(|_| AtomicU32::new(0)),
            asking: Mutex::new(()),
            resting_until: AtomicU64::new(0),
        }
    }

    /// Returns the account of this life of a slot, if it is mapped.
    pub(crate) fn of(&self, slot: SlotId) -> Option<&PrivateAccount> {
        let index = usize::from(slot.index);
        // ORDER: pairs with the Release in ask; behind it the page lies in its place.
        if self.lives.get(index)?.load(Ordering::Acquire) != slot.epoch {
            return None;
        }
        let places = self.places.get()?.as_ref()?;
        // SAFETY: our own reservation, index checked above, page-aligned; a Page is Shared: atomics only, any bytes valid.
        // What lies there is sealed against being cut short.
        Some(unsafe { &*places.at(index).cast::<PrivateAccount>() })
    }

    /// Has these mapped, as far as the broker of the directory answers.
    pub(crate) fn fetch(&self, dir: &Path, missing: &[SlotId]) {
        for _ in 0..PATIENCE_MS {
            if missing.iter().all(|slot| self.of(*slot).is_some()) {
                return;
            }
            let asking = match self.asking.try_lock() {
                Ok(asking) => asking,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Another thread has it, or the one that a signal handler of the application interrupted.
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            let mut parts = missing.chunks(socket::DESCRIPTORS);
            if !self.are_withheld() && parts.any(|part| self.ask(dir, part).is_none()) {
                let until = clock::now() + REST_NS;
                self.resting_until.store(until, Ordering::Relaxed);
            }
            drop(asking);
            return;
        }
    }

    /// Returns true if there is a broker that did not reply a short while ago.
    pub(crate) fn are_withheld(&self) -> bool {
        clock::now() < self.resting_until.load(Ordering::Relaxed)
    }

    /// Asks the broker for accounts. `None` where there is a broker that did not answer.
    fn ask(&self, dir: &Path, slots: &[SlotId]) -> Option<()> {
        let places = self.places.get_or_init(AddressRange::reserve).as_ref()?;
        let question = asking(slots);
        let (answer, handed) = match socket::ask(dir, &question) {
            Err(OpenError::NoBroker { source, .. }) if is_gone(&source) => return Some(()),
            answer => answer.ok()?,
        };
        let listed = answer.text(Field::Slots)?;
        if wire::slots_of(listed).count() != handed.len() {
            // There is no descriptor left in this process.
            return None;
        }
        let handed_for = wire::slots_of(listed);
        for ((index, epoch), memory) in handed_for.zip(handed.into_iter().map(File::from)) {
            let index = usize::from(index);
            let fits = index < MAX_PROCESSES && socket::is_sealed(&memory, private_account::SIZE);
            if !fits || !places.lay(index, &memory) {
                return None;
            }
            // ORDER: pairs with the Acquire in of; the page lies in its place.
            self.lives[index].store(epoch, Ordering::Release);
        }
        Some(())
    }
}

/// Asks for the accounts of these.
pub(crate) fn asking(slots: &[SlotId]) -> Message {
    let slots = wire::slots(slots.iter().map(|slot| (slot.index, slot.epoch)));
    Message::new(Verb::Accounts).with(Field::Slots, slots)
}

/// Returns true if there is no broker, judged by the error of the attempt to reach it.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound
    )
}
