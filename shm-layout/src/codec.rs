//! What the words of the control records mean. Any words decode to something; what makes no sense decodes to
//! "not set".

mod context;
mod launch;
mod policy;
mod rule;
mod words;

pub(crate) use context::{MPS, MPS_BELOW, loss_of, loss_word, mps_of, mps_word};
pub(crate) use launch::{LaunchShare, evict_after_of, evict_after_word, on_full_of, on_full_word};
pub(crate) use policy::{policy_of, policy_words, source_byte, source_of};
pub(crate) use rule::{RULE_TEXTS, rule_of, rule_words};
pub(crate) use words::{
    NameWords, key_of, name_words, text_into, text_of, text_words, uuid_of, uuid_words,
};

use crate::{
    layout::{
        control::{SLOT_WORDS, SMALL_WORDS},
        state::POLICY_WORDS,
    },
    value::{
        Boost, DEVICES_PER_PROCESS, EvictAfter, LockPolicy, OnFull, QuotaValue, RECORDS, Timed,
        TraceOrder, Until, Uuid, valid_cap, valid_priority, valid_weight,
    },
};

/// One quota of a process, with what it reverts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaSetting {
    pub(crate) value: QuotaValue,
    pub(crate) then: QuotaValue,
    /// When `then` takes over; 0 is never.
    pub(crate) until_ns: u64,
}

impl QuotaSetting {
    /// What holds at a time.
    pub(crate) fn at(&self, now_ns: u64) -> QuotaValue {
        if self.until_ns != 0 && now_ns >= self.until_ns {
            self.then
        } else {
            self.value
        }
    }

    /// What holds once its time is over.
    pub(crate) fn lasting(&self) -> QuotaValue {
        if self.until_ns == 0 {
            self.value
        } else {
            self.then
        }
    }

    /// Its end, for an edit that brings it back.
    pub(crate) fn until(&self) -> Option<Until> {
        (self.until_ns != 0).then_some(Until {
            ns: self.until_ns,
            then: Some(self.then),
        })
    }

    /// When it reverts, if that is still ahead.
    pub(crate) fn reverts(&self, now_ns: u64) -> Option<u64> {
        (self.until_ns > now_ns).then_some(self.until_ns)
    }
}

/// A process's record. Quota 16 is the one for every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotSettings {
    pub(crate) epoch: u32,
    pub(crate) share: ShareSettings,
    pub(crate) quotas: [QuotaSetting; DEVICES_PER_PROCESS + 1],
    pub(crate) trace: Option<TraceOrder>,
}

/// The part of a process's record that is about its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareSettings {
    pub(crate) weight: Timed<u32>,
    /// For a while it is a boost.
    pub(crate) priority: Option<i32>,
    pub(crate) cap: Timed<u32>,
    pub(crate) paused: Timed<bool>,
    pub(crate) boost: Option<Boost>,
    pub(crate) on_full: Timed<OnFull>,
    pub(crate) evict: Timed<bool>,
    pub(crate) evict_after: Timed<EvictAfter>,
}

impl ShareSettings {
    /// Each end that is still ahead.
    pub(crate) fn reverts(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let boost = self.boost.map(|boost| boost.until_ns);
        let ends = [
            boost.filter(|until| *until > now_ns),
            self.weight.reverts(now_ns),
            self.cap.reverts(now_ns),
            self.paused.reverts(now_ns),
            self.on_full.reverts(now_ns),
            self.evict.reverts(now_ns),
            self.evict_after.reverts(now_ns),
        ];
        ends.into_iter().flatten()
    }
}

/// Index of the quota that holds for every device.
pub(crate) const EVERY_DEVICE: usize = DEVICES_PER_PROCESS;

/// A device's record, and the common one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    pub(crate) uuid: Uuid,
    pub(crate) present: bool,
    pub(crate) policy: Timed<LockPolicy>,
    pub(crate) limit: QuotaValue,
    pub(crate) evict_after: Timed<EvictAfter>,
    pub(crate) overcommit: Timed<bool>,
}

