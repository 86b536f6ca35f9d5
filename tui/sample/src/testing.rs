//! Helpers for tests of several crates.

use shm_layout::trace::TraceState;
use shm_layout::{Loss, MemoryWait};

use crate::keys::{Keys, of};
use crate::{Holding, ProcessSample, Reason, Sample, SlotId};

/// Keys whose values have keys of their own: reasons in the first, fields of the kind of edit in the others.
const OPEN: [&str; 3] = ["ended_by", "change", "restore"];

/// Checks that every key of a written document is explained.
pub fn explains<T: Keys + serde::Serialize>(document: &T) {
    let value = serde_json::to_value(document).expect("plain data");
    let mut written = Vec::new();
    paths(&value, "", &mut written);
    let keys = of::<T>();
    let mut explained: Vec<&str> = keys.iter().map(|key| key.path.as_str()).collect();
    written.sort();
    written.dedup();
    explained.sort_unstable();
    assert_eq!(written, explained);
    assert!(keys.iter().all(|key| key.meaning.ends_with('.')));
}

fn paths(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) if !OPEN.iter().any(|open| path.ends_with(open)) => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{key}");
                found.push(path.clone());
                paths(value, &path, found);
            }
        }
        serde_json::Value::Array(list) => {
            for value in list {
                paths(value, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

/// Returns a sample with a process for which every value is known.
pub fn whole() -> Sample {
    let slot = SlotId { index: 0, epoch: 1 };
    let mut holding = Holding::default();
    holding.view.lock.releases[Reason::Sync as usize] = 1;
    holding.lock.waited_for = vec![(slot, 5)];
    holding.view.loss = Some(Loss::default());
    holding.view.memory_wait = Some(MemoryWait::default());
    let mut process = ProcessSample::default();
    process.view.slot = slot;
    process.view.gang = 1;
    process.view.trace.progress.state = TraceState::On;
    process.devices.push(holding);
    let mut sample = Sample::default();
    sample.processes.push(process);
    // A process that holds the memory that the other waits for.
    let mut holder = sample.processes[0].clone();
    holder.view.slot.index += 1;
    holder.devices[0].view.used = 1;
    sample.processes.push(holder);
    sample
}
