//! The check whether the driver refuses a call for want of memory although the device has plenty: no other process could
//! give what the call lacks, for example because its pool has reached its own maximum.

use gpushare_abi::errors::{CUDA_ERROR_CONTEXT_IS_DESTROYED, CUerror};
use shm_layout::clock;

use super::account::Account;
use crate::driver_query::memory as ask;

/// Divisor of the device's memory: a device with this part free is not full.
const PLENTY: u64 = 4;
/// Divisor of the device's memory: this part must be free beside the bytes that a call needs.
const BESIDE: u64 = 16;
/// Time for which the driver must refuse although the device is not full before the call's error stands, in nanoseconds, and the
/// number of refusals in it: a call that was refused twice in two seconds waited in between, because the device was full.
const PLENTY_NS: u64 = 2_000_000_000;
const PLENTY_LOOKS: u32 = 20;

/// The looks at a device that was not full although the driver had refused.
#[derive(Default)]
pub struct Plenty {
    /// Time of the first of such looks without another between them, in nanoseconds.
    since_ns: Option<u64>,
    /// The number of such looks.
    count: u32,
}

impl Plenty {
    /// Looks at the device after the driver has refused `bytes` (0 for an unknown number). Returns true if it had plenty at
    /// every look for a while, so that the refusal stands.
    pub fn lasts_for(&mut self, account: Account, bytes: u64) -> bool {
        let has_plenty =
            matches!(free_of(account), Some(Ok(free)) if has_plenty(account, free, bytes));
        self.lasts(has_plenty, clock::now())
    }

    /// Returns true if the device was found so for a while. Where models leave and return, tens of GiB are free between one
    /// look and the next and yet were not at the call.
    fn lasts(&mut self, has_plenty: bool, now_ns: u64) -> bool {
        let since = *self.since_ns.get_or_insert(now_ns);
        self.count += 1;
        if !has_plenty {
            *self = Self::default();
        }
        self.count >= PLENTY_LOOKS && now_ns.saturating_sub(since) >= PLENTY_NS
    }
}

/// Returns the free bytes that the driver reports to the calling thread, or `None` if the account is for another
/// device, or the thread has no context, or one that is destroyed. An error means that the thread cannot use the driver now: it is in a callback, or its context is lost.
pub fn free_of(account: Account) -> Option<Result<u64, CUerror>> {
    let here = account.process().home_of_thread(account.thread());
    let (_, ordinal) = here.filter(|(context, _)| *context != 0)?;
    let free = (ordinal == account.ordinal()).then(ask::free_bytes)?;
    (free != Err(CUDA_ERROR_CONTEXT_IS_DESTROYED)).then_some(free)
}

/// Returns true if a device with `free` bytes has plenty for `bytes`.
pub fn has_plenty(account: Account, free: u64, bytes: u64) -> bool {
    is_plenty(free, account.total_bytes(), bytes)
}

fn is_plenty(free: u64, total: u64, bytes: u64) -> bool {
    free >= (total / PLENTY).max(bytes.saturating_add(total / BESIDE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_must_stay_free_for_a_while_before_a_call_is_hopeless() {
        let mut plenty = Plenty::default();
        assert!(!plenty.lasts(true, 5), "it may have been full at the call");
        for _ in 0..PLENTY_LOOKS {
            assert!(!plenty.lasts(true, 4 + PLENTY_NS));
        }
        assert!(!plenty.lasts(false, 5 + PLENTY_NS), "it was full again");
        assert!(!plenty.lasts(true, 6 + PLENTY_NS), "which begins it anew");
        for _ in 2..PLENTY_LOOKS {
            assert!(
                !plenty.lasts(true, 6 + 3 * PLENTY_NS),
                "it was full between two looks"
            );
        }
        assert!(plenty.lasts(true, 6 + 3 * PLENTY_NS));
    }

    #[test]
    fn a_device_has_plenty_if_the_bytes_and_more_are_free() {
        assert!(is_plenty(64, 256, 0) && !is_plenty(63, 256, 0));
        assert!(is_plenty(64, 256, 48) && !is_plenty(64, 256, 49));
        assert!(is_plenty(216, 256, 200) && !is_plenty(215, 256, 200));
    }
}
