//! Explanations of slow jobs: one sentence for each job of a device, from its waits, its limits and the device's
//! policy. If an edit would help, the explanation proposes it for ten minutes.

use shm_layout::{Boost, Change, Order, PolicyKind, QuotaValue, Set, ShareEdit, Until};

use super::data::Data;
use gpushare_base::text::units::{human_size, short_size};
use gpushare_base::text::uuids;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, policy};
use gpushare_sample::{Holding, ProcessSample, ProcessState, Who};

/// Time for which a remedy is tried.
const TRIAL_NS: u64 = 600_000_000_000;
/// Maximum age of a denial that counts.
const NEWS_NS: u64 = 30_000_000_000;
/// A process that waits for less than this share of its time is not slowed by others.
const WAITS: f32 = 0.1;

/// The reason for one job's speed.
#[derive(Clone, Debug)]
pub struct Why {
    /// The process.
    pub who: Who,
    /// The reason in one sentence.
    pub sentence: String,
    /// The edit that would help.
    pub remedy: Option<Remedy>,
}

/// A temporary edit that would help.
#[derive(Clone, Debug)]
pub struct Remedy {
    /// The edit in few words.
    pub what: String,
    /// The expected effect.
    pub effect: String,
    /// The edit.
    pub request: EditRequest,
}

/// Explains every managed job of a device, the one that waits most first.
pub fn explain(data: &Data, gpu: usize) -> Vec<Why> {
    let managed = data.there(gpu).filter(|(p, _)| p.is_managed());
    let mut jobs: Vec<_> = managed.collect();
    let wait = |process: &ProcessSample| data.spent(Who::of(process), gpu).wait;
    jobs.sort_by(|a, b| wait(b.0).total_cmp(&wait(a.0)));
    jobs.into_iter()
        .map(|(process, holding)| why(data, process, holding))
        .collect()
}

fn why(data: &Data, process: &ProcessSample, holding: &Holding) -> Why {
    let who = Who::of(process);
    let (sentence, remedy) = reason(data, process, holding);
    Why {
        who,
        sentence: format!("{} {}", data.title(who), sentence),
        remedy,
    }
}

fn reason(data: &Data, process: &ProcessSample, holding: &Holding) -> (String, Option<Remedy>) {
    let gpu = holding.gpu;
    match process.state {
        ProcessState::Paused => return ("is paused by an operator; P resumes it".into(), None),
        ProcessState::Stopped => {
            let pid = process.shown_pid();
            return (
                format!("is stopped by a signal; kill -CONT {pid} resumes it"),
                None,
            );
        }
        ProcessState::Lost => return ("has lost its context: start it again".into(), None),
        ProcessState::Memwait => return ("waits for memory that others hold".into(), None),
        ProcessState::Evicting
        | ProcessState::Evicted
        | ProcessState::Returning
        | ProcessState::Restoring => {
            return (
                "has its memory on the host, and continues when that is back".into(),
                None,
            );
        }
        _ => {}
    }
    if let Some(denied) = denied(data, process, holding) {
        return denied;
    }
    let spent = data.spent(Who::of(process), gpu);
    let (hold, wait) = (spent.hold * 100.0, spent.wait * 100.0);
    if let Some(cap) = process
        .share
        .cap
        .filter(|cap| spent.wait > WAITS && hold > *cap as f32 * 0.8)
    {
        return (
            format!("has the {cap}% of GPU{gpu} that its cap allows; w raises it"),
            None,
        );
    }
    if spent.wait <= WAITS {
        let slowed = data
            .sample
            .devices
            .get(gpu)
            .and_then(|device| device.nvml.slowed_by);
        let sentence = match slowed.and_then(|slowed| slowed.warning()) {
            Some(warning) => format!("hardly waits ({wait:.0}%); GPU{gpu} is {warning}"),
            None if spent.hold > 0.8 => {
                format!("has GPU{gpu} {hold:.0}% of the time: it is as fast as the GPU")
            }
            None => format!(
                "hardly waits ({wait:.0}%) and holds GPU{gpu} {hold:.0}% of the time: what slows it is elsewhere, not on the GPU"
            ),
        };
        return (sentence, None);
    }
    let behind = match data.behind(process, holding) {
        Some((letter, _, share)) => format!(", {:.0}% of it for {letter}", share * 100.0),
        None => String::new(),
    };
    let policy = data
        .sample
        .devices
        .get(gpu)
        .map(|device| device.policy.0)
        .unwrap_or_default();
    let sentence = format!(
        "waits {wait:.0}% of its time{behind} and has GPU{gpu} {hold:.0}% of it, under {} order={}",
        policy.kind,
        policy.order.word()
    );
    (
        sentence,
        advised(data, gpu).or_else(|| first(data, process, policy.order, policy.kind, gpu)),
    )
}

