//! The encoding of the control records. Any words decode to something; invalid ones decode to "not set".

mod context;
mod launch;
mod policy;
mod rule;
mod words;

pub(crate) use context::{MPS, MPS_BELOW, loss_of, loss_word, mps_of, mps_word};
pub(crate) use launch::restore;
pub(crate) use policy::{policy_of, policy_words};
pub(crate) use rule::{RULE_TEXTS, rule_of, rule_words};
pub(crate) use words::{
    NameWords, key_of, name_words, text_into, text_of, text_words, uuid_of, uuid_words,
};

use gpushare_settings::row::{Field, Places};
use gpushare_settings::table::{CAP, EVICT_AFTER, WEIGHT, put_timed, timed};

use crate::{
    layout::{
        control::{PROCESS_WORDS, SMALL_WORDS},
        state::POLICY_WORDS,
    },
    value::{
        DEVICES_PER_PROCESS, EvictAfter, LockPolicy, QuotaValue, RECORDS, SettingValues,
        ShareSettings, Timed, TraceOrder, Until, Uuid,
    },
};

/// One quota of a process, and the quota that follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QuotaSetting {
    pub(crate) value: QuotaValue,
    pub(crate) then: QuotaValue,
    /// Time when `then` takes over; 0 is never.
    pub(crate) until_ns: u64,
}

impl QuotaSetting {
    /// Returns the quota in force at a time.
    pub(crate) fn at(&self, now_ns: u64) -> QuotaValue {
        if self.until_ns != 0 && now_ns >= self.until_ns {
            self.then
        } else {
            self.value
        }
    }

    /// Returns the quota that is in force after the temporary one.
    pub(crate) fn lasting(&self) -> QuotaValue {
        if self.until_ns == 0 {
            self.value
        } else {
            self.then
        }
    }

    /// Returns the end of the temporary quota, for an edit that restores it.
    pub(crate) fn until(&self) -> Option<Until> {
        (self.until_ns != 0).then_some(Until {
            ns: self.until_ns,
            then: Some(self.then),
        })
    }

    /// Returns the time when the quota reverts, if that is in the future.
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

/// Index of the quota for every device.
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

/// Positions in a group's record of the settings that its members inherit.
const GROUP_WEIGHT: Places = WEIGHT.group.expect("a group sets it");
const GROUP_CAP: Places = CAP.group.expect("a group sets it");

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
    /// The settings that its members take from it.
    pub(crate) fn at(&self, now_ns: u64) -> SettingValues {
        SettingValues {
            weight: self.weight.at(now_ns),
            cap: self.cap.at(now_ns),
            ..SettingValues::default()
        }
    }

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

/// Decodes a quota like [`quota_value`], but an unset one is `None`.
fn set_quota(kind: u64, amount: u64) -> Option<QuotaValue> {
    Some(quota_value(kind, amount)).filter(|value| *value != QuotaValue::Inherit)
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Position of a slot's trace order, after its quotas.
const TRACE: usize = 4 + 4 * (DEVICES_PER_PROCESS + 1);

/// The idle time after which processes on a device are evicted, after its policies; then the value that follows it, and when.
const DEVICE_EVICT_AFTER: Places = Places {
    value: Field::word(DEVICE_OVERCOMMIT - 1),
    then: Some((Field::word(DEVICE_ENDS), DEVICE_ENDS + 1)),
};
/// Position of the device's overcommit setting: 1 no, 2 yes. The value that follows it when it ends is in the upper bits.
const DEVICE_OVERCOMMIT: usize = 13 + POLICY_WORDS;
/// Position of the idle time's next value and its end, and of the end of the overcommit setting.
const DEVICE_ENDS: usize = DEVICE_OVERCOMMIT + 1;
const _: () = assert!(DEVICE_ENDS + 3 <= SMALL_WORDS);

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
    pub(crate) fn encode(&self) -> [u64; PROCESS_WORDS] {
        let mut words = [0; PROCESS_WORDS];
        words[0] = u64::from(self.epoch);
        words[TRACE] = order_words(self.trace);
        self.share.encode(&mut words);
        for (quota, words) in self.quotas.iter().zip(words[4..].chunks_exact_mut(4)) {
            let (kind, amount) = quota_words(quota.value);
            let (then_kind, then_amount) = quota_words(quota.then);
            words.copy_from_slice(&[kind | then_kind << 8, amount, then_amount, quota.until_ns]);
        }
        words
    }

    pub(crate) fn decode(words: &[u64; PROCESS_WORDS]) -> SlotSettings {
        let mut quotas = [QuotaSetting::default(); DEVICES_PER_PROCESS + 1];
        for (quota, words) in quotas.iter_mut().zip(words[4..].chunks_exact(4)) {
            *quota = QuotaSetting {
                value: quota_value(words[0], words[1]),
                then: quota_value(words[0] >> 8, words[2]),
                until_ns: words[3],
            };
        }
        SlotSettings {
            epoch: words[0] as u32,
            share: ShareSettings::decode(words),
            quotas,
            trace: order_of(words[TRACE]),
        }
    }

    /// Returns the record without temporary values that have ended.
    pub(crate) fn settled(mut self, now_ns: u64) -> SlotSettings {
        for quota in &mut self.quotas {
            if quota.until_ns != 0 && quota.until_ns <= now_ns {
                *quota = QuotaSetting {
                    value: quota.then,
                    ..QuotaSetting::default()
                };
            }
        }
        self.share = self.share.settled(now_ns);
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
        put_timed(
            &EVICT_AFTER,
            &DEVICE_EVICT_AFTER,
            &mut words,
            &self.evict_after,
        );
        words[DEVICE_OVERCOMMIT] =
            switch_byte(self.overcommit.value) | switch_byte(self.overcommit.then) << 8;
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
            evict_after: timed(&EVICT_AFTER, &DEVICE_EVICT_AFTER, words),
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
        words[5] = kind | then_kind << 8;
        words[6] = amount;
        words[8] = then_amount;
        words[10] = self.memory.until_ns;
        put_timed(&WEIGHT, &GROUP_WEIGHT, &mut words, &self.weight);
        put_timed(&CAP, &GROUP_CAP, &mut words, &self.cap);
        words
    }

    pub(crate) fn decode(words: &[u64; SMALL_WORDS]) -> GroupSettings {
        GroupSettings {
            name: [words[0], words[1], words[2], words[3]],
            present: words[4] == 1,
            memory: Timed {
                value: set_quota(words[5], words[6]),
                then: set_quota(words[5] >> 8, words[8]),
                until_ns: words[10],
            },
            weight: timed(&WEIGHT, &GROUP_WEIGHT, words),
            cap: timed(&CAP, &GROUP_CAP, words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_slot_words_decode_and_settle_to_a_fixed_point(words in prop::collection::vec(any::<u64>(), PROCESS_WORDS)) {
            let words: [u64; PROCESS_WORDS] = words.try_into().expect("the right length");
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
