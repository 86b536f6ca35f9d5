//! The memory ledger: reserve, call the driver, commit or give back.

mod evicted;
mod members;
mod outside;
mod reserves;
mod shared;
#[cfg(test)]
mod tests;

use crate::{
    cached_settings::{CachedLimits, Entry, Limits, OwnSlot},
    layout::state::{Device, DeviceEntry},
    os::futex,
    protocol::{
        account::{self, Account, Own},
        crash::crash_point,
        memory_queue,
        primitive::{AtomicU32, AtomicU64, Ordering},
    },
    value::{Denial, Outlook, Quota},
};

/// The ledger of one process on one device.
///
/// It counts bytes only; counters and denial events are the caller's.
#[derive(Clone, Copy)]
pub struct Ledger<'r> {
    pub(crate) own_slot: &'r OwnSlot,
    pub(crate) entry: Entry,
    pub(crate) words: &'r DeviceEntry,
    pub(crate) device: &'r Device,
    pub(crate) limits: &'r CachedLimits,
    own: Own<'r>,
    /// The control segment's.
    generation: &'r AtomicU64,
}

/// Bytes set aside for an allocation the driver has not granted yet. Dropping it gives them back.
#[must_use = "a reservation that is dropped gives its bytes back"]
pub struct Reservation<'r> {
    own: Own<'r>,
    device: &'r Device,
    bytes: u64,
}

/// Bytes that a process may hold on a device in no account, such as its context.
pub(crate) const CONTEXT_BYTES: u64 = 1 << 30;

impl<'r> Ledger<'r> {
    #[inline(always)]
    pub(crate) fn new(own_slot: &'r OwnSlot, entry: Entry, words: &'r DeviceEntry) -> Self {
        let devices = &own_slot.segments().state().devices;
        let limits = own_slot.cached_limits(entry);
        Ledger {
            own_slot,
            entry,
            words,
            device: &devices[usize::from(entry.device()) % devices.len()],
            limits,
            own: Own {
                shown: words.account(),
                kept: own_slot
                    .private_account()
                    .map(|private_account| private_account.kept(usize::from(entry.index()))),
            },
            generation: own_slot.segments().control().generation_word(),
        }
    }

    /// Returns the limits in force now.
    #[inline(always)]
    pub(crate) fn limits(&self) -> Limits {
        self.own_slot.look_at(self.generation);
        self.limits.load()
    }

