//! A process's slot: claimed, published, kept alive, given back.
//!
//! The slot's byte is locked first and the claim word swapped second, so a slot that is taken in memory and not
//! locked belongs to a dead process, whatever step it died in, and `reap` gives it back.

mod device;
mod enter;
mod eviction;
pub(crate) mod reap;

use std::{
    fmt, io,
    marker::PhantomData,
    sync::{Mutex, PoisonError},
};

use self::reap::{Cause, give_back};
pub use self::{enter::register, eviction::Moved};
use crate::{
    cached_settings::{Entry, OwnSlot},
    files::error::remedy,
    layout::counters::Counters,
    lock::DeviceLock,
    memory::ledger::Ledger,
    os::{
        clock,
        liveness::{self, Alive, RobustList},
    },
    protocol::{claim, crash::crash_point, primitive::Ordering},
    segment::Segments,
    value::{
        DEVICES_PER_PROCESS, LockPolicy, MAX_DEVICES, MemoryLimit, OnFull, Progress, Share, SlotId,
        Source, TraceOrder,
    },
};

/// A process's slot, for as long as it lives. Dropping it gives the slot back.
pub struct Registration {
    own_slot: OwnSlot,
    /// The process that registered; a forked child drops nothing of it.
    pid: u32,
    /// The slot's byte. Taken out before the slot is free, dropped after.
    alive: Option<Alive>,
    memory: [MemoryLimit; DEVICES_PER_PROCESS],
    memory_source: Source,
    keeper: Mutex<Option<&'static RobustList>>,
    /// Held while a device is entered.
    entering: Mutex<()>,
    is_curbed: bool,
}

/// The keeper thread's mark of life. Stays on its thread; dropping it takes the mark back. Drop it before the
/// registration.
pub struct KeeperMark {
    segments: Segments,
    slot: SlotId,
    list: &'static RobustList,
    _not_send: PhantomData<*const ()>,
}

impl Registration {
    /// The slot.
    pub fn slot(&self) -> SlotId {
        self.own_slot.slot()
    }

    /// The segments it is in.
    pub fn segments(&self) -> &Segments {
        self.own_slot.segments()
    }

    /// Returns the lock policy in force for this process on one device, and its source.
    pub fn policy(&self, entry: Entry) -> (LockPolicy, Source) {
        self.own_slot.policy(entry)
    }

    /// Returns the action of this process when memory is refused.
    pub fn on_full(&self) -> OnFull {
        self.own_slot.share().on_full
    }

    /// Returns this process's share.
    pub fn share(&self) -> Share {
        self.own_slot.share()
    }

    /// Returns the broker's highest priority and weight if the launch asked for more.
    pub fn curbed_to(&self) -> Option<(i32, u32)> {
        let bounds = self.segments().registry()?.launch_bounds();
        self.is_curbed.then_some(bounds)
    }

    /// The newest control generation.
    #[inline]
    pub fn control_generation(&self) -> u64 {
        self.own_slot.control_generation()
    }

    /// Returns the end of this process's temporary setting that ends next. The keeper looks again then.
    pub fn next_deadline(&self) -> Option<u64> {
        self.own_slot.next_deadline()
    }

    /// Returns the operator's order for a trace.
    pub fn trace_order(&self) -> Option<TraceOrder> {
        self.own_slot.trace_order()
    }

    /// Says how far the trace has come.
    pub fn trace_progress(&self, progress: &Progress) {
        self.own_slot.trace_progress(progress);
    }

    /// Marks the calling thread as the keeper: the kernel marks its word within microseconds of the process's death.
    /// The thread must live as long as the process means to hold locks, and use no robust mutex.
    pub fn attach_keeper(&self) -> io::Result<KeeperMark> {
        let list = liveness::own_word(&self.own_slot.words().keeper)?;
        crash_point!("keeper:attached");
        *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
        Ok(KeeperMark {
            segments: self.segments().clone(),
            slot: self.slot(),
            list,
            _not_send: PhantomData,
        })
    }

    /// Refreshes the heartbeat, on the keeper's thread. While the process holds a contended lock, its keeper ticks at least
    /// four times a second, or it counts as stopped.
    pub fn heartbeat(&self, now_ns: u64) {
        let attached = || {
            let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
            keeper.is_some()
        };
        if self.segments().is_brokered() && attached() {
            // Another tenant may have written over the mark; the kernel would pass over a word that is not ours.
            liveness::own_again(&self.own_slot.words().keeper);
            self.own_slot.restore();
            self.own_slot.meet();
        }
        self.own_slot
            .words()
            .heartbeat_ns
            .store(now_ns, Ordering::Relaxed);
    }

    /// Publishes that every edit up to control `generation` is applied.
    pub fn acknowledge(&self, generation: u64) {
        self.own_slot
            .words()
            .acked
            .store(generation, Ordering::Relaxed);
    }

