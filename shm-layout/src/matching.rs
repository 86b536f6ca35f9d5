//! What rules look at: by the registry where there is a broker, else by the process's own account.

use crate::{
    codec,
    layout::state::IDENTITY_WORDS,
    protocol::seqlock,
    segment::{Segments, identity::decode_vouched},
    text::cgroups,
    value::{Identity, SettingValues, SlotId, Traits},
};

/// A slot's, in this life of it; `None` where it cannot be read whole.
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

/// Of who a process is. Without a broker its container is read out of its cgroup.
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

/// What the rule that holds for a slot sets; `None` where it cannot be told now.
pub(crate) fn limits(segments: &Segments, of: &Traits) -> Option<SettingValues> {
    let rule = segments.control().rule_for(of).ok()?;
    Some(rule.map(|rule| rule.limits).unwrap_or_default())
}
