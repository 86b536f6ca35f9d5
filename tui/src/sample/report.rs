//! The JSON that scripts read: base units with the unit in the key, `null` where there is none.
//!
//! `gpushare ps --json` and `gpushare-top --once --format json` describe processes with the same [`ProcessReport`].

use std::collections::BTreeMap;

use serde::Serialize;

use shm_layout::QuotaValue;

use super::{GroupView, Holding, ProcessSample, Sample, SlotId, quantile};

/// A process in JSON.
#[derive(Debug, Serialize)]
pub struct ProcessReport<'a> {
    pid: Option<u32>,
    ns_pid: Option<u32>,
    user: &'a str,
    name: Option<&'a str>,
    exe: Option<&'a str>,
    container: Option<&'a str>,
    group: Option<&'a str>,
    state: &'static str,
    priority: Option<i32>,
    weight: Option<u32>,
    cap_percent: Option<u32>,
    share_source: Option<&'a str>,
    trace: Option<TraceReport>,
    devices: Vec<HoldingReport<'a>>,
}

#[derive(Debug, Serialize)]
struct TraceReport {
    state: &'static str,
    records: u64,
    dropped: u64,
    /// Records there is room for; `null` when its launch asked for it.
    room_records: Option<u32>,
}

#[derive(Debug, Serialize)]
struct HoldingReport<'a> {
    gpu: usize,
    uuid: &'a str,
    used_bytes: u64,
    peak_bytes: Option<u64>,
    quota_bytes: Option<u64>,
    quota_source: Option<&'a str>,
    denials: Option<u64>,
    launches: Option<u64>,
    lock: Option<LockReport>,
}

#[derive(Debug, Serialize)]
struct LockReport {
    policy: String,
    policy_source: &'static str,
    state: &'static str,
    held_ns: u64,
    waited_ns: u64,
    acquisitions: u64,
    forced: u64,
    hold_p50_us: Option<f64>,
    hold_p99_us: Option<f64>,
    wait_p50_us: Option<f64>,
    wait_p99_us: Option<f64>,
    /// How often its holds ended for each reason.
    ended_by: BTreeMap<&'static str, u64>,
    /// The processes it waited for, longest first.
    waited_for: Vec<Blocker>,
}

#[derive(Debug, Serialize)]
struct Blocker {
    /// `null` when that process has gone, or cannot be seen from here.
    pid: Option<u32>,
    /// Its pid as it sees itself; `null` when it has gone.
    ns_pid: Option<u32>,
    waited_ns: u64,
}

/// Every process of the sample.
pub fn processes(sample: &Sample) -> Vec<ProcessReport<'_>> {
    sample
        .processes
        .iter()
        .map(|p| process(sample, p))
        .collect()
}

/// One process of the sample.
pub fn process<'a>(sample: &'a Sample, p: &'a ProcessSample) -> ProcessReport<'a> {
    let managed = p.is_managed();
    ProcessReport {
        pid: p.pid,
        ns_pid: managed.then_some(p.identity.pid),
        user: &p.user,
        name: some(&p.identity.label),
        exe: some(&p.identity.exe),
        container: p.container.as_deref(),
        group: p.group.as_deref(),
        state: p.state.word(),
        priority: managed.then_some(p.share.priority),
        weight: managed.then_some(p.share.weight),
        cap_percent: p.share.cap,
        share_source: managed.then(|| p.share.source.word()),
        trace: p.trace().map(|trace| TraceReport {
            state: trace.progress.state.word(),
            records: trace.progress.records,
            dropped: trace.progress.dropped,
            room_records: trace.wanted,
        }),
        devices: p
            .devices
            .iter()
            .map(|h| holding(sample, h, managed))
            .collect(),
    }
}

