//! Reading the control records: whole, or as they were before an edit that died.

use crate::{
    layout::{
        codec::{self, DeviceSettings, GroupSettings, NameWords, SlotSettings},
        control::{Control, PROCESS_WORDS, RULE_WORDS, SMALL_WORDS},
    },
    protocol::{
        primitive::{AtomicU64, Ordering, fence},
        seqlock,
    },
    value::{Rule, SettingValues, SlotId, Traits, Uuid},
};

/// The name of a settings record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordId {
    Common,
    Device(usize),
    Group(usize),
    Slot(usize),
    Rule(usize),
}

impl RecordId {
    /// Encodes the name as the journal's word, which is never zero.
    pub(crate) fn to_word(self) -> u64 {
        match self {
            RecordId::Common => 1 << 32,
            RecordId::Device(index) => 2 << 32 | index as u64,
            RecordId::Group(index) => 3 << 32 | index as u64,
            RecordId::Slot(index) => 4 << 32 | index as u64,
            RecordId::Rule(index) => 5 << 32 | index as u64,
        }
    }

    pub(crate) fn from_word(word: u64) -> Option<RecordId> {
        let index = (word & 0xffff_ffff) as usize;
        match word >> 32 {
            1 => Some(RecordId::Common),
            2 => Some(RecordId::Device(index)),
            3 => Some(RecordId::Group(index)),
            4 => Some(RecordId::Slot(index)),
            5 => Some(RecordId::Rule(index)),
            _ => None,
        }
    }
}

/// A record that is in no state to be read: an edit is stuck.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread;

impl Control {
    /// A record's sequence and words; `None` for an index out of range.
    pub(crate) fn record(&self, id: RecordId) -> Option<(&AtomicU64, &[AtomicU64])> {
        Some(match id {
            RecordId::Common => (&self.common.seq, &self.common.words[..]),
            RecordId::Device(index) => self
                .devices
                .get(index)
                .map(|record| (&record.seq, &record.words[..]))?,
            RecordId::Group(index) => self
                .groups
                .get(index)
                .map(|record| (&record.seq, &record.words[..]))?,
            RecordId::Slot(index) => self
                .slots
                .get(index)
                .map(|record| (&record.seq, &record.words[..]))?,
            RecordId::Rule(index) => self
                .rules
                .get(index)
                .map(|record| (&record.seq, &record.words[..]))?,
        })
    }

    /// Returns true if a record was ever written. Most were not, and those are not copied.
    pub(crate) fn is_written(&self, id: RecordId) -> bool {
        let record = self.record(id);
        record.is_some_and(|(seq, _)| seq.load(Ordering::Relaxed) != 0)
    }

    /// A record's words: as they are, or as the journal has them if an operator died in the middle; `None` if
    /// neither could be read whole.
    pub(crate) fn read<const N: usize>(&self, id: RecordId) -> Option<[u64; N]> {
        let (seq, words) = self.record(id)?;
        let mut values = [0; N];
        if seqlock::read(seq, words, &mut values).is_some() {
            return Some(values);
        }
        // ORDER: pairs with the Release in edit that publishes the journal's words.
        let before = (
            self.journal.record.load(Ordering::Acquire),
            self.journal.generation.load(Ordering::Relaxed),
        );
        if before.0 != id.to_word() {
            return None;
        }
        for (value, word) in values.iter_mut().zip(&self.journal.words) {
            *value = word.load(Ordering::Relaxed);
        }
        // ORDER: pairs with the Release fence in edit; newer words make the look below differ.
        fence(Ordering::Acquire);
        let after = (
            self.journal.record.load(Ordering::Relaxed),
            self.journal.generation.load(Ordering::Relaxed),
        );
        (before == after).then_some(values)
    }

    /// The newest edit.
    pub fn generation(&self) -> u64 {
        // ORDER: pairs with the Release in edit; the records of that generation are visible.
        self.generation.load(Ordering::Acquire)
    }

    /// The word itself, for frequent reads.
    pub(crate) fn generation_word(&self) -> &AtomicU64 {
        &self.generation
    }

