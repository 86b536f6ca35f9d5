//! Plans of edits: the record that a change writes, and the change that undoes it; and the check of its values before.

use gpushare_settings::table::MEMORY;

use super::{EditError, Operator};
use crate::{
    layout::{
        codec::{self, DeviceSettings, EVERY_DEVICE, GroupSettings, SlotSettings},
        control::SMALL_WORDS,
    },
    protocol::primitive::Ordering,
    segment::records::RecordId,
    text::{self, LONGEST_LABEL},
    value::{
        Change, DEVICES_PER_PROCESS, GroupEdit, LockPolicy, MAX_RULES, OneQuota, QuotaValue,
        RECORDS, Rule, Set, ShareEdit, SlotId, Timed, TraceOrder, Until, Uuid,
    },
};

/// The new words of one record.
pub(super) struct Plan {
    pub(super) record: RecordId,
    pub(super) words: Vec<u64>,
    pub(super) old: Change,
}

impl Operator {
    pub(super) fn plan(&self, change: &Change, now_ns: u64) -> Result<Plan, EditError> {
        match change {
            Change::ProcessQuota {
                slot,
                device,
                value,
                until,
            } => self.process_quota(*slot, *device, *value, *until, now_ns),
            Change::ProcessQuotas { slot, quotas } => self.process_quotas(*slot, quotas, now_ns),
            Change::ProcessShare { slot, share } => self.process_share(*slot, share, now_ns),
            Change::Policy {
                device,
                policy,
                until,
            } => self.policy(*device, *policy, *until, now_ns),
            Change::DeviceLimit { uuid, value } => self.device(Some(*uuid), |settings, _| {
                let old = std::mem::replace(&mut settings.limit, *value);
                Change::DeviceLimit {
                    uuid: *uuid,
                    value: old,
                }
            }),
            Change::DeviceMemory { device, settings } => {
                in_time(settings.is_late(now_ns))?;
                self.device(*device, |record, device| Change::DeviceMemory {
                    device,
                    settings: settings.apply(&mut record.memory, now_ns),
                })
            }
            Change::Group {
                name,
                settings,
                remove,
            } => self.group(name, settings, *remove, now_ns),
            Change::Rule { index, rule } => self.rule(*index, rule.as_ref()),
            Change::Trace { slot, on } => self.trace(*slot, *on, now_ns),
            Change::Label { .. } => Err(invalid(
                "label",
                "is given at the launch, with gpushare run --name; a broker may change it later, and none serves here",
            )),
        }
    }

    fn rule(&self, index: u8, rule: Option<&Rule>) -> Result<Plan, EditError> {
        let at = usize::from(index);
        if at >= MAX_RULES {
            return Err(EditError::TooMany);
        }
        let old = self.segments.control().rule(at).unwrap_or_default();
        Ok(Plan {
            record: RecordId::Rule(at),
            words: codec::rule_words(rule).to_vec(),
            old: Change::Rule { index, rule: old },
        })
    }

    /// Reads a living slot's settings, without temporary ones that have ended.
    fn slot(&self, id: SlotId, now_ns: u64) -> Result<SlotSettings, EditError> {
        if !self.segments.is_current(id) {
            return Err(EditError::NoSuchTarget);
        }
        let settings = self
            .segments
            .control()
            .slot_settings(id)
            .unwrap_or_default();
        Ok(SlotSettings {
            epoch: id.epoch,
            ..settings.settled(now_ns)
        })
    }

