//! `gpushare policy`: when the holder of a device's lock must yield, and who is next.

use std::io::Write;

use serde::Serialize;
use shm_layout::{Change, LockPolicy, SegmentDir, Segments, clock, snapshot};

use super::table::{Side, Table};
use super::{Done, world};
use crate::audit::Place;
use crate::edits::{EditRequest, Editor};
use crate::exit::{Exit, Failure};
use crate::sample::{SCHEMA_VERSION, Sample};
use crate::units::{self, PolicyEdit};
use crate::{targets, uuids};

/// Set or show lock policies
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    Set(SetArgs),
    Show(ShowArgs),
}

/// Change a device's lock policy while programs run
#[derive(Debug, clap::Args)]
#[command(after_help = POLICY_HELP)]
pub struct SetArgs {
    /// Number or UUID of a device, or all
    gpu: String,
    /// off, always, launches=N or timeslice=T, and further keys; inherit unsets the policy
    #[arg(required = true, value_name = "POLICY")]
    words: Vec<String>,
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

const POLICY_HELP: &str = "\
off                 only watch; nobody waits for anybody
always              yield after every launch
launches=N          yield after N launches or copies, 1..1000000
timeslice=T         yield after this time, 100us..60s
order=O             who is next: fifo, priority or fair
idle=T              release when nothing was submitted for this time, 100us..10m
max-hold=T          the longest hold while others wait, 1ms..10m
grace=T             how long a drain may take before it is forced, 1ms..1m
sync-skips=N        keep the lock over the first N synchronisations, 0..1000000
A holder yields only when somebody waits. What is not written stays as it is.
Example: gpushare policy set all timeslice=5ms order=fair";

/// Show every device's lock policy
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Set(args) => set(&args, out),
        Verb::Show(args) => show(&args, out),
    }
}