    /// Sets bytes aside if no limit is in question but the process's own quota, that allows it, and no process waits for
    /// memory of the device or has a reserve there. `None` says nothing: [`reserve`](Self::reserve) does.
    #[inline(always)]
    pub fn reserve_at_once(&self, bytes: u64) -> Option<Reservation<'r>> {
        let limits = self.limits();
        if limits.are_shared() {
            return None;
        }
        // Read before the locked instruction, which nothing behind it overtakes.
        let peak = self.words.peak.load(Ordering::Relaxed);
        crash_point!("reserve:begin");
        let used = account::reserve_own(self.own, bytes, limits.quota).ok()?;
        crash_point!("reserve:done");
        if memory_queue::is_busy(&self.device.line) || self.has_reserves() {
            // No process is woken for bytes that are reserved again at once.
            self.own.release(bytes);
            return None;
        }
        if used > peak {
            self.words.peak.fetch_max(used, Ordering::Relaxed);
        }
        Some(self.reopen(bytes))
    }

    /// Sets bytes aside, or returns the limit that refused.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation<'r>, Denial> {
        if let Some(reservation) = self.reserve_at_once(bytes) {
            return Ok(reservation);
        }
        let limits = self.limits();
        if let Some(reservation) = self.take_of_reserve(bytes, limits.quota) {
            return Ok(reservation);
        }
        crash_point!("reserve:begin");
        let mut card = match self.has_reserves() {
            true => self.card(0),
            false => u64::MAX,
        };
        let used = loop {
            let used = if limits.are_shared() || card != u64::MAX {
                self.reserve_shared(bytes, &limits, card)?
            } else {
                account::reserve_own(self.own, bytes, limits.quota)
                    .map_err(|refusal| self.denial(refusal, bytes, limits.quota, &[]))?
            };
            if card != u64::MAX || !(self.is_promised_elsewhere() || self.has_reserves()) {
                break used;
            }
            // A process whose memory returns has bytes that the driver does not count yet, and so has one with a reserve.
            self.own.release(bytes);
            card = self.card(0);
        };
        crash_point!("reserve:done");
        self.words.peak.fetch_max(used, Ordering::Relaxed);
        Ok(self.reopen(bytes))
    }

    /// Sets bytes aside that are within the process's reserve; `None` if they are not.
    fn take_of_reserve(&self, bytes: u64, quota: u64) -> Option<Reservation<'r>> {
        let used = account::reserve_within(self.own, bytes, quota, self.reserve_word())?;
        self.words.peak.fetch_max(used, Ordering::Relaxed);
        Some(self.reopen(bytes))
    }

    /// Returns the limits for `bytes` that the process had before. A limit that was lowered below them in the meantime takes nothing
    /// away: they fit once nothing else is there.
    pub(crate) fn return_limits(&self, bytes: u64) -> Limits {
        let (limits, whole) = (self.limits(), self.used().saturating_add(bytes));
        Limits {
            quota: u64::MAX,
            group: limits.group.max(whole),
            device: limits.device.max(whole),
        }
    }

    /// Sets bytes aside that the process had before: whatever its own quota, but only if the device has them.
    pub(crate) fn reserve_return(
        &self,
        bytes: u64,
        margin: u64,
    ) -> Result<Reservation<'r>, Denial> {
        let limits = self.return_limits(bytes);
        if let Some(reservation) = self.take_of_reserve(bytes, limits.quota) {
            return Ok(reservation);
        }
        let used = self.reserve_shared(bytes, &limits, self.card(margin))?;
        self.words.peak.fetch_max(used, Ordering::Relaxed);
        Ok(self.reopen(bytes))
    }

    /// Returns the most that all accounts on the device may hold together.
    pub(crate) fn card(&self, margin: u64) -> u64 {
        let total = self.total();
        total.saturating_sub(self.outside()).saturating_sub(margin)
    }

    /// The device's memory.
    pub(crate) fn total(&self) -> u64 {
        self.limits.total.load(Ordering::Relaxed)
    }

    /// Marks that the account has bytes that the driver has not given yet; to be called before the sums.
    pub(crate) fn promise(&self) {
        if let Some(private_account) = self.own_slot.private_account() {
            private_account.promise(usize::from(self.entry.index()), true);
        }
        memory_queue::join(&self.device.promises, self.slot_index());
    }

    /// Clears the mark of [`promise`](Self::promise): the account has no promised bytes any more.
    pub(crate) fn keep_promise(&self) {
        memory_queue::leave(&self.device.promises, self.slot_index());
        if let Some(private_account) = self.own_slot.private_account() {
            private_account.promise(usize::from(self.entry.index()), false);
        }
    }

    /// Marks, until the result is dropped, that the driver takes bytes of the account away before [`evict`](Self::evict) releases
    /// them. A process that measured in between would find that much less outside of the accounts, and the device would be promised
    /// twice.
    pub fn leaving(&self) -> Leaving<'_, 'r> {
        self.promise();
        Leaving(self)
    }

    pub(crate) fn slot_index(&self) -> usize {
        usize::from(self.own_slot.slot().index)
    }

    /// Returns true if another process has bytes in its account that the driver has not given it yet.
    pub(crate) fn is_promised_elsewhere(&self) -> bool {
        let (at, bit) = self.own_slot.slot().bit();
        let promises = &self.device.promises;
        let is_marked = memory_queue::is_busy(promises)
            && (0..promises.len()).any(|index| {
                let mine = if index == at { bit } else { 0 };
                promises[index].load(Ordering::Relaxed) & !mine != 0
            });
        // Where there is a broker a mark may be any tenant's.
        is_marked && self.is_promised()
    }

    /// Bytes that were set aside and committed, as a reservation once more.
    #[inline(always)]
    pub fn reopen(&self, bytes: u64) -> Reservation<'r> {
        Reservation {
            own: self.own,
            device: self.device,
            bytes,
        }
    }

    /// Gives back bytes of a freed allocation, and wakes processes that wait for some.
    #[inline(always)]
    pub fn release(&self, bytes: u64) {
        self.own.release(bytes);
        self.device.came_back();
    }

    /// Charges bytes the driver has granted already, whatever the quota.
    pub fn charge_unchecked(&self, bytes: u64) {
        self.own.charge(bytes);
        self.words.peak.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// Bytes this process holds.
    #[inline]
    pub fn used(&self) -> u64 {
        self.own.used()
    }

    /// The process's quota in force.
    #[inline]
    pub fn quota(&self) -> Quota {
        let limits = self.limits();
        Quota {
            bytes: (limits.quota != u64::MAX).then_some(limits.quota),
            source: self.limits.source(),
        }
    }

    /// Returns true if there is a limit of the process, its group or the device.
    #[inline]
    pub fn is_limited(&self) -> bool {
        let limits = self.limits();
        limits.are_shared() || limits.quota != u64::MAX
    }

    /// Bytes that still may be reserved; `None` is unlimited.
    #[inline(always)]
    pub fn room(&self) -> Option<u64> {
        Some(self.outlook()?.room)
    }

    /// Returns the device's memory as this process may use it under its limits; `None` is unlimited.
    #[inline(always)]
    pub fn outlook(&self) -> Option<Outlook> {
        let limits = self.limits();
        if limits.are_shared() {
            return Some(self.shared_outlook());
        }
        (limits.quota != u64::MAX).then(|| Outlook {
            room: limits.quota.saturating_sub(self.used()),
            whole: limits.quota,
        })
    }

    /// Returns the device's memory as this process sees it if it is alone under its limits and holds `own` bytes. The result
    /// does not depend on other processes.
    pub fn outlook_alone(&self, own: u64) -> Outlook {
        let limits = self.limits();
        let total = self.total();
        let whole = total.min(limits.quota).min(limits.group).min(limits.device);
        Outlook {
            room: whole.saturating_sub(own),
            whole,
        }
    }
}

