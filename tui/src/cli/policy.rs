//! `gpushare policy`: when the holder of a device's lock must yield, and who is next.

use std::io::Write;

use serde::Serialize;
use shm_layout::{Change, LockPolicy, SegmentDir, Segments, clock, snapshot};

use super::manner::Manner;
use super::table::{Side, Table};
use super::{Done, json, world};
use crate::edit::audit::Place;
use crate::edit::targets;
use crate::edit::{EditRequest, Editor};
use crate::sample::{SCHEMA_VERSION, Sample};
use crate::text::exit::{Exit, Failure};
use crate::text::units::{self, PolicyEdit};
use crate::text::uuids;

/// Set or show lock policies
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    Set(SetArgs),
    Show(ShowArgs),
}

/// Change a device's lock policy while programs run
#[derive(Debug, clap::Args)]
#[command(after_help = policy_help())]
pub struct SetArgs {
    /// Number or UUID of a device, or all
    gpu: String,
    /// off, always, launches=N or timeslice=T, and further keys; inherit unsets the policy
    #[arg(required = true, value_name = "POLICY")]
    words: Vec<String>,
    #[command(flatten)]
    manner: Manner,
}

/// From the table of fields, so that no range is written twice.
fn policy_help() -> String {
    let mut help = String::from("off                 only watch; nobody waits for anybody\n");
    help.push_str("always              yield after every launch\n");
    for field in units::POLICY_FIELDS {
        let (least, most) = field.range();
        let range = if field.name == "order" {
            String::new()
        } else {
            format!(", {least}..{most}")
        };
        help.push_str(&format!(
            "{:<20}{}{range}\n",
            format!("{}=", field.name),
            field.about
        ));
    }
    help.push_str(
        "A holder yields only when somebody waits. What is not written stays as it is.\n",
    );
    help.push_str("Example: gpushare policy set all timeslice=5ms order=fair");
    help
}

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
    let words: Vec<&str> = words
        .iter()
        .flat_map(|words| words.split_whitespace())
        .collect();
    // Alone, so that the sentence names the word that is wrong.
    for word in &words {
        units::parse_policy(&[*word]).map_err(|error| wrong(word, &error))?;
    }
    let edit = units::parse_policy(&words).map_err(|error| wrong("policy", &error))?;
    // Whether its own words go together does not depend on what is in force.
    edit.apply(LockPolicy::default())
        .map_err(|error| wrong("policy", &error))?;
    Ok(Some(edit))
}

fn wrong(what: &str, error: &units::TextError) -> Failure {
    Failure::usage(format!("{what}: {error}"))
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
    let reason = args.manner.reason.as_deref();
    let first = request(device, edit, &sample, &dir, reason)?;
    if args.manner.dry_run {
        let own = would_clear(&editor, &first.change, &sample, &[])?;
        let requests: Vec<EditRequest> = std::iter::once(first).chain(own).collect();
        args.manner.make(&editor, requests, &sample, out)?;
        return Ok(Exit::Done);
    }
    let everywhere = first.change.clone();
    world::apply_all(&editor, vec![first], &sample, out)?;
    if device.is_none() {
        world::apply_all(
            &editor,
            clear_own(&everywhere, &sample, &dir, &[], reason)?,
            &sample,
            out,
        )?;
    }
    Ok(Exit::Done)
}

/// The edit for one device or, without one, for all.
pub fn request(
    device: Option<usize>,
    edit: Option<PolicyEdit>,
    sample: &Sample,
    dir: &SegmentDir,
    reason: Option<&str>,
) -> Result<EditRequest, Failure> {
    let present = Present::read(dir);
    let uuid = device.map(|gpu| uuid(sample, gpu)).transpose()?;
    let base = uuid.map_or(present.everywhere, |uuid| present.of(&uuid));
    let policy = edit
        .map(|edit| edit.apply(base))
        .transpose()
        .map_err(|error| wrong("policy", &error))?;
    let target = device.map_or_else(|| "all GPUs".to_owned(), |gpu| format!("gpu{gpu}"));
    let change = Change::Policy {
        device: uuid,
        policy,
    };
    Ok(EditRequest::new(change, target, Place::Ctl).because(reason.map(ToOwned::to_owned)))
}

/// After an edit for all: the edits that take a device's own policy away where it still hides that
/// one. `spared` are left alone.
pub fn clear_own(
    everywhere: &Change,
    sample: &Sample,
    dir: &SegmentDir,
    spared: &[usize],
    reason: Option<&str>,
) -> Result<Vec<EditRequest>, Failure> {
    let present = std::cell::LazyCell::new(|| Present::read(dir));
    let requests = clearing(everywhere, sample, spared, |_, uuid, wanted| {
        Ok(present.of(&uuid) != wanted && present.knows(&uuid))
    })?;
    let because = |request: EditRequest| request.because(reason.map(ToOwned::to_owned));
    Ok(requests.into_iter().map(because).collect())
}

/// The same edits ahead of time, for a dry run: devices whose own policy is another one.
pub fn would_clear(
    editor: &Editor,
    everywhere: &Change,
    sample: &Sample,
    spared: &[usize],
) -> Result<Vec<EditRequest>, Failure> {
    clearing(everywhere, sample, spared, |request, _, wanted| {
        let old = editor.preview(&request.change, &request.target)?;
        Ok(matches!(old, Change::Policy { policy: Some(own), .. } if own != wanted))
    })
}

/// Edits that take away a device's own policy, for the devices where it `hides` the one for all.
fn clearing(
    everywhere: &Change,
    sample: &Sample,
    spared: &[usize],
    hides: impl Fn(&EditRequest, shm_layout::Uuid, LockPolicy) -> Result<bool, Failure>,
) -> Result<Vec<EditRequest>, Failure> {
    let Change::Policy {
        device: None,
        policy,
    } = everywhere
    else {
        return Ok(Vec::new());
    };
    let mut requests = Vec::new();
    for gpu in (0..sample.devices.len()).filter(|gpu| !spared.contains(gpu)) {
        let uuid = uuid(sample, gpu)?;
        let change = Change::Policy {
            device: Some(uuid),
            policy: None,
        };
        let request = EditRequest::new(change, format!("gpu{gpu}"), Place::Ctl);
        if hides(&request, uuid, policy.unwrap_or_default())? {
            requests.push(request);
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
    /// What an edit for all starts from.
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
        let devices = snapshot.devices.iter();
        let devices: Vec<_> = devices
            .map(|device| (device.uuid, device.policy.0))
            .collect();
        // What all devices obey, whoever set it; where they differ, the operator's policy for all.
        let agreed = devices.first().map(|(_, first)| *first);
        let agreed = agreed.filter(|first| devices.iter().all(|(_, policy)| policy == first));
        Self {
            everywhere: agreed.or(snapshot.default_policy).unwrap_or_default(),
            devices,
        }
    }

    fn of(&self, uuid: &shm_layout::Uuid) -> LockPolicy {
        let found = self.devices.iter().find(|(known, _)| known == uuid);
        found.map_or(self.everywhere, |(_, policy)| *policy)
    }

    fn knows(&self, uuid: &shm_layout::Uuid) -> bool {
        self.devices.iter().any(|(known, _)| known == uuid)
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
        return json(out, &document);
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
