//! Bytes held, counted so that no interleaving exceeds a limit by one byte.
//!
//! Each process has two words on a device: `used`, the bytes it holds, and `trying`, the bytes of its attempts under
//! way. There is no shared total, so a death leaves nothing to repair but the dead one's own words.
//!
//! * Only the process's own quota: one compare-and-swap on `used`.
//! * A limit over several processes as well: announce in `trying`, *then* add up every process's `trying` and `used`.
//!   Of two rivals at least one sees the other. Admitted bytes enter `used` before they leave `trying`, and a reader
//!   looks at `trying` first, so bytes on their way are counted twice now and then and missed never.
//!
//! A process may have a *reserve*: bytes that no other process can take. It counts as held in full, also where it is not, in every sum
//! over a shared limit. Its process announces a larger one like an attempt ([`ATTEMPT`]), *then* adds up: of it and a rival that
//! allocates, at least one sees the other. Within its reserve a process asks no shared limit.
//!
//! A *group* may have one too, for its members together. It stands in the operator's settings, so no process announces it: to every
//! process of no such group the members together hold at least its bytes. Its members ask the device like any other process, and what
//! others leave them is there.
//!
//! Where a broker serves the machine, tenants may write over both words. A process then keeps its account in a page that only
//! it can write and all can read ([`Kept`]). It decides by that page and other processes add it up; the words in the state are
//! for display only.

use crate::protocol::{
    crash::crash_point,
    primitive::{AtomicU64, Ordering, fence, is_patient},
};

/// The account of one process on one device: the words of the bytes that it holds.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    /// Bytes held.
    pub used: &'a AtomicU64,
    /// Bytes of attempts under way.
    pub trying: &'a AtomicU64,
    /// The word of the reserve, read before the words above.
    pub reserve: u64,
    /// The number of the group's reserve that counts its bytes, from 1 on, among those of the limit; 0 for none.
    pub covered: usize,
}

/// Mark of a reserve that its process only tries to get. A reserve is whole MiB, so the bit is free.
pub const ATTEMPT: u64 = 1;

/// Returns the bytes of a reserve's word, 0 for one that its process only tries to get.
pub fn granted(reserve: u64) -> u64 {
    if reserve & ATTEMPT == 0 { reserve } else { 0 }
}

/// Returns by how many bytes what a process holds or has reserved grows if it gets `bytes`.
pub fn growth(used: u64, reserved: u64, bytes: u64) -> u64 {
    let after = used.saturating_add(bytes).max(reserved);
    after.saturating_sub(used.max(reserved))
}

impl Account<'_> {
    /// Returns the bytes that the process holds or has reserved.
    pub fn claimed(&self) -> u64 {
        self.held().max(granted(self.reserve))
    }

    /// Bytes held.
    #[inline]
    pub fn held(&self) -> u64 {
        self.used.load(Ordering::Relaxed) & !BUSY
    }
}

/// The account of the process that asks.
#[derive(Clone, Copy)]
pub struct Own<'a> {
    /// The words in the shared state, which every process can read.
    pub shown: Account<'a>,
    /// The private account: it counts where tenants may write over the shared words, and in sums over the members of a limit.
    pub kept: Option<&'a Kept>,
}

/// An account that its process alone can write. One thread at a time changes and shows it, or an older number could be shown
/// last.
///
/// A thread that has waited too long changes the account beside the thread it waits for. That thread may be one that a signal
/// handler of the application interrupted, while the handler is what waits. Each change is a step from the present number, so
/// none is lost. The shown number may be older until the next change or [`show`](Self::show).
#[derive(Default)]
#[repr(C)]
pub struct Kept {
    /// Bytes held, and [`BUSY`].
    used: AtomicU64,
    /// Bytes of attempts under way.
    trying: AtomicU64,
}

/// Mark of an account that a thread is changing. No byte count reaches this bit.
const BUSY: u64 = 1 << 63;