    /// Returns the operator's settings for one life of a slot.
    pub(crate) fn slot_settings(&self, slot: SlotId) -> Option<SlotSettings> {
        let id = RecordId::Slot(usize::from(slot.index));
        if !self.is_written(id) {
            return Some(SlotSettings::default());
        }
        let words = self.read::<PROCESS_WORDS>(id)?;
        let settings = SlotSettings::decode(&words);
        Some(if settings.epoch == slot.epoch {
            settings
        } else {
            SlotSettings::default()
        })
    }

    /// Returns the operator's settings for all devices.
    pub(crate) fn common_settings(&self) -> Option<DeviceSettings> {
        self.read::<SMALL_WORDS>(RecordId::Common)
            .map(|words| DeviceSettings::decode(&words))
    }

    /// Returns the operator's settings for a device; the default if there are none.
    pub(crate) fn device_settings(&self, uuid: &Uuid) -> Option<DeviceSettings> {
        for index in 0..self.devices.len() {
            let settings =
                DeviceSettings::decode(&self.read::<SMALL_WORDS>(RecordId::Device(index))?);
            if settings.present && settings.uuid == *uuid {
                return Some(settings);
            }
            if !settings.present {
                break;
            }
        }
        Some(DeviceSettings::default())
    }

    /// The rule at a place; an error where it cannot be read whole.
    pub(crate) fn rule(&self, index: usize) -> Result<Option<Rule>, Unread> {
        let words = self.read::<RULE_WORDS>(RecordId::Rule(index));
        Ok(codec::rule_of(&words.ok_or(Unread)?))
    }

    /// Returns true if any rule was ever set.
    pub(crate) fn has_rules(&self) -> bool {
        self.written_rules().next().is_some()
    }

    /// The places of rules that were ever written.
    fn written_rules(&self) -> impl Iterator<Item = usize> {
        (0..self.rules.len()).filter(|index| self.is_written(RecordId::Rule(*index)))
    }

    /// Lists the groups that the operator defined; an error for a record that cannot be read completely.
    pub(crate) fn defined_groups(&self) -> impl Iterator<Item = Result<GroupSettings, Unread>> {
        let ids = (0..self.groups.len()).map(RecordId::Group);
        let written = ids.filter(|id| self.is_written(*id));
        let settings = written.map(|id| self.read::<SMALL_WORDS>(id).ok_or(Unread));
        settings
            .map(|words| Ok(GroupSettings::decode(&words?)))
            .filter(|settings| settings.as_ref().map_or(true, |settings| settings.present))
    }

    /// The first rule that matches. Where one before it cannot be read, that one might match: an error.
    pub(crate) fn rule_for(&self, of: &Traits) -> Result<Option<Rule>, Unread> {
        for index in self.written_rules() {
            if let Some(rule) = self.rule(index)?.filter(|rule| rule.matches(of)) {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }

    /// Returns the values of the rule that matches; `None` where the rules cannot be read now.
    pub(crate) fn rule_limits(&self, of: &Traits) -> Option<SettingValues> {
        let rule = self.rule_for(of).ok()?;
        Some(rule.map(|rule| rule.limits).unwrap_or_default())
    }

    /// Returns true if a rule or an edit may give a process a reserve.
    pub(crate) fn has_reserves(&self) -> bool {
        let by_rule = self.written_rules().any(|index| {
            let rule = self.rule(index).unwrap_or_default();
            rule.is_some_and(|rule| rule.limits.reserve.is_some())
        });
        let slots = (0..self.slots.len()).map(RecordId::Slot);
        let mut written = slots.filter(|id| self.is_written(*id));
        by_rule
            || written.any(|id| {
                let words = self.read::<PROCESS_WORDS>(id);
                words.is_none_or(|words| {
                    let reserve = SlotSettings::decode(&words).share.reserve;
                    reserve.value.or(reserve.then).is_some()
                })
            })
    }

    /// Returns the operator's settings for a group; the default (not present) if there are none.
    pub(crate) fn group_settings(&self, name: &NameWords) -> Option<GroupSettings> {
        for settings in self.defined_groups() {
            let settings = settings.ok()?;
            if settings.name == *name {
                return Some(settings);
            }
        }
        Some(GroupSettings::default())
    }
}
