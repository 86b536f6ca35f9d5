//! What the words of the control records mean. Any words decode to something; what makes no sense decodes to
//! "not set".

mod context;
mod launch;
mod policy;
mod rule;
mod words;

pub(crate) use context::{loss_of, loss_word, mps_of, mps_word};
pub(crate) use launch::{LaunchShare, evict_after_of, evict_after_word, on_full_of, on_full_word};
pub(crate) use policy::{policy_of, policy_words, source_byte, source_of};
pub(crate) use rule::{RULE_TEXTS, rule_of, rule_words};
pub(crate) use words::{NameWords, key_of, name_words, text_of, text_words, uuid_of, uuid_words};

use crate::{
    control::{SLOT_WORDS, SMALL_WORDS},
    state::POLICY_WORDS,
    value::{
        Boost, DEVICES_PER_PROCESS, EvictAfter, LockPolicy, OnFull, QuotaValue, RECORDS,
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
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<i32>,
    pub(crate) cap: Option<u32>,
    pub(crate) paused: Option<bool>,
    pub(crate) boost: Option<Boost>,
    pub(crate) quotas: [QuotaSetting; DEVICES_PER_PROCESS + 1],
    pub(crate) trace: Option<TraceOrder>,
    pub(crate) on_full: Option<OnFull>,
    pub(crate) evict: Option<bool>,
    pub(crate) evict_after: Option<EvictAfter>,
}

/// The part of a process's record that is about its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareSettings {
    pub(crate) weight: Option<u32>,
    pub(crate) priority: Option<i32>,
    pub(crate) cap: Option<u32>,
    pub(crate) paused: Option<bool>,
    pub(crate) boost: Option<Boost>,
    pub(crate) on_full: Option<OnFull>,
    pub(crate) evict: Option<bool>,
    pub(crate) evict_after: Option<EvictAfter>,
}

/// Index of the quota that holds for every device.
pub(crate) const EVERY_DEVICE: usize = DEVICES_PER_PROCESS;

/// A device's record, and the common one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    pub(crate) uuid: Uuid,
    pub(crate) present: bool,
    pub(crate) policy: PolicySetting,
    pub(crate) limit: QuotaValue,
    pub(crate) evict_after: Option<EvictAfter>,
    pub(crate) overcommit: Option<bool>,
}

/// A policy, with what it reverts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicySetting {
    pub(crate) value: Option<LockPolicy>,
    pub(crate) then: Option<LockPolicy>,
    /// When `then` takes over; 0 is never.
    pub(crate) until_ns: u64,
}

impl PolicySetting {
    /// What holds at a time.
    pub(crate) fn at(&self, now_ns: u64) -> Option<LockPolicy> {
        self.settled(now_ns).value
    }

    /// The same without what no longer holds.
    pub(crate) fn settled(self, now_ns: u64) -> PolicySetting {
        if self.until_ns == 0 || self.until_ns > now_ns {
            return self;
        }
        PolicySetting {
            value: self.then,
            ..PolicySetting::default()
        }
    }

    /// What holds once its time is over.
    pub(crate) fn lasting(&self) -> Option<LockPolicy> {
        self.settled(u64::MAX).value
    }