/// The mark of [`Ledger::leaving`].
#[must_use = "the mark ends when it is dropped"]
pub struct Leaving<'l, 'r>(&'l Ledger<'r>);

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        self.0.keep_promise();
    }
}

impl Reservation<'_> {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The driver granted it: the bytes stay charged. Returns how many.
    #[inline(always)]
    pub fn commit(self) -> u64 {
        let bytes = self.bytes;
        std::mem::forget(self);
        bytes
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.own.release(self.bytes);
        self.device.came_back();
    }
}

impl DeviceEntry {
    /// Returns the account in the shared state, without the reserve.
    #[inline(always)]
    pub(crate) fn account(&self) -> Account<'_> {
        Account {
            used: &self.used,
            trying: &self.trying,
            reserve: 0,
            covered: 0,
        }
    }

    /// Returns the account in the shared state.
    pub(crate) fn account_with_reserve(&self) -> Account<'_> {
        // ORDER: Acquire, so that the reserve is read before the bytes; a process lowers it behind them.
        let reserve = self.reserve.load(Ordering::Acquire);
        Account {
            reserve,
            ..self.account()
        }
    }
}

impl Device {
    /// Rings the bell after bytes have left an account, so that waiting processes look again.
    #[inline(always)]
    pub(crate) fn came_back(&self) {
        if memory_queue::came_back(&self.line_bell) {
            wake(&self.line_bell);
        }
    }
}

#[cold]
#[inline(never)]
fn wake(bell: &AtomicU32) {
    futex::wake(bell, i32::MAX);
}
