//! The encoding of what the segments hold: the control records, texts and names, and a process's report on its context on a
//! device. Any words decode to something; invalid ones decode to "not set".

use gpushare_settings::row::{Field, Places};
use gpushare_settings::table::{MEMORY, put_timed, timed};
use gpushare_settings::{DeviceRecord, GroupRecord};

use crate::{
    layout::{
        control::{PROCESS_WORDS, RULE_WORDS, SMALL_WORDS},
        state::POLICY_WORDS,
    },
    value::{
        DEVICES_PER_PROCESS, LockPolicy, Loss, QuotaValue, RECORDS, Rule, SettingValues,
        ShareSettings, Timed, TraceOrder, Uuid,
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

/// A group's name as words: up to 31 bytes and a zero.
pub(crate) type NameWords = [u64; 4];

pub(crate) fn uuid_words(uuid: &Uuid) -> (u64, u64) {
    let bits = u128::from_le_bytes(*uuid);
    (bits as u64, (bits >> 64) as u64)
}

pub(crate) fn uuid_of(low: u64, high: u64) -> Uuid {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

/// Packs text into words, cut at a character so that a zero byte always ends it.
pub(crate) fn text_words(text: &str, words: &mut [u64]) {
    let room = (words.len() * 8).saturating_sub(1);
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    words.fill(0);
    for (index, byte) in text.as_bytes()[..end].iter().enumerate() {
        words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
    }
}

/// Decodes text, up to the first zero. Bytes that are not UTF-8 become the replacement character. All other characters, also
/// control characters, are returned as written: a program that prints the text must escape it.
pub(crate) fn text_of(words: &[u64]) -> String {
    let mut text = String::new();
    text_into(words, &mut text);
    text
}

/// Decodes into the memory of another text.
pub(crate) fn text_into(words: &[u64], text: &mut String) {
    let mut bytes = std::mem::take(text).into_bytes();
    bytes.clear();
    for word in words {
        let word = word.to_le_bytes();
        let end = word.iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&word[..end.unwrap_or(word.len())]);
        if end.is_some() {
            break;
        }
    }
    *text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
}

/// A group's name as words; `None` if it is empty, too long or has characters that do not show.
pub(crate) fn name_words(name: &str) -> Option<NameWords> {
    let fits = !name.is_empty() && name.len() <= 31 && !name.chars().any(crate::text::is_hidden);
    fits.then(|| {
        let mut words = [0; 4];
        text_words(name, &mut words);
        words
    })
}

/// A hash that is never zero: FNV-1a with a final mix.
pub(crate) fn key_of(words: &[u64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in words.iter().flat_map(|word| word.to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    (hash ^ hash >> 29).max(1)
}

const PRESENT: u32 = 1;
const UID: u32 = 2;
const GROUP: u32 = 4;
const EXECUTABLE: u32 = 8;
const CONTAINER: u32 = 16;
const LABEL: u32 = 32;

/// The flag and the position of each text. The name is always present.
const NAME_AT: std::ops::Range<usize> = 7..11;
const TEXTS: [(u32, std::ops::Range<usize>); 4] = [
    (GROUP, 11..15),
    (EXECUTABLE, 15..31),
    (CONTAINER, 31..39),
    (LABEL, 39..47),
];
const _: () = assert!(47 <= RULE_WORDS);

/// Maximum length in bytes of each text of a rule: its name, group, executable, container and label.
pub(crate) const RULE_TEXTS: [usize; 5] = [31, 31, 127, 63, 63];

/// The words of a rule; all zero is none.
pub(crate) fn rule_words(rule: Option<&Rule>) -> [u64; RULE_WORDS] {
    let mut words = [0; RULE_WORDS];
    let Some(rule) = rule else { return words };
    let mut flags = PRESENT;
    let mut flag = |set: bool, bit: u32| flags |= if set { bit } else { 0 };
    flag(rule.uid.is_some(), UID);
    text_words(&rule.name, &mut words[NAME_AT]);
    let texts = [&rule.group, &rule.executable, &rule.container, &rule.label];
    for ((bit, at), text) in TEXTS.into_iter().zip(texts) {
        if let Some(text) = text {
            flag(true, bit);
            text_words(text, &mut words[at]);
        }
    }
    words[0] = pair(flags, rule.uid.unwrap_or(0));
    rule.limits.encode(&mut words);
    words
}

/// Decodes a rule, if the words hold one.
pub(crate) fn rule_of(words: &[u64; RULE_WORDS]) -> Option<Rule> {
    let (flags, uid) = halves(words[0]);
    let has = |bit: u32| flags & bit != 0;
    if !has(PRESENT) {
        return None;
    }
    let [group, executable, container, label] =
        TEXTS.map(|(bit, at)| has(bit).then(|| text_of(&words[at])));
    Some(Rule {
        name: text_of(&words[NAME_AT]),
        uid: has(UID).then_some(uid),
        group,
        executable,
        container,
        label,
        limits: SettingValues::decode(words),
    })
}

/// The contexts belong to MPS, and the client has normal priority.
pub(crate) const MPS: u32 = 2;
/// The contexts belong to MPS, and the client has a priority below normal: MPS runs the kernels of other clients first.
pub(crate) const MPS_BELOW: u32 = 3;

/// Encodes the state of MPS: a client or not, and whether MPS was given a priority below normal.
pub(crate) fn mps_word(mps: bool, below_normal: bool) -> u32 {
    match (mps, below_normal) {
        (false, _) => 1,
        (true, false) => MPS,
        (true, true) => MPS_BELOW,
    }
}

/// Returns true if the contexts belong to MPS; `None` is unknown.
pub(crate) fn mps_of(word: u32) -> Option<bool> {
    match word {
        1 => Some(false),
        MPS | MPS_BELOW => Some(true),
        _ => None,
    }
}

/// The longest idle time that a word holds.
const IDLE: u32 = u32::MAX >> 1;

/// Encodes a loss; never zero, because bit 63 is set.
pub(crate) fn loss_word(loss: &Loss) -> u64 {
    u64::from(loss.code)
        | u64::from(loss.call.unwrap_or(u16::MAX)) << 16
        | u64::from(loss.idle_ms.min(IDLE)) << 32
        | 1 << 63
}

pub(crate) fn loss_of(word: u64, time_ns: u64) -> Option<Loss> {
    let call = (word >> 16) as u16;
    (word != 0).then_some(Loss {
        code: word as u16,
        call: (call != u16::MAX).then_some(call),
        time_ns,
        idle_ms: (word >> 32) as u32 & IDLE,
    })
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

    proptest! {
        #[test]
        fn any_rule_words_decode_to_a_fixed_point(mut words in prop::collection::vec(any::<u64>(), RULE_WORDS), present in any::<bool>()) {
            words[0] = words[0] & !1 | u64::from(present);
            let words: [u64; RULE_WORDS] = words.try_into().expect("the right length");
            // A text that was cut or had bytes that are no text is one after the first reading.
            let once = rule_of(&rule_words(rule_of(&words).as_ref()));
            prop_assert_eq!(rule_of(&rule_words(once.as_ref())), once);
        }
    }
}
