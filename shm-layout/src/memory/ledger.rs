//! The memory ledger: reserve, call the driver, commit or give back.

mod members;
mod reserves;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    cached_settings::{CachedLimits, Entry, Limits, OwnSlot},
    layout::state::{Device, DeviceEntry},
    os::{clock, futex},
    protocol::{
        account::{self, Account, Own, Refusal, SharedLimit},
        crash::crash_point,
        memory_queue,
        primitive::{AtomicU32, AtomicU64, Ordering},
    },
    value::{Denial, Limit, Outlook, Quota},
};

/// The bytes that the driver has given to all processes, by their accounts.
struct Given {
    bytes: u64,
    /// No process has bytes in its account that the driver is about to give.
    is_certain: bool,
}

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

/// Number of measurements of the device's free memory. An allocation under way can hide bytes outside the accounts from a
/// single one.
const SAMPLES: u32 = 4;

/// Bytes that a process may hold on a device in no account, such as its context.
pub(crate) const CONTEXT_BYTES: u64 = 1 << 30;

/// Time for which a process's own measurement counts alone, in nanoseconds.
const LATELY_NS: u64 = 1_000_000_000;

/// Further attempts of a reservation that only the attempts of other processes prevent; together they take some milliseconds.
const ATTEMPTS: u32 = 64;

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

    /// Sets bytes aside that the process had before: whatever its own quota, but only if the device has them.
    pub(crate) fn reserve_return(
        &self,
        bytes: u64,
        margin: u64,
    ) -> Result<Reservation<'r>, Denial> {
        let limits = Limits {
            quota: u64::MAX,
            ..self.limits()
        };
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

    /// Publishes how much of the device is free, as the driver just reported. Bytes that are neither free nor in an account are
    /// outside.
    pub fn publish_free(&self, free: u64) {
        if let Some(given) = self.given_together() {
            self.publish_free_by(free, given);
        }
    }

    /// Measures like [`publish_free`](Self::publish_free), but several times, and publishes the most that was found outside. A
    /// charged allocation that the driver is about to refuse makes a single measurement too small.
    pub fn publish_free_surely(&self, mut ask: impl FnMut() -> Option<u64>) {
        let samples = (0..SAMPLES).filter_map(|_| {
            let before = self.given_together()?;
            let free = ask()?;
            let after = self.given_together()?;
            // Bytes that were given in between would count as outside.
            (before.bytes == after.bytes).then_some((free, after))
        });
        let most = samples.min_by_key(|(free, given)| free.saturating_add(given.bytes));
        if let Some((free, given)) = most {
            self.publish_free_by(free, given);
        }
    }

    fn publish_free_by(&self, free: u64, given: Given) {
        let outside = self.outside_by(free, given.bytes);
        // Promised bytes are subtracted in full, so the amount outside may only grow by that.
        if given.is_certain || outside > self.outside() {
            self.measure(outside);
            self.device.outside.store(outside, Ordering::Relaxed);
        }
        self.device
            .outside_ns
            .store(clock::now(), Ordering::Relaxed);
    }

    /// Returns the bytes that are neither free nor in an account.
    fn outside_by(&self, free: u64, held: u64) -> u64 {
        self.total().saturating_sub(free).saturating_sub(held)
    }

    fn publish_outside(&self, bytes: u64, now: u64) {
        self.device.outside.store(bytes, Ordering::Relaxed);
        self.device.outside_ns.store(now, Ordering::Relaxed);
    }

    /// Returns the bytes outside the accounts that this process measured itself, if it did.
    fn measured(&self) -> Option<u64> {
        self.limits.outside.load(Ordering::Relaxed).checked_sub(1)
    }

    fn measure(&self, outside: u64) {
        self.set_measured(outside);
        self.limits
            .outside_ns
            .store(clock::now(), Ordering::Relaxed);
    }

    fn set_measured(&self, outside: u64) {
        let word = outside.saturating_add(1);
        self.limits.outside.store(word, Ordering::Relaxed);
    }

    /// Returns true if this process has measured a short while ago.
    fn is_measured_lately(&self) -> bool {
        let at = self.limits.outside_ns.load(Ordering::Relaxed);
        clock::now().saturating_sub(at) < LATELY_NS
    }

    /// Changes the measured value by a step that this process makes itself.
    fn adjust(&self, step: impl FnOnce(u64) -> u64) {
        if let Some(own) = self.measured() {
            self.set_measured(step(own));
        }
    }

    /// Returns the bytes of the device that are in no account, as last [published](Self::publish_free): contexts, and unmanaged
    /// programs. Where there is a broker any tenant may have written that value. There a value that this process has measured
    /// itself a short while ago counts alone, and the published one counts for at most an older one.
    pub fn outside(&self) -> u64 {
        let said = self.device.outside.load(Ordering::Relaxed);
        match self
            .own_slot
            .private_account()
            .and_then(|_| self.measured())
        {
            Some(own) if self.is_measured_lately() => own,
            Some(own) => own.min(said),
            None => said,
        }
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

    fn reserve_shared(&self, bytes: u64, limits: &Limits, card: u64) -> Result<u64, Denial> {
        let mut own = self.own;
        own.shown.reserve = self.reserve_word().load(Ordering::Relaxed);
        self.under_shared_limits(bytes, limits, card, |shared| {
            account::reserve_shared(own, bytes, limits.quota, shared)
        })
    }

    /// Tries a step of `bytes` under the limits of the group and of the device, of which the card has this much. Repeats it while only
    /// attempts of others are in the way.
    fn under_shared_limits<T>(
        &self,
        bytes: u64,
        limits: &Limits,
        card: u64,
        step: impl Fn(&[SharedLimit<'_>]) -> Result<T, Refusal>,
    ) -> Result<T, Denial> {
        let group = self.own_slot.group();
        let groups = self.group_reserves();
        let reserves: Vec<u64> = groups.iter().map(|group| group.bytes).collect();
        let in_group =
            |visit: &mut dyn FnMut(Account<'_>)| self.each_account(Some(group), &[], visit);
        let on_device =
            |visit: &mut dyn FnMut(Account<'_>)| self.each_account(None, &groups, visit);
        let mut shared = Vec::with_capacity(2);
        let mut names = Vec::with_capacity(2);
        if limits.group != u64::MAX {
            shared.push(SharedLimit {
                bytes: limits.group,
                walk: &in_group,
                groups: &[],
            });
            names.push((Limit::Group, limits.group));
        }
        let whole = limits.device.min(card);
        if whole != u64::MAX {
            shared.push(SharedLimit {
                bytes: whole,
                walk: &on_device,
                groups: &reserves,
            });
            names.push((Limit::Device, whole));
        }
        let mut result = step(&shared);
        for attempt in 0..ATTEMPTS {
            if !matches!(result, Err(Refusal::Crowded(..))) {
                break;
            }
            BackOff::after(attempt, self.own_slot.slot().index).wait();
            result = step(&shared);
        }
        result.map_err(|refusal| self.denial(refusal, bytes, limits.quota, &names))
    }

    fn denial(&self, refusal: Refusal, asked: u64, quota: u64, names: &[(Limit, u64)]) -> Denial {
        match refusal {
            Refusal::Own(used) => Denial {
                limit: Limit::Process,
                used,
                quota,
                asked,
            },
            Refusal::Shared(index, used) | Refusal::Crowded(index, used) => {
                let (limit, quota) = names.get(index).copied().unwrap_or((Limit::Device, quota));
                Denial {
                    limit,
                    used,
                    quota,
                    asked,
                }
            }
        }
    }

    /// Gives back bytes of a freed allocation, and wakes processes that wait for some.
    #[inline(always)]
    pub fn release(&self, bytes: u64) {
        self.own.release(bytes);
        self.device.came_back();
    }

    /// Records that `bytes` of the process's memory and `besides` bytes that are in no account moved from the device to the
    /// host, beside what is there already. The bytes stay the process's own; other processes may use the room. Returns how many bytes
    /// of the account moved.
    pub fn evict(&self, bytes: u64, besides: u64) -> u64 {
        let bytes = bytes.min(self.used());
        // First the new place, then the old one: if the process dies in between, both are cleared.
        self.set_evicted(self.evicted().saturating_add(bytes));
        crash_point!("evict:noted");
        account::release(&self.device.outside, besides);
        self.adjust(|own| own.saturating_sub(besides));
        self.release(bytes);
        crash_point!("evict:left");
        bytes
    }

    /// Bytes of this process that are not on the device.
    pub fn evicted(&self) -> u64 {
        self.limits.evicted.load(Ordering::Relaxed)
    }

    /// Records that the memory is on the device again. `besides` bytes of the reservation made for the return are in no
    /// account.
    pub fn returned(&self, besides: u64) {
        self.returned_in_part(self.evicted(), besides);
        self.release(besides);
    }

    /// Records that `bytes` of the evicted memory, which the caller has charged, and `besides` bytes that are in no account are on
    /// the device again. The rest is still on the host.
    pub fn returned_in_part(&self, bytes: u64, besides: u64) {
        self.set_evicted(self.evicted().saturating_sub(bytes));
        crash_point!("evict:returned");
        self.device.outside.fetch_add(besides, Ordering::Relaxed);
        self.adjust(|own| own.saturating_add(besides));
    }

    fn set_evicted(&self, bytes: u64) {
        self.limits.evicted.store(bytes, Ordering::Relaxed);
        self.words.evicted.store(bytes, Ordering::Relaxed);
    }

    /// Publishes like [`publish_free`](Self::publish_free) a number that is up to `late_ns` old. Unless the accounts were
    /// unchanged for that time, the amount outside may only grow. The caller keeps `seen` from one call to the next.
    pub fn publish_free_late(&self, free: u64, late_ns: u64, seen: &mut (u64, u64)) {
        let now = clock::now();
        let held = self.held_together(None);
        if seen.0 != held {
            *seen = (held, now);
        }
        let outside = self.outside_by(free, held);
        let stands = now.saturating_sub(seen.1) >= late_ns;
        if stands || self.measured().is_none_or(|own| outside > own) {
            self.measure(outside);
        }
        if stands || outside > self.device.outside.load(Ordering::Relaxed) {
            self.publish_outside(outside, now);
        }
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

    /// Computes the outlook under a limit that the process shares with others.
    #[cold]
    #[inline(never)]
    fn shared_outlook(&self) -> Outlook {
        let limits = self.limits();
        let room = self.shared_room(&limits);
        let whole = match limits.quota {
            u64::MAX => room.saturating_add(self.used()),
            quota => quota,
        };
        Outlook { room, whole }
    }

    fn shared_room(&self, limits: &Limits) -> u64 {
        let mut room = limits.quota.saturating_sub(self.used());
        if limits.group != u64::MAX {
            let held = self.held_together(Some(self.own_slot.group()));
            room = room.min(limits.group.saturating_sub(held));
        }
        if limits.device != u64::MAX {
            let held = self.held_together(None);
            room = room.min(limits.device.saturating_sub(held));
        }
        room
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

/// The way a reservation waits before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackOff {
    Spin(u32),
    Yield,
    Sleep(Duration),
}

impl BackOff {
    /// Waits a little, differently for each slot, so that two processes that hinder each other do not keep in step.
    fn after(attempt: u32, slot: u16) -> Self {
        match attempt {
            0..8 => Self::Spin(1 + u32::from(slot) % 7 + attempt),
            8..24 => Self::Yield,
            _ => Self::Sleep(Duration::from_micros(50 + u64::from(slot) % 13 * 17)),
        }
    }

    fn wait(self) {
        match self {
            Self::Spin(times) => (0..times).for_each(|_| std::hint::spin_loop()),
            Self::Yield => std::thread::yield_now(),
            Self::Sleep(time) => std::thread::sleep(time),
        }
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
