//! Bytes held, counted so that no interleaving exceeds a limit by one byte.
//!
//! Each process has two words on a device: `used`, the bytes it holds, and `trying`, the bytes of its attempts under
//! way. There is no shared total, so a death leaves nothing to repair but the dead one's own words.
//!
//! * Only the process's own quota: one compare-and-swap on `used`.
//! * A limit over several processes as well: announce in `trying`, *then* add up every process's `trying` and `used`.
//!   Of two rivals at least one sees the other. Admitted bytes enter `used` before they leave `trying`, and a reader
//!   looks at `trying` first, so bytes on their way are counted twice now and then and missed never.

use crate::{
    crash::crash_point,
    primitive::{AtomicU64, Ordering, fence},
};

/// One process's words on one device.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    /// Bytes held.
    pub used: &'a AtomicU64,
    /// Bytes of attempts under way.
    pub trying: &'a AtomicU64,
}

/// A limit over several processes: how much, and a walk over their accounts (the asker's own included).
pub struct SharedLimit<'w> {
    /// Bytes.
    pub bytes: u64,
    /// Calls its argument with each member's account.
    pub walk: Walk<'w>,
}

/// A walk over accounts.
pub type Walk<'w> = &'w dyn Fn(&mut dyn FnMut(Account<'_>));

/// Why an attempt was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process's own quota; bytes it holds.
    Own(u64),
    /// The shared limit of this index; bytes its members hold.
    Shared(usize, u64),
    /// Attempts of others are in the way of the limit of this index: to be tried again.
    Crowded(usize, u64),
}

/// Adds bytes if the process's own quota allows it. Says what it holds then.
#[inline(always)]
pub fn reserve_own(account: Account<'_>, bytes: u64, quota: u64) -> Result<u64, Refusal> {
    let mut used = account.used.load(Ordering::Relaxed);
    loop {
        let Some(sum) = used.checked_add(bytes).filter(|sum| *sum <= quota) else {
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

/// Adds bytes if the process's own quota and every shared limit allow it. Says what the process holds then.
pub fn reserve_shared(
    account: Account<'_>,
    bytes: u64,
    quota: u64,
    limits: &[SharedLimit<'_>],
) -> Result<u64, Refusal> {
    // What can never fit is not announced: absurd sizes must not wrap the word.
    if bytes > quota {
        return Err(Refusal::Own(account.used.load(Ordering::Relaxed)));
    }
    if let Some(index) = limits.iter().position(|limit| bytes > limit.bytes) {
        return Err(Refusal::Shared(index, add_up(&limits[index]).0));
    }
    account.trying.fetch_add(bytes, Ordering::Relaxed);
    // ORDER: SeqCst, between our announcement and the sums below; pairs with itself in a rival: one of us sees the
    // other's announcement.
    fence(Ordering::SeqCst);
    crash_point!("reserve:announced");
    let verdict = (|| {
        for (index, limit) in limits.iter().enumerate() {
            let (held, attempts) = add_up(limit);
            if held.saturating_add(attempts) > limit.bytes {
                // Ours is among the attempts.
                return Err(if held.saturating_add(bytes) > limit.bytes {
                    Refusal::Shared(index, held)
                } else {
                    Refusal::Crowded(index, held)
                });
            }
        }
        reserve_own(account, bytes, quota)
    })();
    crash_point!("reserve:decided");
    // ORDER: Release, after `used` grew; pairs with the Acquire in add_up: a reader that misses the attempt finds the
    // bytes in `used`.
    account.trying.fetch_sub(bytes, Ordering::Release);
    verdict
}

/// What the members of a limit hold, and what they are trying to get.
fn add_up(limit: &SharedLimit<'_>) -> (u64, u64) {
    let (mut held, mut attempts) = (0u64, 0u64);
    (limit.walk)(&mut |account| {
        // ORDER: Acquire, so `trying` is looked at before `used`; the writer moves bytes the other way.
        attempts = attempts.saturating_add(account.trying.load(Ordering::Acquire));
        held = held.saturating_add(account.used.load(Ordering::Relaxed));
    });
    (held, attempts)
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
