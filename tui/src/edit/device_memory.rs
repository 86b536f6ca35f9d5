//! What becomes of the memory on a device, as it is typed beside a lock policy: `evict-after=15m`.

use shm_layout::{Change, EvictAfter, Set};

use super::EditRequest;
use super::audit::Place;
use super::policy::uuid;
use super::quota::INHERIT;
use crate::sample::Sample;
use crate::text::exit::Failure;

/// What an edit changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEdit {
    /// After which idle time processes are evicted that have no setting of their own.
    pub evict_after: Set<EvictAfter>,
}

impl MemoryEdit {
    /// Takes its own words out of those of a policy.
    pub fn take(words: &mut Vec<String>) -> Result<Self, Failure> {
        let mut edit = Self::default();
        let mut rest = Vec::new();
        for word in words.drain(..).flat_map(|words| split(&words)) {
            let Some(text) = word.strip_prefix("evict-after=") else {
                rest.push(word);
                continue;
            };
            if !edit.evict_after.is_keep() {
                return Err(Failure::usage("evict-after= is given twice"));
            }
            edit.evict_after = match text {
                INHERIT => Set::Inherit,
                text => text
                    .parse()
                    .map(Set::To)
                    .map_err(|error| Failure::usage(format!("evict-after: {error}")))?,
            };
        }
        *words = rest;
        Ok(edit)
    }

    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        self.evict_after.is_keep()
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
        let request = |device, evict_after, target| {
            let change = Change::DeviceMemory {
                device,
                evict_after,
            };
            EditRequest::new(change, target, Place::Ctl).because(reason.map(ToOwned::to_owned))
        };
        if let Some(gpu) = device {
            let uuid = uuid(sample, gpu)?;
            return Ok(vec![request(
                Some(uuid),
                self.evict_after,
                format!("gpu{gpu}"),
            )]);
        }
        let mut requests = vec![request(None, self.evict_after, "all GPUs".to_owned())];
        let wanted = match self.evict_after {
            Set::To(after) => after.ns(),
            Set::Keep | Set::Inherit => None,
        };
        for (gpu, device) in sample.devices.iter().enumerate() {
            if device.evict_after.is_some() && device.evict_after != wanted {
                let uuid = uuid(sample, gpu)?;
                requests.push(request(Some(uuid), Set::Inherit, format!("gpu{gpu}")));
            }
        }
        Ok(requests)
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
        assert!(take(&["evict-after=soon"]).is_err());
        assert!(take(&["evict-after=1m", "evict-after=2m"]).is_err());
    }
}