    fn process_quota(
        &self,
        id: SlotId,
        device: Option<u8>,
        value: QuotaValue,
        until: Option<Until<QuotaValue>>,
        now_ns: u64,
    ) -> Result<Plan, EditError> {
        let mut settings = self.slot(id, now_ns)?;
        let index = match device {
            None => EVERY_DEVICE,
            Some(entry) => self.known_entry(id, entry)?,
        };
        let set = quota_set(value, until);
        in_time(set.is_late(now_ns))?;
        let found = settings;
        set.apply(&mut settings.quotas[index], now_ns);
        if device.is_none() {
            // Values set for every device must not be hidden by those set for one device. Those are restored when this one
            // ends.
            let own = settings.quotas[..DEVICES_PER_PROCESS].iter_mut();
            for quota in own.filter(|quota| **quota != Timed::default()) {
                match until {
                    None => *quota = Timed::default(),
                    Some(_) => {
                        set.apply(quota, now_ns);
                    }
                }
            }
        }
        let words = settings.encode();
        let own = &found.quotas[..DEVICES_PER_PROCESS];
        let none_of_its_own = own.iter().all(|quota| *quota == Timed::default());
        let old = if device.is_some() || none_of_its_own {
            let (value, until) = quota_of(&found.quotas[index]);
            Change::ProcessQuota {
                slot: id,
                device,
                value,
                until,
            }
        } else {
            all_quotas(id, &found)
        };
        Ok(Plan {
            record: RecordId::Slot(usize::from(id.index)),
            words: words.to_vec(),
            old,
        })
    }

    /// Restores the quotas that an edit for every device replaced.
    fn process_quotas(
        &self,
        id: SlotId,
        quotas: &[OneQuota],
        now_ns: u64,
    ) -> Result<Plan, EditError> {
        let mut settings = self.slot(id, now_ns)?;
        let old = all_quotas(id, &settings);
        settings.quotas.fill(Timed::default());
        for one in quotas {
            let index = one.device.map_or(EVERY_DEVICE, usize::from);
            let place = settings.quotas.get_mut(index);
            let place = place.ok_or(EditError::NoSuchTarget)?;
            quota_set(one.value, one.until).apply(place, now_ns);
        }
        Ok(Plan {
            record: RecordId::Slot(usize::from(id.index)),
            words: settings.encode().to_vec(),
            old,
        })
    }

    fn known_entry(&self, id: SlotId, entry: u8) -> Result<usize, EditError> {
        let slot = &self.segments.state().slots[usize::from(id.index)];
        let words = slot
            .entries
            .get(usize::from(entry))
            .ok_or(EditError::NoSuchTarget)?;
        if words.device.load(Ordering::Relaxed) == 0 {
            return Err(EditError::NoSuchTarget);
        }
        Ok(usize::from(entry))
    }

    fn process_share(
        &self,
        slot: SlotId,
        edit: &ShareEdit,
        now_ns: u64,
    ) -> Result<Plan, EditError> {
        in_time(edit.is_late(now_ns))?;
        let mut settings = self.slot(slot, now_ns)?;
        if let Set::To(boost) = edit.boost
            && boost.until_ns <= now_ns
        {
            return Err(EditError::Invalid {
                field: "boost",
                why: "end time has passed".to_owned(),
            });
        }
        let old = edit.apply(&mut settings.share, now_ns).change(slot);
        Ok(Plan {
            record: RecordId::Slot(usize::from(slot.index)),
            words: settings.encode().to_vec(),
            old,
        })
    }

    fn trace(&self, id: SlotId, on: Option<u32>, now_ns: u64) -> Result<Plan, EditError> {
        let mut settings = self.slot(id, now_ns)?;
        // The generation this edit will have: no two orders of a slot have the same number.
        let number = self.segments.control().generation().wrapping_add(1) as u32;
        let order = TraceOrder {
            records: on.unwrap_or(0),
            number: number.max(1),
        };
        let before = settings.trace.replace(order);
        let old = Change::Trace {
            slot: id,
            on: before.and_then(TraceOrder::room),
        };
        Ok(Plan {
            record: RecordId::Slot(usize::from(id.index)),
            words: settings.encode().to_vec(),
            old,
        })
    }

