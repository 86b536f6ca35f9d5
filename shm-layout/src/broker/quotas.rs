//! Administrators' limits on a process's memory, from settings and rules that no tenant can write.

use super::{Broker, clock};
use crate::{
    layout::codec::EVERY_DEVICE,
    segment::rule_match,
    value::{DEVICES_PER_PROCESS, QuotaValue, SlotId, Timed},
};

impl Broker {
    /// Returns the quotas that settings and rules give a process on one device or on each, now and after temporary settings
    /// end. `None` where they cannot be read.
    pub fn quotas_left(&self, slot: SlotId, device: Option<u8>) -> Option<Vec<QuotaValue>> {
        let (segments, now) = (&self.segments, clock::now());
        let settings = segments.control().slot_settings(slot).unwrap_or_default();
        let rule = rule_match::limits(segments, &rule_match::traits(segments, slot)?)?;
        let of_rule = [rule.memory.unwrap_or_default()];
        let said = |setting: &Timed<QuotaValue>| {
            [setting.at(now), setting.lasting()].map(Option::unwrap_or_default)
        };
        let for_all = said(&settings.quotas[EVERY_DEVICE]);
        let mut left = Vec::new();
        for entry in 0..DEVICES_PER_PROCESS {
            if device.is_some_and(|device| usize::from(device) != entry) {
                continue;
            }
            let own = said(&settings.quotas[entry]);
            // Each says something, or leaves it to the next.
            for level in [&own[..], &for_all, &of_rule] {
                left.extend_from_slice(level);
                if !level.contains(&QuotaValue::Inherit) {
                    break;
                }
            }
        }
        left.retain(|value| *value != QuotaValue::Inherit);
        left.dedup();
        Some(left)
    }
}