/// A policy as written: the edit, or nothing to unset it.
pub fn parse(words: &[String]) -> Result<Option<PolicyEdit>, Failure> {
    if words == ["inherit"] {
        return Ok(None);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let edit =
        units::parse_policy(&words).map_err(|error| Failure::usage(format!("policy: {error}")))?;
    // Whether its own words go together does not depend on what is in force.
    edit.apply(LockPolicy::default())
        .map_err(|error| Failure::usage(format!("policy: {error}")))?;
    Ok(Some(edit))
}

fn set(args: &SetArgs, out: &mut dyn Write) -> Done {
    let edit = parse(&args.words)?;
    let dir = world::dir_or_new()?;
    let sample = world::look(&dir)?;
    let device = match args.gpu.as_str() {
        "all" => None,
        gpu => Some(targets::device(gpu, &sample)?),
    };
    let editor = Editor::open(&dir);
    let requests = requests(device, edit, &sample, &dir, args.reason.as_deref())?;
    world::apply_all(&editor, requests, &sample, out)?;
    Ok(Exit::Done)
}

/// The edits for one device or, without one, for all: those with a policy of their own lose it.
pub fn requests(
    device: Option<usize>,
    edit: Option<PolicyEdit>,
    sample: &Sample,
    dir: &SegmentDir,
    reason: Option<&str>,
) -> Result<Vec<EditRequest>, Failure> {
    let reason = reason.map(ToOwned::to_owned);
    let present = Present::read(dir);
    let on_top = |base| {
        edit.map(|edit| edit.apply(base))
            .transpose()
            .map_err(|error| Failure::usage(format!("policy: {error}")))
    };
    if let Some(gpu) = device {
        let uuid = uuid(sample, gpu)?;
        let change = Change::Policy {
            device: Some(uuid),
            policy: on_top(present.of(&uuid))?,
        };
        return Ok(vec![
            EditRequest::new(change, format!("gpu{gpu}"), Place::Ctl).because(reason),
        ]);
    }
    let change = Change::Policy {
        device: None,
        policy: on_top(present.everywhere)?,
    };
    let mut requests =
        vec![EditRequest::new(change, "all GPUs", Place::Ctl).because(reason.clone())];
    for gpu in 0..sample.devices.len() {
        let uuid = uuid(sample, gpu)?;
        if present.own(&uuid) {
            let change = Change::Policy {
                device: Some(uuid),
                policy: None,
            };
            requests.push(
                EditRequest::new(change, format!("gpu{gpu}"), Place::Ctl).because(reason.clone()),
            );
        }
    }
    Ok(requests)
}

fn uuid(sample: &Sample, gpu: usize) -> Result<shm_layout::Uuid, Failure> {
    let text = sample.devices.get(gpu).map_or("", |device| &device.uuid);
    uuids::parse(text).ok_or_else(|| {
        Failure::failed(format!(
            "gpu{gpu} has the UUID {text:?}, which cannot be read"
        ))
    })
}

/// The policies in force.
#[derive(Default)]
struct Present {
    everywhere: LockPolicy,
    devices: Vec<(shm_layout::Uuid, LockPolicy)>,
}

impl Present {
    /// A segment that is not there yet has the default everywhere.
    fn read(dir: &SegmentDir) -> Self {
        let Ok(segments) = Segments::open_viewer(&dir.path) else {
            return Self::default();
        };
        let snapshot = snapshot(&segments, clock::now());
        let devices: Vec<_> = snapshot
            .devices
            .iter()
            .map(|device| (device.uuid, device.policy.0))
            .collect();
        Self {
            everywhere: devices
                .first()
                .map(|(_, policy)| *policy)
                .unwrap_or_default(),
            devices,
        }
    }

    fn of(&self, uuid: &shm_layout::Uuid) -> LockPolicy {
        self.devices
            .iter()
            .find(|(known, _)| known == uuid)
            .map_or(self.everywhere, |(_, policy)| *policy)
    }

    fn own(&self, uuid: &shm_layout::Uuid) -> bool {
        self.devices
            .iter()
            .any(|(known, policy)| known == uuid && *policy != self.everywhere)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    generation: u64,
    policies: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    gpu: usize,
    uuid: &'a str,
    policy: String,
    order: &'static str,
    idle_ns: u64,
    max_hold_ns: u64,
    grace_ns: u64,
    sync_skips: u32,
    source: &'a str,
    waiters: usize,
    handoffs: u64,
    forced: u64,
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> Done {
    let sample = world::look(&world::dir()?)?;
    let lines = sample.devices.iter().enumerate().map(|(gpu, device)| Line {
        gpu,
        uuid: &device.uuid,
        policy: device.policy.rule.to_string(),
        order: device.policy.order.word(),
        idle_ns: device.policy.idle_ns,
        max_hold_ns: device.policy.max_hold_ns,
        grace_ns: device.policy.grace_ns,
        sync_skips: device.policy.sync_skips,
        source: &device.policy.source,
        waiters: device.waiters.len(),
        handoffs: device.handoffs,
        forced: device.forced,
    });
    if args.json {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            generation: sample.generation,
            policies: lines.collect(),
        };
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        ("GPU", Side::Right),
        ("POLICY", Side::Left),
        ("ORDER", Side::Left),
        ("IDLE", Side::Right),
        ("MAX-HOLD", Side::Right),
        ("GRACE", Side::Right),
        ("SKIPS", Side::Right),
        ("SOURCE", Side::Left),
        ("QUEUE", Side::Right),
        ("FORCED", Side::Right),
    ]);
    for line in lines {
        table.row([
            line.gpu.to_string(),
            line.policy,
            line.order.to_owned(),
            units::format_duration(line.idle_ns),
            units::format_duration(line.max_hold_ns),
            units::format_duration(line.grace_ns),
            line.sync_skips.to_string(),
            line.source.to_owned(),
            line.waiters.to_string(),
            line.forced.to_string(),
        ]);
    }
    table.write(out)?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_field_with_its_range() {
        for field in units::POLICY_FIELDS
            .iter()
            .filter(|field| field.name != "order")
        {
            let line = POLICY_HELP
                .lines()
                .find(|line| line.starts_with(&format!("{}=", field.name)));
            let (least, most) = field.range();
            assert!(
                line.is_some_and(|line| line.ends_with(&format!("{least}..{most}"))),
                "{}",
                field.name
            );
        }
    }
}
