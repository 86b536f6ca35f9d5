//! The processes of each device, in the order of their letters.

use gpushare_sample::{Holding, ProcessSample, Sample, Who};

use super::row_labels::RowLabels;

/// For each device, the positions of its processes and of their holdings in a sample. A frame reads them many times.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Vec<Vec<(usize, usize)>>);

impl Places {
    /// Finds the processes that use a device, as [`Sample::holdings`] does, without those that only could use it.
    pub(super) fn of(sample: &Sample, labels: &RowLabels) -> Self {
        let mut processes: Vec<_> = sample.processes.iter().enumerate().collect();
        processes.sort_by_cached_key(|(_, process)| {
            let who = Who::of(process);
            (labels.hue(who), who)
        });
        let mut places = vec![Vec::new(); sample.devices.len()];
        for (at, process) in processes {
            for (place, holding) in process.used() {
                if let Some(list) = places.get_mut(holding.gpu) {
                    list.push((at, place));
                }
            }
        }
        Self(places)
    }

    /// Returns the number of processes of all devices; one that uses several counts once for each.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Returns the processes and holdings of a device of the sample.
    pub(super) fn at<'a>(
        &'a self,
        sample: &'a Sample,
        gpu: usize,
    ) -> impl Iterator<Item = (&'a ProcessSample, &'a Holding)> + Clone {
        let places = self.0.get(gpu).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|(process, holding)| {
            let process = sample.processes.get(*process)?;
            Some((process, process.devices.get(*holding)?))
        })
    }
}
