//! Other slots' shares, for the choice of the next holder.

use crate::{
    cached_settings::resolve_share,
    codec::{GroupSettings, LaunchShare, ShareSettings},
    layout::state::Slot,
    matching,
    segment::Segments,
    value::{RuleLimits, Share, SlotId},
};

/// What is known of other slots' shares, for the choice of the next holder.
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
    rule: RuleLimits,
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
            let rule = || matching::limits(segments, &matching::traits(segments, id)?);
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
        let launch = LaunchShare::of_slot(segments, slot);
        match own_slot {
            Some(other) => resolve_share(
                &launch,
                Some(&other.settings),
                Some(&other.group),
                &other.rule,
                now_ns,
            ),
            None => resolve_share(&launch, None, None, &RuleLimits::default(), now_ns),
        }
    }
}
