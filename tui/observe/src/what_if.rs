//! The foreseen effect of an edit: the recent work of a device's jobs, divided by the lock's own rules under other settings.
//!
//! Before it says what would be, it says what is by the same means. Where that is not what was measured, the jobs do something
//! that the rules of turns do not describe, and nothing is foreseen.

use shm_layout::lock::forecast::{Demand, Foreseen, forecast};
use shm_layout::policy::TurnLimit;
use shm_layout::{LockPolicy, PolicyKind, Share};

use crate::data::Data;
use crate::data::lanes::WINDOW_NS;
use gpushare_sample::{ProcessSample, Who};

/// Least time that must have been watched, in nanoseconds.
const LEAST_NS: u64 = 5_000_000_000;
/// Difference of a share from what was measured, from which a forecast of the present counts as wrong.
const WRONG: f64 = 0.1;
/// Share of the time for which memory moves, from which it matters.
const MOVES: f64 = 0.01;
/// With more jobs a shorter time is foreseen, because each frame does it anew.
const MANY: usize = 16;

/// A job under other settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Ghost {
    /// The job.
    pub who: Who,
    /// Its share of the device now, 0 to 1.
    pub now: f64,
    /// The foreseen time.
    pub then: Foreseen,
}

/// Foresees a policy of a device. Returns `None` if no jobs contend; the error is the reason why nothing is known.
pub fn of_policy(
    data: &Data,
    gpu: usize,
    policy: &LockPolicy,
) -> Option<Result<Vec<Ghost>, String>> {
    foresee(data, gpu, policy, None)
}

/// Foresees another share of a process, likewise.
pub fn of_share(
    data: &Data,
    gpu: usize,
    who: Who,
    share: Share,
) -> Option<Result<Vec<Ghost>, String>> {
    let policy = data.sample.devices.get(gpu)?.policy.0;
    foresee(data, gpu, &policy, Some((who, share)))
}

fn foresee(
    data: &Data,
    gpu: usize,
    policy: &LockPolicy,
    changed: Option<(Who, Share)>,
) -> Option<Result<Vec<Ghost>, String>> {
    let device = data.sample.devices.get(gpu)?;
    let present = &device.policy.0;
    let now_ns = data.sample.time_ns;
    let jobs: Vec<Job<'_>> = data
        .there(gpu)
        .map(|(process, _)| Job {
            process,
            bursts: data.demands.bursts(Who::of(process), gpu, now_ns).len(),
        })
        .filter(|job| job.bursts > 0 || data.entitled(job.process, gpu).is_some())
        .collect();
    if jobs.len() < 2 {
        return None;
    }
    if let Some(why) = unknown(data, gpu, present, policy, &jobs) {
        return Some(Err(why));
    }
    let span_ns = match jobs.len() {
        0..=MANY => WINDOW_NS,
        _ => WINDOW_NS / 4,
    };
    let handoff_ns = device.handoff_times.quantile(0.5).unwrap_or(0);
    let under = |policy: &LockPolicy, changed: Option<(Who, Share)>| {
        let demands = jobs
            .iter()
            .map(|job| demand(data, gpu, job.process, policy, changed));
        let demands = demands.collect::<Result<Vec<Demand>, String>>()?;
        forecast(policy, &demands, handoff_ns, span_ns).ok_or_else(|| "there are no turns".into())
    };
    let watched_ns = watched_ns(data, gpu, &jobs);
    let held = |job: &Job<'_>| {
        data.lanes
            .of_last(watched_ns, Who::of(job.process), gpu)
            .hold
    };
    let measured: Vec<f64> = jobs.iter().map(|job| f64::from(held(job))).collect();
    let foreseen = under(present, None).and_then(|is| {
        let off = is
            .iter()
            .zip(&measured)
            .zip(&jobs)
            .find(|((is, measured), _)| (is.held - *measured).abs() > WRONG);
        match off {
            Some(((is, measured), job)) => Err(format!(
                "by these rules {} would have {:.0}% now, and it has {:.0}%",
                data.name(Who::of(job.process)),
                is.held * 100.0,
                measured * 100.0
            )),
            None => under(policy, changed),
        }
    });
    Some(foreseen.map(|foreseen| {
        let ghosts = jobs.iter().zip(measured).zip(foreseen);
        ghosts
            .map(|((job, now), then)| Ghost {
                who: Who::of(job.process),
                now,
                then,
            })
            .collect()
    }))
}

