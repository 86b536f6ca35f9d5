//! The encoding of the control records. Any words decode to something; invalid ones decode to "not set".

mod context;
mod launch;
mod rule;
mod words;

pub(crate) use context::{MPS, MPS_BELOW, loss_of, loss_word, mps_of, mps_word};
pub(crate) use launch::restore;
pub(crate) use rule::{RULE_TEXTS, rule_of, rule_words};
pub(crate) use words::{
    NameWords, key_of, name_words, text_into, text_of, text_words, uuid_of, uuid_words,
};

use gpushare_settings::row::{Field, Places};
use gpushare_settings::table::{MEMORY, put_timed, timed};
use gpushare_settings::{DeviceRecord, GroupRecord};

use crate::{
    layout::{
        control::{PROCESS_WORDS, SMALL_WORDS},
        state::POLICY_WORDS,
    },
    value::{
        DEVICES_PER_PROCESS, LockPolicy, QuotaValue, RECORDS, SettingValues, ShareSettings, Timed,
        TraceOrder, Uuid,
    },
};

/// A process's record. Quota 16 is the one for every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotSettings {
    pub(crate) epoch: u32,
    pub(crate) share: ShareSettings,
    pub(crate) quotas: [Timed<QuotaValue>; DEVICES_PER_PROCESS + 1],
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
    pub(crate) memory: DeviceRecord,
}

impl DeviceSettings {
    /// Each end that is still ahead.
    pub(crate) fn reverts(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let policy = self.policy.reverts(now_ns);
        policy.into_iter().chain(self.memory.reverts(now_ns))
    }
}

/// A group's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupSettings {
    pub(crate) name: NameWords,
    pub(crate) present: bool,
    pub(crate) set: GroupRecord,
}

impl GroupSettings {
    /// The settings that its members take from it.
    pub(crate) fn at(&self, now_ns: u64) -> SettingValues {
        SettingValues {
            weight: self.set.weight.at(now_ns),
            cap: self.set.cap.at(now_ns),
            ..SettingValues::default()
        }
    }

    /// Returns true if a reserve is set for it, now or later.
    pub(crate) fn may_reserve(&self) -> bool {
        self.set.reserve.value.or(self.set.reserve.then).is_some()
    }

    /// Returns the bytes that its members have reserved together on a device, at most its quota there.
    pub(crate) fn reserve_at(&self, now_ns: u64, total: u64) -> u64 {
        let reserve = self.set.reserve.at(now_ns).unwrap_or_default();
        let quota = self.set.memory.at(now_ns).unwrap_or_default();
        let quota = quota.of_device(total).flatten();
        reserve.of_device(total).min(quota.unwrap_or(u64::MAX))
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Position of a slot's trace order, after its quotas.
const TRACE: usize = 4 + 4 * (DEVICES_PER_PROCESS + 1);

/// Position of the limit in a device's record.
const LIMIT: Field = Field::part(9, 0, 8).above(10);

/// Position of a quota in a process's record.
const fn quota_places(index: usize) -> Places {
    let first = 4 + 4 * index;
    Places {
        value: Field::part(first, 0, 8).above(first + 1),
        then: Some((Field::part(first, 8, 8).above(first + 2), first + 3)),
    }
}

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
    pub(crate) fn encode(&self) -> [u64; PROCESS_WORDS] {
        let mut words = [0; PROCESS_WORDS];
        words[0] = u64::from(self.epoch);
        words[TRACE] = order_words(self.trace);
        self.share.encode(&mut words);
        for (index, quota) in self.quotas.iter().enumerate() {
            put_timed(&MEMORY, &quota_places(index), &mut words, quota);
        }
        words
    }

    pub(crate) fn decode(words: &[u64; PROCESS_WORDS]) -> SlotSettings {
        SlotSettings {
            epoch: words[0] as u32,
            share: ShareSettings::decode(words),
            quotas: std::array::from_fn(|index| timed(&MEMORY, &quota_places(index), words)),
            trace: order_of(words[TRACE]),
        }
    }

    /// Returns the record without temporary values that have ended.
    pub(crate) fn settled(mut self, now_ns: u64) -> SlotSettings {
        for quota in &mut self.quotas {
            *quota = quota.settled(now_ns);
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
        words[3..3 + POLICY_WORDS].copy_from_slice(&LockPolicy::encode(self.policy.value));
        MEMORY.put(&LIMIT, &mut words, Some(self.limit));
        words[11] = self.policy.until_ns;
        words[12..12 + POLICY_WORDS].copy_from_slice(&LockPolicy::encode(self.policy.then));
        self.memory.encode(&mut words);
        words
    }

    pub(crate) fn decode(words: &[u64; SMALL_WORDS]) -> DeviceSettings {
        let policy = |at: usize| {
            let mut policy = [0; POLICY_WORDS];
            policy.copy_from_slice(&words[at..at + POLICY_WORDS]);
            LockPolicy::decode(&policy)
        };
        DeviceSettings {
            uuid: uuid_of(words[0], words[1]),
            present: words[2] == 1,
            policy: Timed {
                value: policy(3),
                then: policy(12),
                until_ns: words[11],
            },
            limit: MEMORY.get(&LIMIT, words).unwrap_or_default(),
            memory: DeviceRecord::decode(words),
        }
    }
}

impl GroupSettings {
    pub(crate) fn encode(&self) -> [u64; SMALL_WORDS] {
        let mut words = [0; SMALL_WORDS];
        words[..4].copy_from_slice(&self.name);
        words[4] = u64::from(self.present);
        self.set.encode(&mut words);
        words
    }

    pub(crate) fn decode(words: &[u64; SMALL_WORDS]) -> GroupSettings {
        GroupSettings {
            name: [words[0], words[1], words[2], words[3]],
            present: words[4] == 1,
            set: GroupRecord::decode(words),
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