impl DeviceSettings {
    /// Each end that is still ahead.
    pub(crate) fn reverts(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let ends = [
            self.policy.reverts(now_ns),
            self.evict_after.reverts(now_ns),
            self.overcommit.reverts(now_ns),
        ];
        ends.into_iter().flatten()
    }
}

/// A group's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupSettings {
    pub(crate) name: NameWords,
    pub(crate) present: bool,
    pub(crate) memory: Timed<QuotaValue>,
    pub(crate) weight: Timed<u32>,
    pub(crate) cap: Timed<u32>,
}

impl GroupSettings {
    /// Each end that is still ahead.
    pub(crate) fn reverts(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let ends = [
            self.memory.reverts(now_ns),
            self.weight.reverts(now_ns),
            self.cap.reverts(now_ns),
        ];
        ends.into_iter().flatten()
    }
}

fn quota_words(value: QuotaValue) -> (u64, u64) {
    match value {
        QuotaValue::Inherit => (0, 0),
        QuotaValue::Unlimited => (1, 0),
        QuotaValue::Bytes(bytes) => (2, bytes),
        QuotaValue::Percent(percent) => (3, u64::from(percent)),
    }
}

fn quota_value(kind: u64, amount: u64) -> QuotaValue {
    match kind & 0xff {
        1 => QuotaValue::Unlimited,
        2 => QuotaValue::Bytes(amount),
        3 if (1..=100).contains(&amount) => QuotaValue::Percent(amount as u8),
        _ => QuotaValue::Inherit,
    }
}