    fn policy(
        &self,
        device: Option<Uuid>,
        value: Option<LockPolicy>,
        until: Option<Until<Option<LockPolicy>>>,
        now_ns: u64,
    ) -> Result<Plan, EditError> {
        let set = match until {
            Some(until) => Set::For(value, until),
            None => value.map_or(Set::Inherit, Set::To),
        };
        in_time(set.is_late(now_ns))?;
        self.device(device, |settings, device| {
            let before = settings.policy.settled(now_ns);
            set.apply(&mut settings.policy, now_ns);
            Change::Policy {
                device,
                policy: before.value,
                until: before.until(),
            }
        })
    }

    /// A device's settings, entered where there is room; the common ones without a device.
    fn device(
        &self,
        device: Option<Uuid>,
        change: impl FnOnce(&mut DeviceSettings, Option<Uuid>) -> Change,
    ) -> Result<Plan, EditError> {
        let control = self.segments.control();
        let (record, mut settings) = match device {
            None => (
                RecordId::Common,
                control.common_settings().unwrap_or_default(),
            ),
            Some(uuid) => {
                let known = (0..control.devices.len()).map(|index| {
                    let words = control.read::<SMALL_WORDS>(RecordId::Device(index));
                    (
                        RecordId::Device(index),
                        DeviceSettings::decode(&words.unwrap_or_default()),
                    )
                });
                let mut known =
                    known.filter(|(_, settings)| !settings.present || settings.uuid == uuid);
                known.next().ok_or(EditError::TooMany)?
            }
        };
        let old = change(&mut settings, device);
        let settings = DeviceSettings {
            present: true,
            uuid: device.unwrap_or_default(),
            ..settings
        };
        Ok(Plan {
            record,
            words: settings.encode().to_vec(),
            old,
        })
    }

    fn group(
        &self,
        name: &str,
        edit: &GroupEdit,
        remove: bool,
        now_ns: u64,
    ) -> Result<Plan, EditError> {
        in_time(edit.is_late(now_ns))?;
        let control = self.segments.control();
        let words = codec::name_words(name).ok_or(EditError::NoSuchTarget)?;
        let read = |index| {
            let words = control.read::<SMALL_WORDS>(RecordId::Group(index));
            GroupSettings::decode(&words.unwrap_or_default())
        };
        let find = |pass: &dyn Fn(&GroupSettings) -> bool| {
            (0..control.groups.len()).find(|index| pass(&read(*index)))
        };
        let known = find(&|group| group.present && group.name == words);
        if remove && known.is_none() {
            return Err(EditError::NoSuchTarget);
        }
        let index = known
            .or_else(|| find(&|group| !group.present))
            .ok_or(EditError::TooMany)?;
        let before = known.map(read);
        let mut settings = before.unwrap_or_default();
        (settings.name, settings.present) = (words, !remove);
        let mut old = edit.apply(&mut settings.set, now_ns);
        if let (true, Some(before)) = (remove, before) {
            old = before.set.settled(now_ns).set();
            settings = GroupSettings::default();
        }
        let old = Change::Group {
            name: name.to_owned(),
            settings: old,
            remove: before.is_none(),
        };
        Ok(Plan {
            record: RecordId::Group(index),
            words: settings.encode().to_vec(),
            old,
        })
    }
}

/// Refuses an edit that would end before it begins.
fn in_time(is_late: bool) -> Result<(), EditError> {
    match is_late {
        true => Err(invalid("until", "end time has passed")),
        false => Ok(()),
    }
}

/// Every quota that is set.
fn all_quotas(slot: SlotId, settings: &SlotSettings) -> Change {
    let set = settings.quotas.iter().enumerate();
    let quotas = set
        .filter(|(_, quota)| **quota != Timed::default())
        .map(|(index, quota)| {
            let (value, until) = quota_of(quota);
            OneQuota {
                device: u8::try_from(index).ok().filter(|_| index != EVERY_DEVICE),
                value,
                until,
            }
        });
    Change::ProcessQuotas {
        slot,
        quotas: quotas.collect(),
    }
}

