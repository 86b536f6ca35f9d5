//! Playing one configuration and measuring it.

use std::time::{Duration, Instant};

use shm_layout::{Change, Segments, Snapshot, clock, snapshot};

use super::report::Measured;
use super::{Config, Plan, Task};
use crate::edit::audit::Place;
use crate::edit::{EditRequest, Editor};
use crate::host::probe::Probe;
use crate::text::exit::Failure;
use crate::text::units;
use crate::workload::launch::Settings;
use crate::workload::stage::Stage;
use shm_layout::variables;

/// How long the tasks may take to apply a policy before a measurement would measure something else.
const APPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs one configuration of the plan.
pub fn play(plan: &Plan, config: &Config, simulated: bool) -> Result<Measured, Failure> {
    let mut stage = Stage::new(None, simulated)?;
    let mut environment: Vec<(String, String)> = pairs(&config.env);
    environment.push((variables::SIM_SCENARIO.into(), plan.scenario.clone()));
    let limit = Duration::from_secs_f64(plan.seconds);
    for task in plan.background() {
        for name in task.names() {
            let arguments = arguments(task);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            stage.start(&settings(task, name), &arguments, limit, &environment)?;
        }
    }
    environment.extend(pairs(&config.urgent_env));
    let urgent = plan.urgent();
    let mut probe = start_urgent(&stage, urgent, &environment)?;
    let segments = wait_for_all(&mut stage, plan)?;
    set_policy(&stage, config)?;
    let start = snapshot(&segments, clock::now());
    let latencies = rounds(&mut probe, urgent, limit)?;
    let end = snapshot(&segments, clock::now());
    stage.check_alive()?;
    Ok(measure(plan, config, &start, &end, latencies))
}

fn pairs(variables: &std::collections::BTreeMap<String, String>) -> Vec<(String, String)> {
    variables
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn settings(task: &Task, name: String) -> Settings {
    Settings {
        name: Some(name),
        weight: task.weight.map(|weight| weight.to_string()),
        priority: task.priority.map(|priority| priority.to_string()),
        ..Settings::default()
    }
}

fn arguments(task: &Task) -> Vec<String> {
    let mut arguments = vec![
        format!("--kernel-us={}", task.kernel_us),
        format!("--burst={}", task.burst),
        format!("--gap-us={}", task.gap_us),
    ];
    arguments.extend(
        task.memory
            .iter()
            .map(|memory| format!("--memory={memory}")),
    );
    arguments
}

fn start_urgent(stage: &Stage, task: &Task, extra: &[(String, String)]) -> Result<Probe, Failure> {
    let program = stage.prepare(&settings(task, task.name.clone()), &["--script"], extra)?;
    let failed = |why| Failure::failed(format!("{}: {why}", task.name));
    let mut probe = Probe::of(program).map_err(failed)?;
    if let Some(memory) = &task.memory {
        let bytes = units::parse_size(memory).unwrap_or(0);
        let answer = probe.ask(&format!("alloc {bytes}")).map_err(failed)?;
        if !answer.starts_with("ok") {
            return Err(failed(format!("its memory was refused: {answer}")));
        }
    }
    Ok(probe)
}

fn wait_for_all(stage: &mut Stage, plan: &Plan) -> Result<Segments, Failure> {
    let names: Vec<String> = plan.tasks.iter().flat_map(Task::names).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let since = Instant::now();
    loop {
        if let Some(segments) = stage.all_started(since, &names)? {
            return Ok(segments);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn set_policy(stage: &Stage, config: &Config) -> Result<(), Failure> {
    let Some(policy) = &config.policy else {
        return Ok(());
    };
    let policy =
        units::policy(policy).map_err(|error| Failure::usage(format!("policy: {error}")))?;
    let change = Change::Policy {
        device: None,
        policy: Some(policy),
    };
    let request = EditRequest::new(change, "all GPUs", Place::Ctl)
        .because(Some("gpushare experiment".into()));
    let editor = Editor::open(&stage.dir);
    let applied = editor.submit(request)?;
    let applied = editor.wait(applied, APPLY_TIMEOUT);
    match applied.missing.len() {
        0 => Ok(()),
        count => Err(Failure::failed(format!(
            "{count} tasks did not apply the policy of {:?} in time",
            config.name
        ))),
    }
}

/// The urgent task's rounds, each one's latency in nanoseconds.
fn rounds(probe: &mut Probe, task: &Task, limit: Duration) -> Result<Vec<u64>, Failure> {
    let failed = |why: String| Failure::failed(format!("{}: {why}", task.name));
    let mut latencies = Vec::new();
    let start = Instant::now();
    while start.elapsed() < limit {
        let round = Instant::now();
        for command in [
            format!("launch {} {}", task.kernel_us, task.burst),
            "sync".into(),
        ] {
            let answer = probe.ask(&command).map_err(failed)?;
            if !answer.starts_with("ok") {
                return Err(failed(format!("{command}: {answer}")));
            }
        }
        latencies.push(u64::try_from(round.elapsed().as_nanos()).unwrap_or(u64::MAX));
        std::thread::sleep(Duration::from_micros(task.gap_us));
    }
    latencies.sort_unstable();
    Ok(latencies)
}

fn measure(
    plan: &Plan,
    config: &Config,
    start: &Snapshot,
    end: &Snapshot,
    latencies: Vec<u64>,
) -> Measured {
    let seconds = end.time_ns.saturating_sub(start.time_ns) as f64 / 1e9;
    let mut measured = Measured::new(&config.name, seconds, &latencies);
    for task in &plan.tasks {
        for name in task.names() {
            let (before, after) = (of(start, &name), of(end, &name));
            let kernels = after.launches.saturating_sub(before.launches);
            if task.urgent {
                measured.urgent_kernels = kernels;
            } else {
                measured.background_kernels += kernels;
            }
            measured.gpu_ns += kernels * task.kernel_us * 1_000;
            measured.drains += after.drains.saturating_sub(before.drains);
            measured.forced += after.forced.saturating_sub(before.forced);
            measured.acquisitions += after.acquisitions.saturating_sub(before.acquisitions);
        }
    }
    measured
}

/// One process's counts.
#[derive(Default)]
struct Counts {
    launches: u64,
    drains: u64,
    forced: u64,
    acquisitions: u64,
}

fn of(snapshot: &Snapshot, name: &str) -> Counts {
    let process = snapshot
        .processes
        .iter()
        .find(|process| process.identity.label == name);
    let mut counts = Counts::default();
    for device in process.iter().flat_map(|process| &process.devices) {
        counts.launches += device.counters.launches;
        counts.drains += device.counters.drains;
        counts.forced += device.lock.forced;
        counts.acquisitions += device.lock.acquisitions;
    }
    counts
}