/// The same where unset is absent.
fn set_quota(kind: u64, amount: u64) -> Option<QuotaValue> {
    Some(quota_value(kind, amount)).filter(|value| *value != QuotaValue::Inherit)
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Where a slot's order for a trace is: behind its quotas.
const TRACE: usize = 4 + 4 * (DEVICES_PER_PROCESS + 1);
/// What it does when memory is refused.
const ON_FULL: usize = TRACE + 2;
/// After which idle time it is evicted.
const EVICT_AFTER: usize = TRACE + 1;
/// What follows a share that ends by itself: weight and cap; flags; the two words above.
const SHARE_THEN: usize = ON_FULL + 1;
/// When: weight, cap, pause, eviction, memory refused, idle time.
const SHARE_ENDS: usize = SHARE_THEN + 4;
const _: () = assert!(SHARE_ENDS + 6 <= SLOT_WORDS);

/// After which idle time processes on a device are evicted: behind its policies.
const DEVICE_EVICT_AFTER: usize = 12 + POLICY_WORDS;
/// Whether whoever finds a device full may have idle processes evicted: 1 no, 2 yes; above it, what follows.
const DEVICE_OVERCOMMIT: usize = DEVICE_EVICT_AFTER + 1;
/// What follows the idle time, and when; when the other one ends.
const DEVICE_ENDS: usize = DEVICE_OVERCOMMIT + 1;
const _: () = assert!(DEVICE_ENDS + 3 <= SMALL_WORDS);

const WEIGHT: u32 = 1;
const PRIORITY: u32 = 2;
const CAP: u32 = 4;
const PAUSED_SET: u32 = 8;
const PAUSED: u32 = 16;
const BOOST: u32 = 32;
const EVICT_SET: u32 = 64;
const EVICT: u32 = 128;

/// A trace order's word; zero is none.
fn order_words(order: Option<TraceOrder>) -> u64 {
    order.map_or(0, |order| {
        u64::from(order.records) | u64::from(order.number) << 32
    })
}

fn order_of(word: u64) -> Option<TraceOrder> {
    let (records, number) = (word as u32, (word >> 32) as u32);
    let is_known = number != 0 && (records == 0 || RECORDS.contains(&records));
    is_known.then_some(TraceOrder { records, number })
}

/// Flags of settings that are there.
fn flags<const N: usize>(of: [(bool, u32); N]) -> u32 {
    of.into_iter()
        .fold(0, |flags, (set, bit)| flags | if set { bit } else { 0 })
}

/// A switch by its two bits.
fn switch(flags: u32, set: u32, on: u32) -> Option<bool> {
    (flags & set != 0).then_some(flags & on != 0)
}

/// A switch as a byte; zero is not set.
fn switch_byte(on: Option<bool>) -> u64 {
    on.map_or(0, |on| 1 + u64::from(on))
}

fn switch_of(byte: u64) -> Option<bool> {
    match byte & 0xff {
        1 => Some(false),
        2 => Some(true),
        _ => None,
    }
}

impl SlotSettings {
    pub(crate) fn encode(&self) -> [u64; SLOT_WORDS] {
        let mut words = [0; SLOT_WORDS];
        let share = &self.share;
        let now = flags([
            (share.weight.value.is_some(), WEIGHT),
            (share.priority.is_some(), PRIORITY),
            (share.cap.value.is_some(), CAP),
            (share.paused.value.is_some(), PAUSED_SET),
            (share.paused.value == Some(true), PAUSED),
            (share.boost.is_some(), BOOST),
            (share.evict.value.is_some(), EVICT_SET),
            (share.evict.value == Some(true), EVICT),
        ]);
        let then = flags([
            (share.weight.then.is_some(), WEIGHT),
            (share.cap.then.is_some(), CAP),
            (share.paused.then.is_some(), PAUSED_SET),
            (share.paused.then == Some(true), PAUSED),
            (share.evict.then.is_some(), EVICT_SET),
            (share.evict.then == Some(true), EVICT),
        ]);
        let numbers =
            |weight: Option<u32>, cap: Option<u32>| pair(weight.unwrap_or(0), cap.unwrap_or(0));
        words[0] = pair(self.epoch, now);
        words[1] = numbers(share.weight.value, share.cap.value);
        let boost = share.boost.unwrap_or(Boost {
            priority: 0,
            until_ns: 0,
        });
        words[2] = pair(share.priority.unwrap_or(0) as u32, boost.priority as u32);
        words[3] = boost.until_ns;
        words[TRACE] = order_words(self.trace);
        words[ON_FULL] = on_full_word(share.on_full.value);
        words[EVICT_AFTER] = evict_after_word(share.evict_after.value);
        words[SHARE_THEN..SHARE_ENDS].copy_from_slice(&[
            numbers(share.weight.then, share.cap.then),
            u64::from(then),
            on_full_word(share.on_full.then),
            evict_after_word(share.evict_after.then),
        ]);
        words[SHARE_ENDS..SHARE_ENDS + 6].copy_from_slice(&[
            share.weight.until_ns,
            share.cap.until_ns,
            share.paused.until_ns,
            share.evict.until_ns,
            share.on_full.until_ns,
            share.evict_after.until_ns,
        ]);
        for (quota, words) in self.quotas.iter().zip(words[4..].chunks_exact_mut(4)) {
            let (kind, amount) = quota_words(quota.value);
            let (then_kind, then_amount) = quota_words(quota.then);
            words.copy_from_slice(&[kind | then_kind << 8, amount, then_amount, quota.until_ns]);
        }
        words
    }

    pub(crate) fn decode(words: &[u64; SLOT_WORDS]) -> SlotSettings {
        let (epoch, flags) = halves(words[0]);
        let has = |bit: u32| flags & bit != 0;
        let (weight, cap) = halves(words[1]);
        let (priority, boost) = halves(words[2]);
        let mut quotas = [QuotaSetting::default(); DEVICES_PER_PROCESS + 1];
        for (quota, words) in quotas.iter_mut().zip(words[4..].chunks_exact(4)) {
            *quota = QuotaSetting {
                value: quota_value(words[0], words[1]),
                then: quota_value(words[0] >> 8, words[2]),
                until_ns: words[3],
            };
        }
        let (then_weight, then_cap) = halves(words[SHARE_THEN]);
        let then = words[SHARE_THEN + 1] as u32;
        let ends = &words[SHARE_ENDS..];
        let weight_if = |weight: u32, set: bool| Some(weight).filter(|w| set && valid_weight(*w));
        let cap_if = |cap: u32, set: bool| Some(cap).filter(|c| set && valid_cap(*c));
        let share = ShareSettings {
            weight: Timed {
                value: weight_if(weight, has(WEIGHT)),
                then: weight_if(then_weight, then & WEIGHT != 0),
                until_ns: ends[0],
            },
            priority: Some(priority as i32).filter(|p| has(PRIORITY) && valid_priority(*p)),
            cap: Timed {
                value: cap_if(cap, has(CAP)),
                then: cap_if(then_cap, then & CAP != 0),
                until_ns: ends[1],
            },
            paused: Timed {
                value: switch(flags, PAUSED_SET, PAUSED),
                then: switch(then, PAUSED_SET, PAUSED),
                until_ns: ends[2],
            },
            boost: Some(Boost {
                priority: boost as i32,
                until_ns: words[3],
            })
            .filter(|b| has(BOOST) && valid_priority(b.priority)),
            on_full: Timed {
                value: on_full_of(words[ON_FULL]),
                then: on_full_of(words[SHARE_THEN + 2]),
                until_ns: ends[4],
            },
            evict: Timed {
                value: switch(flags, EVICT_SET, EVICT),
                then: switch(then, EVICT_SET, EVICT),
                until_ns: ends[3],
            },
            evict_after: Timed {
                value: evict_after_of(words[EVICT_AFTER]),
                then: evict_after_of(words[SHARE_THEN + 3]),
                until_ns: ends[5],
            },
        };
        SlotSettings {
            epoch,
            share,
            quotas,
            trace: order_of(words[TRACE]),
        }
    }

    /// The record without what no longer holds.
    pub(crate) fn settled(mut self, now_ns: u64) -> SlotSettings {
        for quota in &mut self.quotas {
            if quota.until_ns != 0 && quota.until_ns <= now_ns {
                *quota = QuotaSetting {
                    value: quota.then,
                    ..QuotaSetting::default()
                };
            }
        }
        let share = &mut self.share;
        share.weight = share.weight.settled(now_ns);
        share.cap = share.cap.settled(now_ns);
        share.paused = share.paused.settled(now_ns);
        share.boost = share.boost.filter(|boost| boost.until_ns > now_ns);
        share.on_full = share.on_full.settled(now_ns);
        share.evict = share.evict.settled(now_ns);
        share.evict_after = share.evict_after.settled(now_ns);
        self
    }
}

impl DeviceSettings {
    pub(crate) fn encode(&self) -> [u64; SMALL_WORDS] {
        let mut words = [0; SMALL_WORDS];
        (words[0], words[1]) = uuid_words(&self.uuid);
        words[2] = u64::from(self.present);
        words[3..3 + POLICY_WORDS].copy_from_slice(&policy_words(self.policy.value));
        (words[9], words[10]) = quota_words(self.limit);
        words[11] = self.policy.until_ns;
        words[12..12 + POLICY_WORDS].copy_from_slice(&policy_words(self.policy.then));
        words[DEVICE_EVICT_AFTER] = evict_after_word(self.evict_after.value);
        words[DEVICE_OVERCOMMIT] =
            switch_byte(self.overcommit.value) | switch_byte(self.overcommit.then) << 8;
        words[DEVICE_ENDS] = evict_after_word(self.evict_after.then);
        words[DEVICE_ENDS + 1] = self.evict_after.until_ns;
        words[DEVICE_ENDS + 2] = self.overcommit.until_ns;
        words
    }

    pub(crate) fn decode(words: &[u64; SMALL_WORDS]) -> DeviceSettings {
        let policy = |at: usize| {
            let mut policy = [0; POLICY_WORDS];
            policy.copy_from_slice(&words[at..at + POLICY_WORDS]);
            policy_of(&policy)
        };
        DeviceSettings {
            uuid: uuid_of(words[0], words[1]),
            present: words[2] == 1,
            policy: Timed {
                value: policy(3),
                then: policy(12),
                until_ns: words[11],
            },
            limit: quota_value(words[9], words[10]),
            evict_after: Timed {
                value: evict_after_of(words[DEVICE_EVICT_AFTER]),
                then: evict_after_of(words[DEVICE_ENDS]),
                until_ns: words[DEVICE_ENDS + 1],
            },
            overcommit: Timed {
                value: switch_of(words[DEVICE_OVERCOMMIT]),
                then: switch_of(words[DEVICE_OVERCOMMIT] >> 8),
                until_ns: words[DEVICE_ENDS + 2],
            },
        }
    }
}

impl GroupSettings {
    pub(crate) fn encode(&self) -> [u64; SMALL_WORDS] {
        let mut words = [0; SMALL_WORDS];
        words[..4].copy_from_slice(&self.name);
        words[4] = u64::from(self.present);
        let (kind, amount) = quota_words(self.memory.value.unwrap_or_default());
        let (then_kind, then_amount) = quota_words(self.memory.then.unwrap_or_default());
        let numbers =
            |weight: Option<u32>, cap: Option<u32>| pair(weight.unwrap_or(0), cap.unwrap_or(0));
        words[5..13].copy_from_slice(&[
            kind | then_kind << 8,
            amount,
            numbers(self.weight.value, self.cap.value),
            then_amount,
            numbers(self.weight.then, self.cap.then),
            self.memory.until_ns,
            self.weight.until_ns,
            self.cap.until_ns,
        ]);
        words
    }

    pub(crate) fn decode(words: &[u64; SMALL_WORDS]) -> GroupSettings {
        let (weight, cap) = halves(words[7]);
        let (then_weight, then_cap) = halves(words[9]);
        let weight_of = |weight: u32| Some(weight).filter(|w| valid_weight(*w));
        let cap_of = |cap: u32| Some(cap).filter(|c| valid_cap(*c));
        GroupSettings {
            name: [words[0], words[1], words[2], words[3]],
            present: words[4] == 1,
            memory: Timed {
                value: set_quota(words[5], words[6]),
                then: set_quota(words[5] >> 8, words[8]),
                until_ns: words[10],
            },
            weight: Timed {
                value: weight_of(weight),
                then: weight_of(then_weight),
                until_ns: words[11],
            },
            cap: Timed {
                value: cap_of(cap),
                then: cap_of(then_cap),
                until_ns: words[12],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_slot_words_decode_and_settle_to_a_fixed_point(words in prop::collection::vec(any::<u64>(), SLOT_WORDS)) {
            let words: [u64; SLOT_WORDS] = words.try_into().expect("the right length");
            let once = SlotSettings::decode(&words);
            prop_assert_eq!(SlotSettings::decode(&once.encode()), once);
            prop_assert_eq!(once.settled(u64::MAX).settled(u64::MAX), once.settled(u64::MAX));
        }

        #[test]
        fn any_small_words_decode_to_a_fixed_point(words in prop::collection::vec(any::<u64>(), SMALL_WORDS)) {
            let words: [u64; SMALL_WORDS] = words.try_into().expect("the right length");
            let device = DeviceSettings::decode(&words);
            prop_assert_eq!(DeviceSettings::decode(&device.encode()), device);
            let group = GroupSettings::decode(&words);
            prop_assert_eq!(GroupSettings::decode(&group.encode()), group);
        }

        #[test]
        fn any_text_comes_back_whole_or_cut_at_a_character(text in "[^\0]{0,40}") {
            let mut words = [0; 8];
            text_words(&text, &mut words);
            prop_assert!(text.starts_with(&text_of(&words)));
        }
    }
}
