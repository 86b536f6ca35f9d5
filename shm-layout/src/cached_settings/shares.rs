//! Other slots' shares, for the choice of the next holder.

use crate::{
    cached_settings::resolve_share,
    layout::{
        codec::{DeviceSettings, GroupSettings},
        state::Slot,
    },
    segment::{Segments, rule_match},
    value::{SettingValues, Share, ShareSettings, SlotId},
};

/// The cached shares of other slots, for the choice of the next holder.
#[derive(Default)]
pub(crate) struct Shares {
    others: Vec<Option<Other>>,
}

#[derive(Clone, Copy)]
struct Other {
    generation: u64,
    slot: SlotId,
    settings: ShareSettings,
    group: GroupSettings,
    rule: SettingValues,
}

impl Shares {
    /// A slot's share.
    pub(crate) fn share_of(
        &mut self,
        segments: &Segments,
        id: SlotId,
        slot: &Slot,
        now_ns: u64,
    ) -> Share {
        let control = segments.control();
        let generation = control.generation();
        let index = usize::from(id.index);
        if self.others.len() <= index {
            self.others.resize(index + 1, None);
        }
        let own_slot = &mut self.others[index];
        if !matches!(own_slot, Some(other) if other.slot == id && other.generation == generation) {
            let name = segments.group_name_of(index);
            let group = name.and_then(|name| control.group_settings(&name));
            let before = own_slot.take().filter(|other| other.slot == id);
            let (settings, known_group, known_rule) = before
                .map(|other| (other.settings, other.group, other.rule))
                .unwrap_or_default();
            let rule = || rule_match::limits(segments, &rule_match::traits(segments, id)?);
            *own_slot = Some(Other {
                generation,
                slot: id,
                settings: control
                    .slot_settings(id)
                    .map_or(settings, |settings| settings.share),
                group: group.unwrap_or(known_group),
                rule: rule().unwrap_or(known_rule),
            });
        }
        let launch = segments.launch_of(slot);
        let none = SettingValues::default();
        let (control, group, rule) = match own_slot {
            Some(other) => (Some(&other.settings), Some(&other.group), &other.rule),
            None => (None, None, &none),
        };
        // The lock has no use for the idle time.
        let (devices, common) = (std::iter::empty(), DeviceSettings::default());
        resolve_share(&launch, control, group, rule, devices, &common, now_ns)
    }
}
