//! Settings for a device's memory, as they are typed beside a lock policy: `evict-after=15m`, `overcommit=on`.

use std::collections::BTreeMap;

use shm_layout::{Change, DeviceEdit, EvictAfter, LockPolicy, Set, Uuid};

use super::audit::Place;
use super::policy;
use super::share;
use super::targets::{device_title, uuid};
use super::{EditRequest, Editor};
use gpushare_base::text::exit::Failure;
use gpushare_sample::Sample;

/// Removes the memory settings from the words of a policy and reads them.
pub fn take(words: &mut Vec<String>) -> Result<DeviceEdit, Failure> {
    let mut edit = DeviceEdit::default();
    let split = |words: String| {
        let words = words.split_whitespace().map(ToOwned::to_owned);
        words.collect::<Vec<_>>()
    };
    let is_ours = |word: &String| {
        let key = word.split_once('=').map(|(key, _)| key);
        share::words::<DeviceEdit>().any(|word| Some(word) == key)
    };
    let (ours, rest) = words
        .drain(..)
        .flat_map(split)
        .partition::<Vec<_>, _>(is_ours);
    *words = rest;
    for word in ours {
        share::read(&mut edit, &word)?;
    }
    Ok(edit)
}

/// Reads the settings of a device as one text: those of its memory, and a policy on top of the default where one is named.
pub fn with_policy(text: &str) -> Result<(DeviceEdit, Option<LockPolicy>), Failure> {
    let mut words = vec![text.to_owned()];
    let memory = take(&mut words)?;
    let edit = if words.is_empty() {
        None
    } else {
        policy::parse(&words)?
    };
    let policy = edit.map(|edit| policy::applied(&edit, LockPolicy::default()));
    Ok((memory, policy.transpose()?))
}

/// Returns the edits for one device, or for all. An edit for all also unsets the settings that devices have of their own and that
/// differ, except those in `own`, which the devices get at the same time.
pub fn requests(
    all: DeviceEdit,
    device: Option<Uuid>,
    own: &BTreeMap<Uuid, DeviceEdit>,
    sample: &Sample,
    editor: &Editor,
    reason: Option<&str>,
) -> Result<Vec<EditRequest>, Failure> {
    if all.is_none() {
        return Ok(Vec::new());
    }
    let request = |device, settings, target| {
        let change = Change::DeviceMemory { device, settings };
        EditRequest::new(change, target, Place::Ctl).because(reason.map(ToOwned::to_owned))
    };
    if let Some(uuid) = device {
        return Ok(vec![request(device, all, device_title(uuid, sample))]);
    }
    let ends_ns = all.ends().into_iter().flatten().next();
    let mut requests = vec![request(None, all, "all GPUs".to_owned())];
    let wanted = all.evict_after.value().and_then(EvictAfter::ns);
    for (gpu, device) in sample.devices.iter().enumerate() {
        let uuid = uuid(sample, gpu)?;
        let gets = own.get(&uuid).copied().unwrap_or_default();
        let mut unset = DeviceEdit::default();
        if !all.evict_after.is_keep()
            && gets.evict_after.is_keep()
            && device.evict_after.is_some()
            && device.evict_after != wanted
        {
            unset.evict_after = Set::Inherit;
        }
        if !all.overcommit.is_keep()
            && gets.overcommit.is_keep()
            && Some(device.overcommit) != all.overcommit.value()
        {
            unset.overcommit = Set::Inherit;
        }
        // If the edit for all expires, the device's own setting is restored at the same time.
        if let Some(ns) = ends_ns {
            unset = unset.timed(ns);
        }
        let request = request(Some(uuid), unset, format!("gpu{gpu}"));
        if !unset.is_none() && unsets(&request, editor) {
            requests.push(request);
        }
    }
    Ok(requests)
}

/// Returns true if an edit that unsets settings of a device finds one. What cannot be read is unset.
fn unsets(request: &EditRequest, editor: &Editor) -> bool {
    let is_own = |old| match old {
        Change::DeviceMemory { settings, .. } => {
            !matches!(settings.evict_after, Set::Keep | Set::Inherit)
                || !matches!(settings.overcommit, Set::Keep | Set::Inherit)
        }
        _ => true,
    };
    editor
        .preview(&request.change, &request.target)
        .map_or(true, is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_are_taken_from_those_of_a_policy() {
        let take = |words: &[&str]| {
            let mut words = words.iter().map(|word| (*word).to_owned()).collect();
            super::take(&mut words).map(|edit| (edit.evict_after, words))
        };
        let (after, rest) = take(&["timeslice=5ms evict-after=15m", "order=fair"]).expect("right");
        assert_eq!(after, Set::To(EvictAfter::Idle(900_000_000_000)));
        assert_eq!(rest, ["timeslice=5ms", "order=fair"]);
        let (after, rest) = take(&["evict-after=inherit"]).expect("right");
        assert_eq!((after, rest.len()), (Set::Inherit, 0));
        let mut words = vec!["overcommit=on evict-after=1m".to_owned()];
        let edit = super::take(&mut words).expect("right");
        assert_eq!(edit.overcommit, Set::To(true));
        assert!(words.is_empty() && !edit.is_none());
        for wrong in ["overcommit=yes", "overcommit=on overcommit=off"] {
            assert!(take(&[wrong]).is_err(), "{wrong}");
        }
        assert!(take(&["evict-after=soon"]).is_err());
        assert!(take(&["evict-after=1m", "evict-after=2m"]).is_err());
    }

    #[test]
    fn one_text_has_a_policy_or_memory_settings_or_both() {
        let (memory, policy) = with_policy("timeslice=5ms overcommit=on").expect("right");
        assert_eq!(memory.overcommit, Set::To(true));
        assert!(policy.is_some_and(|policy| policy != LockPolicy::default()));
        let (memory, policy) = with_policy("evict-after=1m").expect("right");
        assert!(!memory.is_none() && policy.is_none());
        let (memory, policy) = with_policy("off").expect("right");
        assert!(memory.is_none() && policy.is_some());
        for wrong in ["overcommit=yes", "overcommit=on slice=1"] {
            assert!(with_policy(wrong).is_err(), "{wrong}");
        }
    }
}