    /// Its end, for an edit that brings it back.
    pub(crate) fn until(&self) -> Option<Until<Option<LockPolicy>>> {
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

/// A group's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupSettings {
    pub(crate) name: NameWords,
    pub(crate) present: bool,
    pub(crate) memory: QuotaValue,
    pub(crate) weight: Option<u32>,
    pub(crate) cap: Option<u32>,
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
const _: () = assert!(ON_FULL < SLOT_WORDS);

/// After which idle time processes on a device are evicted: behind its policies.
const DEVICE_EVICT_AFTER: usize = 12 + POLICY_WORDS;
/// Whether whoever finds a device full may have idle processes evicted: 1 no, 2 yes.
const DEVICE_OVERCOMMIT: usize = DEVICE_EVICT_AFTER + 1;
const _: () = assert!(DEVICE_OVERCOMMIT < SMALL_WORDS);

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

impl SlotSettings {
    pub(crate) fn share(&self) -> ShareSettings {
        let SlotSettings {
            weight,
            priority,
            cap,
            paused,
            boost,
            on_full,
            evict,
            evict_after,
            ..
        } = *self;
        ShareSettings {
            weight,
            priority,
            cap,
            paused,
            boost,
            on_full,
            evict,
            evict_after,
        }
    }

    pub(crate) fn encode(&self) -> [u64; SLOT_WORDS] {
        let mut words = [0; SLOT_WORDS];
        let mut flags = 0;
        let mut flag = |set: bool, bit: u32| flags |= if set { bit } else { 0 };
        flag(self.weight.is_some(), WEIGHT);
        flag(self.priority.is_some(), PRIORITY);
        flag(self.cap.is_some(), CAP);
        flag(self.paused.is_some(), PAUSED_SET);
        flag(self.paused == Some(true), PAUSED);
        flag(self.boost.is_some(), BOOST);
        flag(self.evict.is_some(), EVICT_SET);
        flag(self.evict == Some(true), EVICT);
        words[0] = pair(self.epoch, flags);
        words[1] = pair(self.weight.unwrap_or(0), self.cap.unwrap_or(0));
        let boost = self.boost.unwrap_or(Boost {
            priority: 0,
            until_ns: 0,
        });
        words[2] = pair(self.priority.unwrap_or(0) as u32, boost.priority as u32);
        words[3] = boost.until_ns;
        words[TRACE] = order_words(self.trace);
        words[ON_FULL] = on_full_word(self.on_full);
        words[EVICT_AFTER] = evict_after_word(self.evict_after);
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
        SlotSettings {
            epoch,
            weight: Some(weight).filter(|w| has(WEIGHT) && valid_weight(*w)),
            priority: Some(priority as i32).filter(|p| has(PRIORITY) && valid_priority(*p)),
            cap: Some(cap).filter(|c| has(CAP) && valid_cap(*c)),
            paused: Some(has(PAUSED)).filter(|_| has(PAUSED_SET)),
            boost: Some(Boost {
                priority: boost as i32,
                until_ns: words[3],
            })
            .filter(|b| has(BOOST) && valid_priority(b.priority)),
            quotas,
            trace: order_of(words[TRACE]),
            on_full: on_full_of(words[ON_FULL]),
            evict: Some(has(EVICT)).filter(|_| has(EVICT_SET)),
            evict_after: evict_after_of(words[EVICT_AFTER]),
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
        self.boost = self.boost.filter(|boost| boost.until_ns > now_ns);
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
        words[DEVICE_EVICT_AFTER] = evict_after_word(self.evict_after);
        words[DEVICE_OVERCOMMIT] = self.overcommit.map_or(0, |on| 1 + u64::from(on));
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
            policy: PolicySetting {
                value: policy(3),
                then: policy(12),
                until_ns: words[11],
            },
            limit: quota_value(words[9], words[10]),
            evict_after: evict_after_of(words[DEVICE_EVICT_AFTER]),
            overcommit: match words[DEVICE_OVERCOMMIT] {
                1 => Some(false),
                2 => Some(true),
                _ => None,
            },
        }
    }
}

impl GroupSettings {
    pub(crate) fn encode(&self) -> [u64; SMALL_WORDS] {
        let mut words = [0; SMALL_WORDS];
        words[..4].copy_from_slice(&self.name);
        words[4] = u64::from(self.present);
        (words[5], words[6]) = quota_words(self.memory);
        words[7] = pair(self.weight.unwrap_or(0), self.cap.unwrap_or(0));
        words
    }

    pub(crate) fn decode(words: &[u64; SMALL_WORDS]) -> GroupSettings {
        let (weight, cap) = halves(words[7]);
        GroupSettings {
            name: [words[0], words[1], words[2], words[3]],
            present: words[4] == 1,
            memory: quota_value(words[5], words[6]),
            weight: Some(weight).filter(|w| valid_weight(*w)),
            cap: Some(cap).filter(|c| valid_cap(*c)),
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