fn holding<'a>(sample: &'a Sample, h: &'a Holding, managed: bool) -> HoldingReport<'a> {
    let device = sample.devices.get(h.gpu);
    let blocker = |(slot, ns): &(SlotId, u64)| {
        let process = sample.process(*slot);
        Blocker {
            pid: process.and_then(|process| process.pid),
            ns_pid: process.map(|process| process.identity.pid),
            waited_ns: *ns,
        }
    };
    let us = |histogram, q| quantile(histogram, q).map(|ns| ns as f64 / 1e3);
    HoldingReport {
        gpu: h.gpu,
        uuid: device.map_or("", |d| &d.uuid),
        used_bytes: h.used,
        peak_bytes: managed.then_some(h.peak),
        quota_bytes: h.quota.bytes,
        quota_source: managed.then(|| h.quota.source.word()),
        denials: managed.then_some(h.counters.denials),
        launches: managed.then_some(h.launches()),
        lock: managed.then(|| LockReport {
            policy: h.policy.0.kind.to_string(),
            policy_source: h.policy.1.word(),
            state: h.lock.state.word(),
            held_ns: h.lock.held_ns,
            waited_ns: h.lock.waited_ns,
            acquisitions: h.lock.acquisitions,
            forced: h.lock.forced,
            hold_p50_us: us(&h.lock.hold_hist, 0.50),
            hold_p99_us: us(&h.lock.hold_hist, 0.99),
            wait_p50_us: us(&h.lock.wait_hist, 0.50),
            wait_p99_us: us(&h.lock.wait_hist, 0.99),
            ended_by: h
                .lock
                .ends()
                .into_iter()
                .map(|(end, n)| (end.word(), n))
                .collect(),
            waited_for: h.lock.waited_for.iter().map(blocker).collect(),
        }),
    }
}

/// A group in JSON.
#[derive(Debug, Serialize)]
pub struct GroupReport<'a> {
    name: &'a str,
    /// As an operator writes it; empty when nothing is set.
    quota: String,
    /// Per device.
    quota_bytes: Vec<Option<u64>>,
    weight: Option<u32>,
    cap_percent: Option<u32>,
    defined: bool,
    members: usize,
    /// Per device.
    used_bytes: Vec<u64>,
}

/// Every group of the sample.
pub fn groups(sample: &Sample) -> Vec<GroupReport<'_>> {
    sample.groups.iter().map(|one| group(sample, one)).collect()
}

fn group<'a>(sample: &Sample, group: &'a GroupView) -> GroupReport<'a> {
    let gpus = || 0..sample.devices.len();
    GroupReport {
        name: &group.name,
        quota: match group.memory {
            QuotaValue::Inherit => String::new(),
            value => value.to_string(),
        },
        quota_bytes: gpus().map(|gpu| sample.group_quota(group, gpu)).collect(),
        weight: group.weight,
        cap_percent: group.cap,
        defined: group.defined,
        members: group.members.len(),
        used_bytes: gpus().map(|gpu| sample.group_bytes(group, gpu)).collect(),
    }
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{FIELDS, Reason};
    use shm_layout::trace::TraceState;

    /// A process of which everything is known.
    fn whole() -> Sample {
        let slot = SlotId { index: 0, epoch: 1 };
        let mut holding = Holding::default();
        holding.view.lock.releases[Reason::Sync as usize] = 1;
        holding.lock.waited_for = vec![(slot, 5)];
        let mut process = ProcessSample::default();
        process.view.slot = slot;
        process.view.trace.progress.state = TraceState::On;
        process.devices.push(holding);
        let mut sample = Sample::default();
        sample.processes.push(process);
        sample
    }

    /// Every path in the value; what a map of reasons holds are no keys of ours.
    fn paths(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) if !path.ends_with("ended_by") => {
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

    #[test]
    fn the_manual_explains_every_key_and_no_other() {
        let sample = whole();
        let value = serde_json::to_value(&processes(&sample)[0]).expect("plain data");
        let mut written = Vec::new();
        paths(&value, "", &mut written);
        let mut explained: Vec<&str> = FIELDS.iter().map(|(path, _)| *path).collect();
        written.sort();
        explained.sort_unstable();
        assert_eq!(written, explained);
        assert!(FIELDS.iter().all(|(_, meaning)| meaning.ends_with('.')));
    }
}