impl Kept {
    /// Returns the account that other processes add up.
    pub fn account(&self) -> Account<'_> {
        Account {
            used: &self.used,
            trying: &self.trying,
            reserve: 0,
            covered: 0,
        }
    }

    /// Bytes held.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed) & !BUSY
    }

    /// Waits until no other thread changes the account, and marks it; returns false if it has waited too long.
    #[inline(always)]
    fn enter(&self) -> bool {
        let mut attempt = 0;
        loop {
            let seen = self.used.load(Ordering::Relaxed);
            if seen & BUSY == 0
                // ORDER: Acquire pairs with the Release in leave; what the last one showed is older than what we show.
                && self.used.compare_exchange_weak(seen, seen | BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            if !is_patient(attempt) {
                return false;
            }
            attempt += 1;
        }
    }

    #[inline(always)]
    fn leave(&self, entered: bool) {
        if entered {
            // ORDER: Release pairs with the Acquire in enter.
            self.used.fetch_and(!BUSY, Ordering::Release);
        }
    }

    /// Changes the bytes held, or leaves them (`None`), and shows them: before and after.
    #[inline(always)]
    fn change(
        &self,
        shown: &AtomicU64,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Result<(u64, u64), u64> {
        let entered = self.enter();
        let mut seen = self.used.load(Ordering::Relaxed);
        loop {
            let before = seen & !BUSY;
            let after = change(before).filter(|after| after & BUSY == 0);
            shown.store(after.unwrap_or(before), Ordering::Relaxed);
            // One step changes it and takes our mark off; another thread's mark stays.
            let mark = if entered { 0 } else { seen & BUSY };
            let next = after.unwrap_or(before) | mark;
            // ORDER: Release pairs with the Acquire in enter. SeqCst, as the plain account's changes are: one of the total order in
            // which rivals announce and add up, and before the look at a bell.
            match self
                .used
                .compare_exchange(seen, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return after.map(|after| (before, after)).ok_or(before),
                Err(now) => seen = now,
            }
        }
    }

    fn announce(&self, shown: &AtomicU64, change: impl Fn(u64) -> u64) {
        let entered = self.enter();
        let mut seen = self.trying.load(Ordering::Relaxed);
        // ORDER: Release, after `used` grew; pairs with the Acquire in add_up.
        while let Err(now) = self.trying.compare_exchange_weak(
            seen,
            change(seen),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            seen = now;
        }
        shown.store(change(seen), Ordering::Relaxed);
        self.leave(entered);
    }

    /// Shows it again, whatever stands there now; true if that was something else.
    pub fn show(&self, shown: Account<'_>) -> bool {
        let entered = self.enter();
        let (used, trying) = (self.used(), self.trying.load(Ordering::Relaxed));
        let were = (
            shown.used.swap(used, Ordering::Relaxed),
            shown.trying.swap(trying, Ordering::Relaxed),
        );
        self.leave(entered);
        were != (used, trying)
    }
}

impl<'a> Own<'a> {
    /// Returns the account that competing reservations add up.
    pub fn shown_to_rivals(&self) -> Account<'a> {
        self.kept.map_or(self.shown, Kept::account)
    }

    /// Bytes held.
    #[inline(always)]
    pub fn used(&self) -> u64 {
        match self.kept {
            Some(kept) => kept.used(),
            None => self.shown.used.load(Ordering::Relaxed),
        }
    }

    /// Gives bytes back; never wraps, whatever the caller lost count of. Says how many it could not find.
    #[inline(always)]
    pub fn release(&self, bytes: u64) -> u64 {
        let Some(kept) = self.kept else {
            return release(self.shown.used, bytes);
        };
        let changed = kept.change(self.shown.used, |used| Some(used.saturating_sub(bytes)));
        let had = changed.map_or_else(|had| had, |(had, _)| had);
        bytes.saturating_sub(had)
    }

    /// Adds bytes, whatever any limit says.
    pub fn charge(&self, bytes: u64) {
        let charged = |used: u64| used.saturating_add(bytes);
        if let Some(kept) = self.kept {
            let _ = kept.change(self.shown.used, |used| Some(charged(used).min(BUSY - 1)));
            return;
        }
        let used = &self.shown.used;
        let mut seen = used.load(Ordering::Relaxed);
        loop {
            match used.compare_exchange_weak(
                seen,
                charged(seen),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn announce(&self, bytes: u64) {
        match self.kept {
            Some(kept) => kept.announce(self.shown.trying, |trying| trying.saturating_add(bytes)),
            None => {
                self.shown.trying.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    fn withdraw(&self, bytes: u64) {
        match self.kept {
            Some(kept) => kept.announce(self.shown.trying, |trying| trying.saturating_sub(bytes)),
            None => {
                // ORDER: Release, after `used` grew; pairs with the Acquire in add_up: a reader that misses the attempt finds
                // the bytes in `used`.
                self.shown.trying.fetch_sub(bytes, Ordering::Release);
            }
        }
    }
}

/// A limit over several processes: how much, and a walk over their accounts (the asker's own included).
pub struct SharedLimit<'w> {
    /// Bytes.
    pub bytes: u64,
    /// Calls its argument with each member's account.
    pub walk: Walk<'w>,
    /// The reserves of groups: bytes that the accounts which they cover have together at least.
    pub groups: &'w [u64],
}

/// A walk over accounts.
pub type Walk<'w> = &'w dyn Fn(&mut dyn FnMut(Account<'_>));

/// The reason that a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process's own quota; bytes it holds.
    Own(u64),
    /// The shared limit of this index; bytes its members hold.
    Shared(usize, u64),
    /// Attempts of others are in the way of the limit of this index: to be tried again.
    Crowded(usize, u64),
}

/// Adds bytes if the process's own quota allows it. Returns the bytes that the process then holds.
#[inline(always)]
pub fn reserve_own(own: Own<'_>, bytes: u64, quota: u64) -> Result<u64, Refusal> {
    let account = own.shown;
    let within = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= quota);
    if let Some(kept) = own.kept {
        let changed = kept.change(account.used, within);
        return changed.map(|(_, sum)| sum).map_err(Refusal::Own);
    }
    let mut used = account.used.load(Ordering::Relaxed);
    loop {
        let Some(sum) = within(used) else {
            return Err(Refusal::Own(used));
        };
        // ORDER: SeqCst, one of the total order in which rivals announce and add up (see reserve_shared).
        match account
            .used
            .compare_exchange_weak(used, sum, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => return Ok(sum),
            Err(now) => used = now,
        }
    }
}

/// Adds bytes if the process's own quota and every shared limit allow it. Returns the bytes that the process then holds.
pub fn reserve_shared(
    own: Own<'_>,
    bytes: u64,
    quota: u64,
    limits: &[SharedLimit<'_>],
) -> Result<u64, Refusal> {
    // A request that can never fit is not announced: absurd sizes must not wrap the word.
    if bytes > quota {
        return Err(Refusal::Own(own.used()));
    }
    if let Some(index) = limits.iter().position(|limit| bytes > limit.bytes) {
        return Err(Refusal::Shared(index, add_up(&limits[index]).0));
    }
    own.announce(bytes);
    // ORDER: SeqCst, between our announcement and the sums below; pairs with itself in a rival: one of us sees the
    // other's announcement.
    fence(Ordering::SeqCst);
    crash_point!("reserve:announced");
    let verdict = (|| {
        for (index, limit) in limits.iter().enumerate() {
            let (held, attempts) = add_up(limit);
            if held.saturating_add(attempts) > limit.bytes {
                // Ours is among the attempts.
                let growth = growth(own.used(), granted(own.shown.reserve), bytes);
                return Err(if held.saturating_add(growth) > limit.bytes {
                    Refusal::Shared(index, held)
                } else {
                    Refusal::Crowded(index, held)
                });
            }
        }
        reserve_own(own, bytes, quota)
    })();
    crash_point!("reserve:decided");
    own.withdraw(bytes);
    verdict
}

/// Adds bytes within the process's reserve, which no shared limit refuses. Returns the bytes that the process then holds, or `None` if
/// they are not within it.
pub fn reserve_within(own: Own<'_>, bytes: u64, quota: u64, reserve: &AtomicU64) -> Option<u64> {
    // ORDER: SeqCst, here and below: a reserve that another thread lowers in between is seen below, or a rival that sees the lower one
    // sees the bytes as well.
    let most = granted(reserve.load(Ordering::SeqCst));
    if most == 0 {
        return None;
    }
    let used = reserve_own(own, bytes, quota.min(most)).ok()?;
    if granted(reserve.load(Ordering::SeqCst)) < used {
        own.release(bytes);
        return None;
    }
    Some(used)
}

/// Changes the process's reserve, a larger one only if every shared limit has room for it. One thread at a time may call it. If the
/// process dies in it, its reserve goes with its account.
pub fn change_reserve(
    reserve: &AtomicU64,
    own: Own<'_>,
    bytes: u64,
    limits: &[SharedLimit<'_>],
) -> Result<(), Refusal> {
    let before = granted(reserve.load(Ordering::Relaxed));
    if bytes > before {
        reserve.store(bytes | ATTEMPT, Ordering::SeqCst);
        // ORDER: SeqCst, between our announcement and the sums below; pairs with the one in reserve_shared.
        fence(Ordering::SeqCst);
        crash_point!("guarantee:announced");
        for (index, limit) in limits.iter().enumerate() {
            let (held, attempts) = add_up(limit);
            if held.saturating_add(attempts) > limit.bytes {
                let grown = bytes.saturating_sub(own.used());
                reserve.store(before, Ordering::SeqCst);
                return Err(match held.saturating_add(grown) > limit.bytes {
                    true => Refusal::Shared(index, held),
                    false => Refusal::Crowded(index, held),
                });
            }
        }
    }
    reserve.store(bytes, Ordering::SeqCst);
    crash_point!("guarantee:given");
    Ok(())
}

/// Adds up what the members of a limit hold or have reserved, and what they attempt to hold or to reserve beyond that.
pub fn add_up(limit: &SharedLimit<'_>) -> (u64, u64) {
    let (mut held, mut all) = (0u64, 0u64);
    let mut covered = vec![(0u64, 0u64); limit.groups.len()];
    (limit.walk)(&mut |account| {
        // ORDER: Acquire, so `trying` is looked at before `used`; the writer moves bytes the other way.
        let trying = account.trying.load(Ordering::Acquire);
        let used = account.held();
        let claimed = used.max(granted(account.reserve));
        let attempted = used.saturating_add(trying).max(account.reserve & !ATTEMPT);
        let index = account.covered.wrapping_sub(1);
        let (held, all) = match covered.get_mut(index) {
            Some((held, all)) => (held, all),
            None => (&mut held, &mut all),
        };
        *held = held.saturating_add(claimed);
        *all = all.saturating_add(attempted.max(claimed));
    });
    for ((members, with_attempts), reserve) in covered.into_iter().zip(limit.groups) {
        held = held.saturating_add(members.max(*reserve));
        all = all.saturating_add(with_attempts.max(*reserve));
    }
    (held, all.saturating_sub(held))
}

/// Gives bytes back; never wraps, whatever the caller lost count of. Says how many it could not find.
#[inline(always)]
pub fn release(used: &AtomicU64, bytes: u64) -> u64 {
    let mut seen = used.load(Ordering::Relaxed);
    loop {
        let left = seen.saturating_sub(bytes);
        // ORDER: SeqCst, before the look at the bell in line::came_back.
        match used.compare_exchange_weak(seen, left, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return bytes.saturating_sub(seen),
            Err(now) => seen = now,
        }
    }
}
