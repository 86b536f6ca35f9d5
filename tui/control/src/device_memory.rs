//! What becomes of the memory on a device, as it is typed beside a lock policy: `evict-after=15m`, `overcommit=on`.

use shm_layout::{Change, EvictAfter, Set};

use super::EditRequest;
use super::audit::Place;
use super::policy::uuid;
use super::quota::INHERIT;
use gpushare_base::text::exit::Failure;
use gpushare_sample::Sample;

/// What an edit changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEdit {
    /// After which idle time processes are evicted that have no setting of their own.
    pub evict_after: Set<EvictAfter>,
    /// Whether whoever finds the device full may have idle processes evicted.
    pub overcommit: Set<bool>,
}

impl MemoryEdit {
    /// Takes its own words out of those of a policy.
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

    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        self.evict_after.is_keep() && self.overcommit.is_keep()
    }

    /// The same until a time: then the lasting settings below it are back.
    pub fn until(self, ns: u64) -> Self {
        Self {
            evict_after: self.evict_after.until(ns),
            overcommit: self.overcommit.until(ns),
        }
    }

    /// The edits for one device or, without one, for all: then a device's own setting gives way.
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
            // Where the one for all ends by itself, so does this, and the device's own is back.
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

/// Reads a value that may be given once.
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
