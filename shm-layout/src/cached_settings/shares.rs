//! Other slots' shares, for the choice of the next holder.

use crate::{
    cached_settings::resolve_share,
    layout::{
        codec::{DeviceSettings, GroupSettings},
        state::Slot,
    },
    protocol::primitive::Ordering,
    segment::{Segments, rule_match},
    value::{LAUNCH_WORDS, LaunchShare, SettingValues, Share, ShareSettings, SlotId},
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
    /// The launch's words that `share` was resolved from.
    launch: [u64; LAUNCH_WORDS],
    share: Share,
    /// Time until which `share` holds: the next temporary setting ends then.
    until_ns: u64,
}

impl Shares {
    /// Returns a slot's share. Resolved once for each generation, because a choice among many waiters asks for all of theirs.
    pub(crate) fn share_of(
        &mut self,
        segments: &Segments,
        id: SlotId,
        slot: &Slot,
        now_ns: u64,
    ) -> Share {
        let generation = segments.control().generation();
        // The process may write over these words at any time.
        let launch = slot.launch_words().map(|word| word.load(Ordering::Relaxed));
        let index = usize::from(id.index);
        if self.others.len() <= index {
            self.others.resize(index + 1, None);
        }
        let cached = &mut self.others[index];
        let known = cached.filter(|other| other.slot == id);
        let read = match known {
            Some(other) if other.generation == generation => other,
            _ => read(segments, id, known, generation),
        };
        if read.launch == launch && now_ns < read.until_ns {
            return read.share;
        }
        cached.insert(read.resolved(segments, launch, now_ns)).share
    }
}

/// Reads a slot's settings. A record that cannot be read completely leaves what is `known` of it in force.
fn read(segments: &Segments, id: SlotId, known: Option<Other>, generation: u64) -> Other {
    let control = segments.control();
    let name = segments.group_name_of(usize::from(id.index));
    let group = name.and_then(|name| control.group_settings(&name));
    let settings = control.slot_settings(id).map(|settings| settings.share);
    let rule = || rule_match::limits(segments, &rule_match::traits(segments, id)?);
    Other {
        generation,
        slot: id,
        settings: settings.or(known.map(|it| it.settings)).unwrap_or_default(),
        group: group.or(known.map(|it| it.group)).unwrap_or_default(),
        rule: rule().or(known.map(|it| it.rule)).unwrap_or_default(),
        launch: [0; LAUNCH_WORDS],
        share: Share::default(),
        until_ns: 0,
    }
}

impl Other {
    fn resolved(self, segments: &Segments, launch: [u64; LAUNCH_WORDS], now_ns: u64) -> Other {
        let share = resolve_share(
            &segments.bounded(LaunchShare::decode(&launch)),
            Some(&self.settings),
            Some(&self.group),
            &self.rule,
            // The lock has no use for the idle time.
            std::iter::empty(),
            &DeviceSettings::default(),
            now_ns,
        );
        let ends = self.settings.reverts(now_ns);
        let until_ns = ends.chain(self.group.set.reverts(now_ns)).min();
        Other {
            launch,
            share,
            until_ns: until_ns.unwrap_or(u64::MAX),
            ..self
        }
    }
}
