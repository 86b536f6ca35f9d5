//! The traits that rules match: from the registry where there is a broker, else as the process reports them.

use crate::{
    layout::{codec, state::IDENTITY_WORDS},
    protocol::seqlock,
    segment::{Segments, identity::decode_vouched},
    text::cgroups,
    value::{Identity, SettingValues, SlotId, Traits},
};

/// Returns the traits of a slot's process in this life of the slot; `None` where they cannot be read completely.
pub(crate) fn traits(segments: &Segments, id: SlotId) -> Option<Traits> {
    let index = usize::from(id.index);
    let slot = segments.state().slots.get(index)?;
    let group = segments
        .group_name_of(index)
        .map(|name| codec::text_of(&name));
    let Some(registry) = segments.registry() else {
        let mut words = [0; IDENTITY_WORDS];
        seqlock::read(&slot.identity_seq, &slot.identity, &mut words)?;
        return Some(of(&Identity::decode(&words), None, group));
    };
    let entry = registry.entry(index).filter(|_| registry.is_current(id))?;
    let (identity, vouched) = decode_vouched(&entry.read()?);
    Some(of(&identity, Some(vouched.container), group))
}

/// Derives the traits from an identity. Without a broker the container is read out of the cgroup.
pub(crate) fn of(identity: &Identity, vouched: Option<String>, group: Option<String>) -> Traits {
    let own = || cgroups::container(&identity.cgroup).unwrap_or_default();
    Traits {
        uid: identity.uid,
        group,
        executable: identity.exe.clone(),
        container: vouched.unwrap_or_else(own),
        label: identity.label.clone(),
    }
}

/// Returns the values of the rule that matches; `None` where the rules cannot be read now.
pub(crate) fn limits(segments: &Segments, of: &Traits) -> Option<SettingValues> {
    let rule = segments.control().rule_for(of).ok()?;
    Some(rule.map(|rule| rule.limits).unwrap_or_default())
}
