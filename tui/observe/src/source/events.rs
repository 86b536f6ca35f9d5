//! The event ring: each record is read once and resolved to its process and device.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shm_layout::{Event, EventReader, Segments};

use super::join;
use gpushare_sample::{EventLine, ProcessSample, ProcessView, Sample, SlotId};

/// Maximum number of events in one sample, however large the backlog.
const BURST: usize = shm_layout::EVENT_RING;

/// Reads the ring from its oldest record, and keeps the last known process of each slot.
#[derive(Debug)]
pub(super) struct Tail {
    reader: EventReader,
    lost: u64,
    names: FxHashMap<SlotId, (Option<u32>, Arc<str>)>,
}

impl Tail {
    pub(super) fn new(segments: &Segments) -> Self {
        Self {
            reader: EventReader::from_start(segments.state()),
            lost: 0,
            names: FxHashMap::default(),
        }
    }

    /// Returns the records since the last call. They are read before the snapshot, so no event is newer than the state.
    pub(super) fn take(&mut self, segments: &Segments) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..BURST {
            match self.reader.next(segments.state()) {
                Some(Ok(event)) => events.push(event),
                Some(Err(_)) => {}
                None => break,
            }
        }
        events
    }

    /// Puts events into the sample, whose devices and processes are complete by now.
    pub(super) fn resolve(&mut self, segments: &Segments, events: &[Event], sample: &mut Sample) {
        for process in &sample.processes {
            if let Some(slot) = process.slot() {
                let name = || (process.pid, process.name().into());
                self.names.entry(slot).or_insert_with(name);
            }
        }
        // A process that detached before it was ever seen still has its name in its slot.
        for event in events.iter().filter(|event| event.slot != u16::MAX) {
            let slot = SlotId {
                index: event.slot,
                epoch: event.epoch,
            };
            if let Entry::Vacant(unknown) = self.names.entry(slot)
                && let Some(identity) = shm_layout::last_identity(segments, slot)
            {
                let process = ProcessSample {
                    view: ProcessView {
                        identity,
                        ..ProcessView::default()
                    },
                    ..ProcessSample::default()
                };
                unknown.insert((None, process.name().into()));
            }
        }
        let places = join::Places::of(&sample.devices);
        sample.events = events
            .iter()
            .map(|event| self.line(event, &places))
            .collect();
        sample.events_lost = self.reader.lost() - self.lost;
        self.lost = self.reader.lost();
        if self.names.len() > 4 * shm_layout::MAX_PROCESSES {
            let alive = |slot: &SlotId| sample.process(*slot).is_some();
            self.names.retain(|slot, _| alive(slot));
        }
    }

    fn line(&self, event: &Event, places: &join::Places) -> EventLine {
        let slot = (event.slot != u16::MAX).then_some(SlotId {
            index: event.slot,
            epoch: event.epoch,
        });
        let known = slot.and_then(|slot| self.names.get(&slot));
        EventLine {
            seq: event.seq,
            time_ns: event.time_ns,
            slot,
            pid: known.and_then(|(pid, _)| *pid),
            name: known.map(|(_, name)| Arc::clone(name)).unwrap_or_default(),
            gpu: places.of_index(event.device),
            what: event.what(),
        }
    }
}