/// Explains a job with a recent denial, and proposes a greater quota if the device has room.
fn denied(
    data: &Data,
    process: &ProcessSample,
    holding: &Holding,
) -> Option<(String, Option<Remedy>)> {
    let gpu = holding.gpu;
    let since = data.sample.time_ns.saturating_sub(NEWS_NS);
    let (count, last) = *data.log.denials(since).get(&(Who::of(process), gpu))?;
    let quota = holding.quota.bytes?;
    let sentence = format!(
        "was denied {count} allocations in 30 s, the last of {}, by its quota of {}",
        short_size(last),
        short_size(quota)
    );
    let device = data.sample.devices.get(gpu)?;
    let used = data.used_bytes(gpu);
    let free = device.total_bytes.saturating_sub(used);
    let more = quota
        .saturating_add(last.max(quota / 4))
        .min(device.total_bytes);
    let remedy = process.slot().filter(|_| free >= last).map(|slot| Remedy {
        what: format!("a quota of {}", human_size(more)),
        effect: format!(
            "the allocation of {} succeeds; GPU{gpu} has {} free, which the others then lack",
            short_size(last),
            human_size(free)
        ),
        request: of_process(
            process,
            format!("{} gpu{gpu}", process.pid_and_name()),
            Change::ProcessQuota {
                slot,
                device: Some(holding.entry),
                value: QuotaValue::Bytes(more),
                until: Some(Until::lasting(end(data))),
            },
        ),
    });
    Some((sentence, remedy))
}

/// Returns the policy that the rules of `gpushare advise` propose.
fn advised(data: &Data, gpu: usize) -> Option<Remedy> {
    let advice = data.advice.of(gpu)?;
    let device = data.sample.devices.get(gpu)?;
    let edit = policy::parse(std::slice::from_ref(&advice.policy)).ok()??;
    let new = edit.apply(device.policy.0).ok()?;
    let change = Change::Policy {
        device: Some(uuids::parse(&device.uuid)?),
        policy: Some(new),
        until: Some(Until::lasting(end(data))),
    };
    Some(Remedy {
        what: advice.policy.clone(),
        effect: format!("{} (measured: {})", advice.sentence, advice.basis),
        request: EditRequest::new(change, format!("gpu{gpu}"), Place::Tui).because(because()),
    })
}

/// Proposes a temporary higher priority under `order=priority`.
fn first(
    data: &Data,
    process: &ProcessSample,
    order: Order,
    kind: PolicyKind,
    gpu: usize,
) -> Option<Remedy> {
    let highest = data
        .sample
        .holdings(gpu)
        .map(|(p, _)| p.share.priority)
        .max()?;
    let priority = highest.saturating_add(1).min(19);
    let below = process.share.priority < priority;
    if order != Order::Priority || kind == PolicyKind::Off || !below {
        return None;
    }
    let share = ShareEdit {
        boost: Set::To(Boost {
            priority,
            until_ns: end(data),
        }),
        ..ShareEdit::default()
    };
    let title = process.pid_and_name();
    Some(Remedy {
        what: format!("priority {priority}"),
        effect: "it goes first whenever it wants the GPU; the others wait for it".into(),
        request: of_process(process, title, share.change(process.slot()?)),
    })
}

fn of_process(process: &ProcessSample, title: String, change: Change) -> EditRequest {
    let mut request = EditRequest::new(change, title, Place::Tui).because(because());
    request.target_start_time = Some(process.identity.start_time);
    request
}

fn because() -> Option<String> {
    Some("why is it slow: a trial of 10 min".into())
}

fn end(data: &Data) -> u64 {
    data.sample.time_ns.saturating_add(TRIAL_NS)
}