/// Returns the edit of a quota, for which `inherit` is no value.
fn quota_set(value: QuotaValue, until: Option<Until<QuotaValue>>) -> Set<QuotaValue> {
    let set = |value| Some(value).filter(|value| *value != QuotaValue::Inherit);
    match until {
        None => set(value).map_or(Set::Inherit, Set::To),
        Some(Until { ns, then }) => {
            let then = then.map(set);
            Set::For(set(value), Until { ns, then })
        }
    }
}

/// Returns a quota and its end, for an edit that restores it.
fn quota_of(quota: &Timed<QuotaValue>) -> (QuotaValue, Option<Until<QuotaValue>>) {
    let until = quota.until().map(|Until { ns, then }| Until {
        ns,
        then: then.map(Option::unwrap_or_default),
    });
    (quota.value.unwrap_or_default(), until)
}

fn invalid(field: &'static str, why: impl Into<String>) -> EditError {
    EditError::Invalid {
        field,
        why: why.into(),
    }
}

/// Checks the ranges of a change.
pub(super) fn ranges(change: &Change) -> Result<(), EditError> {
    match change {
        Change::ProcessQuota { value, .. } => quota(value),
        Change::ProcessQuotas { quotas, .. } => quotas.iter().try_for_each(|one| quota(&one.value)),
        Change::ProcessShare { share, .. } => setting(share.check()),
        Change::Policy {
            policy: Some(policy),
            ..
        } => policy.check().map_err(|(field, why)| invalid(field, why)),
        Change::Policy { policy: None, .. } => Ok(()),
        Change::DeviceLimit { value, .. } => quota(value),
        Change::DeviceMemory { settings, .. } => setting(settings.check()),
        Change::Group { name, settings, .. } => {
            if codec::name_words(name).is_none() {
                return Err(invalid(
                    "group",
                    "must have a name of 1 to 31 bytes without control characters",
                ));
            }
            setting(settings.check())
        }
        Change::Trace {
            on: Some(records), ..
        } if !RECORDS.contains(records) => Err(invalid(
            "records",
            format!(
                "must be between {} and {}, not {records}",
                RECORDS.start(),
                RECORDS.end()
            ),
        )),
        Change::Trace { .. } => Ok(()),
        Change::Label { label, .. } => {
            if label.len() > LONGEST_LABEL {
                return Err(invalid(
                    "label",
                    format!("must have {LONGEST_LABEL} bytes at most"),
                ));
            }
            text::visible(label).map_err(|error| invalid("label", error.to_string()))
        }
        Change::Rule {
            rule: Some(rule), ..
        } => of_rule(rule),
        Change::Rule { rule: None, .. } => Ok(()),
    }
}

fn of_rule(rule: &Rule) -> Result<(), EditError> {
    let texts = [
        ("rule", Some(&rule.name)),
        ("group", rule.group.as_ref()),
        ("executable", rule.executable.as_ref()),
        ("container", rule.container.as_ref()),
        ("label", rule.label.as_ref()),
    ];
    for ((field, text), most) in texts.into_iter().zip(codec::RULE_TEXTS) {
        let Some(text) = text else { continue };
        if text.len() > most || field == "rule" && text.is_empty() {
            return Err(invalid(field, format!("must have 1 to {most} bytes")));
        }
        text::visible(text).map_err(|error| invalid(field, format!("cannot be: {error}")))?;
    }
    setting(rule.limits.check())
}

/// The answer of the table of settings.
fn setting(checked: Result<(), (&'static str, String)>) -> Result<(), EditError> {
    checked.map_err(|(word, why)| invalid(word, why))
}

fn quota(value: &QuotaValue) -> Result<(), EditError> {
    let checked = MEMORY.check([*value]);
    checked.map_err(|(_, why)| invalid("quota", why))
}
