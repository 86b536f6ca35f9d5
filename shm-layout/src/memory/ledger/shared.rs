//! Limits that processes share: those of a group and of a device. An attempt that only the attempts of others prevent is repeated.

use std::time::Duration;

use super::Ledger;
use crate::{
    cached_settings::Limits,
    protocol::{
        account::{self, Account, Refusal, SharedLimit},
        primitive::Ordering,
    },
    value::{Denial, Limit, Outlook},
};

/// Further attempts of a reservation that only the attempts of other processes prevent; together they take some milliseconds.
const ATTEMPTS: u32 = 64;

impl Ledger<'_> {
    pub(super) fn reserve_shared(
        &self,
        bytes: u64,
        limits: &Limits,
        card: u64,
    ) -> Result<u64, Denial> {
        let mut own = self.own;
        own.shown.reserve = self.reserve_word().load(Ordering::Relaxed);
        self.under_shared_limits(bytes, limits, card, |shared| {
            account::reserve_shared(own, bytes, limits.quota, shared)
        })
    }

    /// Tries a step of `bytes` under the limits of the group and of the device, of which the card has this much. Repeats it while only
    /// attempts of others are in the way.
    pub(super) fn under_shared_limits<T>(
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
        let whole = limits.device.min(card);
        let both = [
            SharedLimit {
                bytes: limits.group,
                walk: &in_group,
                groups: &[],
            },
            SharedLimit {
                bytes: whole,
                walk: &on_device,
                groups: &reserves,
            },
        ];
        let names = [(Limit::Group, limits.group), (Limit::Device, whole)];
        let range = usize::from(limits.group == u64::MAX)..1 + usize::from(whole != u64::MAX);
        let (shared, names) = (
            both.get(range.clone()).unwrap_or_default(),
            names.get(range).unwrap_or_default(),
        );
        let mut result = step(shared);
        for attempt in 0..ATTEMPTS {
            if !matches!(result, Err(Refusal::Crowded(..))) {
                break;
            }
            BackOff::after(attempt, self.own_slot.slot().index).wait();
            result = step(shared);
        }
        result.map_err(|refusal| self.denial(refusal, bytes, limits.quota, names))
    }

    pub(super) fn denial(
        &self,
        refusal: Refusal,
        asked: u64,
        quota: u64,
        names: &[(Limit, u64)],
    ) -> Denial {
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

    /// Computes the outlook under a limit that the process shares with others.
    #[cold]
    #[inline(never)]
    pub(super) fn shared_outlook(&self) -> Outlook {
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

/// The way a reservation waits before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackOff {
    Spin(u32),
    Yield,
    Sleep(Duration),
}

impl BackOff {
    /// Waits a little, differently for each slot, so that two processes that hinder each other do not keep in step.
    pub(super) fn after(attempt: u32, slot: u16) -> Self {
        match attempt {
            0..8 => Self::Spin(1 + u32::from(slot) % 7 + attempt),
            8..24 => Self::Yield,
            _ => Self::Sleep(Duration::from_micros(50 + u64::from(slot) % 13 * 17)),
        }
    }

    pub(super) fn wait(self) {
        match self {
            Self::Spin(times) => (0..times).for_each(|_| std::hint::spin_loop()),
            Self::Yield => std::thread::yield_now(),
            Self::Sleep(time) => std::thread::sleep(time),
        }
    }
}