/// Returns the recent time in which these jobs were watched together under the present settings.
fn watched_ns(data: &Data, gpu: usize, jobs: &[Job<'_>]) -> u64 {
    let edits = data.edits().map(|edit| edit.time_ns);
    let of = |job: &Job<'_>| data.demands.since_ns(Who::of(job.process), gpu);
    let since_ns = edits.chain(jobs.iter().filter_map(of)).max().unwrap_or(0);
    let watched_ns = data.sample.time_ns.saturating_sub(since_ns);
    data.lanes.span_ns(gpu).min(watched_ns)
}

/// A job that wants the device.
struct Job<'d> {
    process: &'d ProcessSample,
    /// Number of its known bursts.
    bursts: usize,
}

/// Returns the reason why the effect of a policy cannot be foreseen.
fn unknown(
    data: &Data,
    gpu: usize,
    present: &LockPolicy,
    policy: &LockPolicy,
    jobs: &[Job<'_>],
) -> Option<String> {
    let beside = |policy: &LockPolicy| !policy.kind.has_turns();
    let silent = jobs.iter().find(|job| job.bursts == 0);
    let lost_ns = data.sample.time_ns.saturating_sub(data.log.lost_ns);
    Some(match () {
        () if data.is_mps(gpu) => "MPS runs the kernels of several jobs at once".to_owned(),
        () if beside(policy) => {
            format!("under {} jobs would submit beside each other", policy.kind)
        }
        () if beside(present) => format!(
            "under {} jobs submit beside each other, so the work of each alone is not seen",
            present.kind
        ),
        () if policy.swap || present.swap || data.moving(gpu) > MOVES => {
            "turns include moves of memory".to_owned()
        }
        () if jobs.iter().any(|job| job.process.gang != 0) => {
            "jobs on several GPUs take their turns together".to_owned()
        }
        () if watched_ns(data, gpu, jobs) < LEAST_NS => {
            "these jobs have worked together under these settings for less than 5 s".to_owned()
        }
        () if data.log.lost > 0 && lost_ns < WINDOW_NS => {
            "some of the last turns were overwritten before they were read".to_owned()
        }
        () => {
            let job = silent?;
            format!("{} had no turn lately", data.name(Who::of(job.process)))
        }
    })
}

fn demand(
    data: &Data,
    gpu: usize,
    process: &ProcessSample,
    policy: &LockPolicy,
    changed: Option<(Who, Share)>,
) -> Result<Demand, String> {
    let who = Who::of(process);
    let changed = changed.filter(|(whose, _)| *whose == who);
    let counted_ns = turn_ns(data, gpu, process, policy.kind);
    if counted_ns.is_none() {
        return Err(format!("the launches of {} are too few", data.name(who)));
    }
    Ok(Demand {
        share: changed.map_or(process.share, |(_, share)| share),
        bursts: data.demands.bursts(who, gpu, data.sample.time_ns),
        counted_ns,
        kernel_ns: turn_ns(data, gpu, process, PolicyKind::Always).unwrap_or(0),
        step_ns: step_ns(process, gpu).unwrap_or(0),
    })
}

/// Returns the mean time that a process holds a device in a step.
fn step_ns(process: &ProcessSample, gpu: usize) -> Option<u64> {
    let holding = process.on(gpu)?;
    holding.lock.held_ns.checked_div(holding.lock.steps.count())
}

/// Estimates the length of a turn of this process; `None` if it has not held the lock recently, or if there are no turns.
pub fn turn_ns(data: &Data, gpu: usize, process: &ProcessSample, kind: PolicyKind) -> Option<u64> {
    let launches = match kind.turn_limit()? {
        TurnLimit::Time(ns) => return Some(ns),
        TurnLimit::Calls(count) => f64::from(count),
    };
    let who = Who::of(process);
    let held = f64::from(data.spent(who, gpu).hold);
    let rate = data.rates(who, gpu)?.launches_per_s;
    // The process launches only while it holds the lock.
    (held > 0.01 && rate > 0.1).then(|| (launches / (rate / held) * 1e9) as u64)
}
