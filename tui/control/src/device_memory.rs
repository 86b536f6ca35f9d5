//! Settings for a device's memory, as they are typed beside a lock policy: `evict-after=15m`, `overcommit=on`.

use shm_layout::{Change, EvictAfter, Set};

use super::EditRequest;
use super::audit::Place;
use super::policy::uuid;
use super::quota::INHERIT;
use gpushare_base::text::exit::Failure;
use gpushare_sample::Sample;

/// An edit of a device's memory settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEdit {
    /// Idle time after which processes without a setting of their own are evicted.
    pub evict_after: Set<EvictAfter>,
    /// True if a process that finds the device full may have idle processes evicted.
    pub overcommit: Set<bool>,
}

impl MemoryEdit {
    /// Removes the memory settings from the words of a policy and reads them.
    pub fn take(words: &mut Vec<String>) -> Result<Self, Failure> {
        let mut edit = Self::default();
        let mut rest = Vec::new();
        for word in words.drain(..).flat_map(|words| split(&words)) {
            match word.split_once('=') {
                Some((key @ "evict-after", text)) => {
                    once(key, &mut edit.evict_after, text, |text| {
                        text.parse()
                            .map_err(|error| Failure::usage(format!("{key}: {error}")))
                    })?;
                }
                Some((key @ "overcommit", text)) => once(key, &mut edit.overcommit, text, switch)?,
                _ => rest.push(word),
            }
        }
        *words = rest;
        Ok(edit)
    }

    /// Returns true if it changes nothing.
    pub fn is_none(&self) -> bool {
        self.evict_after.is_keep() && self.overcommit.is_keep()
    }

    /// Limits the edit to a time. Afterwards the permanent settings are back.
    pub fn until(self, ns: u64) -> Self {
        Self {
            evict_after: self.evict_after.until(ns),
            overcommit: self.overcommit.until(ns),
        }
    }

    /// Returns the edits for one device, or for all. An edit for all also unsets the devices' own settings that differ.
    pub fn requests(
        self,
        device: Option<usize>,
        sample: &Sample,
        reason: Option<&str>,
    ) -> Result<Vec<EditRequest>, Failure> {
        if self.is_none() {
            return Ok(Vec::new());
        }
        let request = |device, edit: Self, target| {
            let change = Change::DeviceMemory {
                device,
                evict_after: edit.evict_after,
                overcommit: edit.overcommit,
            };
            EditRequest::new(change, target, Place::Ctl).because(reason.map(ToOwned::to_owned))
        };
        if let Some(gpu) = device {
            let uuid = uuid(sample, gpu)?;
            return Ok(vec![request(Some(uuid), self, format!("gpu{gpu}"))]);
        }
        let ends_ns = self.evict_after.ends_ns().or(self.overcommit.ends_ns());
        let mut requests = vec![request(None, self, "all GPUs".to_owned())];
        let wanted = self.evict_after.value().and_then(EvictAfter::ns);
        for (gpu, device) in sample.devices.iter().enumerate() {
            let mut own = Self::default();
            if !self.evict_after.is_keep()
                && device.evict_after.is_some()
                && device.evict_after != wanted
            {
                own.evict_after = Set::Inherit;
            }
            if !self.overcommit.is_keep() && Some(device.overcommit) != self.overcommit.value() {
                own.overcommit = Set::Inherit;
            }
            // If the edit for all expires, the device's own setting is restored at the same time.
            if let Some(ns) = ends_ns {
                own = own.until(ns);
            }
            if !own.is_none() {
                let uuid = uuid(sample, gpu)?;
                requests.push(request(Some(uuid), own, format!("gpu{gpu}")));
            }
        }
        Ok(requests)
    }
}

/// Reads a value, and refuses a second one for the same key.
fn once<T>(
    key: &str,
    set: &mut Set<T>,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, Failure>,
) -> Result<(), Failure> {
    if !set.is_keep() {
        return Err(Failure::usage(format!("{key}= is given twice")));
    }
    *set = match text {
        INHERIT => Set::Inherit,
        text => Set::To(read(text)?),
    };
    Ok(())
}

fn switch(text: &str) -> Result<bool, Failure> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Failure::usage(format!(
            "overcommit: {text:?} is not known; expected on, off or inherit"
        ))),
    }
}

fn split(words: &str) -> Vec<String> {
    words.split_whitespace().map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_are_taken_from_those_of_a_policy() {
        let take = |words: &[&str]| {
            let mut words = words.iter().map(|word| (*word).to_owned()).collect();
            MemoryEdit::take(&mut words).map(|edit| (edit.evict_after, words))
        };
        let (after, rest) = take(&["timeslice=5ms evict-after=15m", "order=fair"]).expect("right");
        assert_eq!(after, Set::To(EvictAfter::Idle(900_000_000_000)));
        assert_eq!(rest, ["timeslice=5ms", "order=fair"]);
        let (after, rest) = take(&["evict-after=inherit"]).expect("right");
        assert_eq!((after, rest.len()), (Set::Inherit, 0));
        let mut words = vec!["overcommit=on evict-after=1m".to_owned()];
        let edit = MemoryEdit::take(&mut words).expect("right");
        assert_eq!(edit.overcommit, Set::To(true));
        assert!(words.is_empty() && !edit.is_none());
        for wrong in ["overcommit=yes", "overcommit=on overcommit=off"] {
            assert!(take(&[wrong]).is_err(), "{wrong}");
        }
        assert!(take(&["evict-after=soon"]).is_err());
        assert!(take(&["evict-after=1m", "evict-after=2m"]).is_err());
    }
}