    /// The entry of a process's device ordinal.
    pub fn entry(&self, ordinal: u8) -> Option<Entry> {
        let found = self.own_slot.words().entries.iter().position(|entry| {
            entry.device.load(Ordering::Relaxed) != 0
                && entry.ordinal.load(Ordering::Relaxed) == u32::from(ordinal)
        });
        let index = found? as u8;
        let device = self.own_slot.words().entries[usize::from(index)]
            .device
            .load(Ordering::Relaxed);
        let device = u8::try_from(device.checked_sub(1)?)
            .ok()
            .filter(|device| usize::from(*device) < MAX_DEVICES)?;
        Some(Entry { index, device })
    }

    /// Returns true if the slot is still this process's. It stays so until the process leaves, unless another program
    /// overwrites the segment. A broker repairs that.
    pub fn is_ours(&self) -> bool {
        let words = self.own_slot.words();
        let stands = claim::live(&words.claim) == Some(self.slot().epoch);
        let Some(registry) = self.segments().registry() else {
            return stands;
        };
        let ours = registry.is_current(self.slot());
        if ours && !stands {
            claim::publish(&words.claim, self.slot().epoch);
        }
        ours
    }

    /// Gives the slot back at the end of the process, whatever its other threads are doing. No other process can claim the
    /// slot before the process is gone (its byte stays locked, or the broker sees it), so what they still write does no harm.
    pub fn leave(&self) {
        if self.is_ours() {
            give_back(self.segments(), self.slot(), clock::now(), Cause::Exit);
        }
    }

    /// Releases the parent's slot in a forked child, without writing to it.
    pub fn forget_after_fork(self) {
        std::mem::forget(self);
    }

    /// The memory ledger of one device.
    #[inline]
    pub fn ledger(&self, entry: Entry) -> Ledger<'_> {
        Ledger::new(
            &self.own_slot,
            entry,
            &self.own_slot.words().entries[usize::from(entry.index) % DEVICES_PER_PROCESS],
        )
    }

    /// Returns this process's counters on one device.
    pub fn count(&self, entry: Entry) -> &Counters {
        &self.own_slot.words().entries[usize::from(entry.index) % DEVICES_PER_PROCESS].counters
    }

    /// Counts a step on one device, which ended with a wait of `ns` for the device.
    pub fn count_step(&self, entry: Entry, ns: u64) {
        self.own_slot.words().entries[usize::from(entry.index) % DEVICES_PER_PROCESS]
            .count_step(ns);
    }

    /// Adds a delay of `ns` to the present step on one device.
    pub fn delay_step(&self, entry: Entry, ns: u64) {
        self.own_slot.words().entries[usize::from(entry.index) % DEVICES_PER_PROCESS]
            .delay_step(ns);
    }

    /// The lock of one device.
    pub fn lock(&self, entry: Entry) -> DeviceLock<'_> {
        DeviceLock::new(&self.own_slot, entry)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // A forked child: its mapping of the slot's byte is not there (MADV_DONTFORK), so it must not be unmapped.
            std::mem::forget(self.alive.take());
            return;
        }
        if let Some(list) = self
            .keeper
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            list.unlink();
        }
        let now = clock::now();
        if self.is_ours() {
            give_back(self.segments(), self.slot(), now, Cause::Exit);
        }
        drop(self.alive.take());
    }
}

impl Drop for KeeperMark {
    fn drop(&mut self) {
        self.list.unlink();
        let slot = &self.segments.state().slots[usize::from(self.slot.index)];
        if claim::live(&slot.claim) == Some(self.slot.epoch) {
            liveness::disown_word(&slot.keeper);
        }
    }
}

/// The reason that a process could not be registered. It runs on unmanaged.
#[derive(Debug)]
pub enum RegisterError {
    /// Every slot is taken by a living process.
    Full {
        /// Number of slots.
        capacity: usize,
    },
    /// The broker of the machine refused, or did not answer.
    Refused(String),
    /// The process could not enter its group. Without that, the group's limits would not apply to it.
    NoGroup {
        /// The group's name.
        name: String,
    },
    /// The system refused.
    Io(io::Error),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { capacity } => write!(
                f,
                "all {capacity} process slots are taken; end another process and start this one again"
            ),
            Self::Refused(why) => f.write_str(why),
            Self::NoGroup { name } => write!(
                f,
                "cannot enter the group {name}: another process that was entering a group did not go on; continue or end \
                 stopped programs and start this one again"
            ),
            Self::Io(error) => write!(f, "cannot register: {error}{}", remedy(error)),
        }
    }
}

impl std::error::Error for RegisterError {}

/// The reason that a process gets no entry on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDevice {
    /// The process has its maximum number of device entries.
    Process,
    /// All places of the table are those of devices that processes use.
    Machine,
    /// The broker of the machine refused, or did not answer.
    Refused(String),
}

impl fmt::Display for NoDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => write!(
                f,
                "one process may use {DEVICES_PER_PROCESS} devices; list fewer in CUDA_VISIBLE_DEVICES"
            ),
            Self::Machine => write!(
                f,
                "programs use {MAX_DEVICES} other devices and there is room for no more; end some of them"
            ),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NoDevice {}
