//! `gpushare group`: processes that share one quota, weight and cap.

use std::io::Write;

use shm_layout::{
    Change, GroupView, QuotaValue, SegmentDir, Segments, SlotId, Snapshot, clock, snapshot,
};

use super::edits::EditOptions;
use crate::table::{Side, Table};
use crate::{Done, json, note, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::names::check_group;
use gpushare_base::text::units::{human_size, short_time};
use gpushare_control::audit::Place;
use gpushare_control::quota::parse_until;
use gpushare_control::{EditRequest, group};
use gpushare_sample::keys::object;
use gpushare_sample::{SCHEMA_VERSION, Sample};

/// Create, change, remove or show groups of processes that share a quota
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    /// Define a group; programs join it with gpushare run --group NAME
    Create(EditArgs),
    /// Change a group's settings, for present and future members
    Set(EditArgs),
    #[command(visible_alias = "remove")]
    Rm(RmArgs),
    Show(ShowArgs),
}

// The struct has no doc comment, because the variants of `Verb` have the help text.
#[derive(Debug, clap::Args)]
pub struct EditArgs {
    /// Name of the group, 1 to 31 bytes
    name: String,
    /// memory=SIZE|%|none for all members together on each device; reserve=SIZE|%|none that only they can take; weight=1..1000 and cap=1%..100% for each member
    #[arg(value_name = "KEY=VALUE")]
    values: Vec<String>,
    /// Go back to the present settings after this time; the group stays
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Remove a group's settings; its members continue without them
#[derive(Debug, clap::Args)]
pub struct RmArgs {
    /// Name of the group
    name: String,
    #[command(flatten)]
    edit: EditOptions,
}

/// Show the groups and their members
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Show only this group
    name: Option<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Create(args) => edit(&args, true, out),
        Verb::Set(args) => edit(&args, false, out),
        Verb::Rm(args) => remove(&args, out),
        Verb::Show(args) => show(&args, out),
    }
}

fn edit(args: &EditArgs, create: bool, out: &mut dyn Write) -> Done {
    let until = args.duration.as_deref().map(parse_until).transpose()?;
    let change = group::change(&args.name, &args.values, until)?;
    if !create && args.values.is_empty() {
        return Err(Failure::usage(
            "nothing to set; add memory=, reserve=, weight= or cap=",
        ));
    }
    let dir = segments::dir_or_new()?;
    let sample = segments::sample_to_edit(&dir)?;
    match (create, is_defined(&dir.path, &args.name)) {
        (true, true) => {
            return Err(Failure::failed(format!(
                "group {} already exists; change it with gpushare group set",
                args.name
            )));
        }
        (false, false) => return Err(no_such_group(&args.name)),
        _ => {}
    }
    check_reserve(&change, &sample)?;
    submit(change, &args.name, &args.edit, &dir, &sample, out)
}

/// Refuses a reserve that a device cannot give now.
fn check_reserve(change: &Change, sample: &Sample) -> Result<(), Failure> {
    let Change::Group { name, settings, .. } = change else {
        return Ok(());
    };
    let Some(reserve) = settings.reserve.value() else {
        return Ok(());
    };
    let known = sample.groups.iter().find(|group| group.name == *name);
    for (gpu, device) in sample.devices.iter().enumerate() {
        let wanted = reserve.of_device(device.total_bytes);
        let own = known.map_or(0, |group| {
            let claimed = sample.group_claim(group, gpu);
            claimed.max(sample.group_reserve(group, gpu))
        });
        let most = own.saturating_add(sample.unclaimed_bytes(gpu));
        if wanted > most {
            return Err(Failure::failed(format!(
                "group {name} cannot have {} of gpu{gpu} reserved: there are {} that no other process holds or has reserved",
                human_size(wanted),
                human_size(most),
            )));
        }
    }
    Ok(())
}

fn remove(args: &RmArgs, out: &mut dyn Write) -> Done {
    check_group("group", &args.name)?;
    let dir = segments::dir()?;
    let sample = segments::sample_to_edit(&dir)?;
    if !is_defined(&dir.path, &args.name) {
        return Err(no_such_group(&args.name));
    }
    let change = Change::remove_group(args.name.clone());
    submit(change, &args.name, &args.edit, &dir, &sample, out)
}

fn submit(
    change: Change,
    name: &str,
    options: &EditOptions,
    dir: &SegmentDir,
    sample: &Sample,
    out: &mut dyn Write,
) -> Done {
    let editor = segments::editor(dir);
    let request = EditRequest::new(change, format!("group {name}"), Place::Ctl)
        .because(options.reason.clone());
    options.submit(&editor, vec![request], sample, out)?;
    Ok(Exit::Done)
}

fn no_such_group(name: &str) -> Failure {
    Failure::no_such_target(format!(
        "there is no group {}; gpushare group show lists them, group create makes one",
        gpushare_base::text::plain::plain(name)
    ))
}

/// Returns true if an operator has defined the group. A process may also have named a group without settings.
fn is_defined(dir: &std::path::Path, name: &str) -> bool {
    let Ok(segments) = Segments::open_viewer(dir) else {
        return false;
    };
    snapshot(&segments, clock::now())
        .groups
        .iter()
        .any(|group| group.name == name && group.defined)
}

object! {
    /// The document that `--json` writes.
    pub(crate) Document<'a>(lines: Vec<Line<'a>>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        groups: Vec<Line<'a>> = lines, "The groups, in the order of their names.";
    }
}

object! {
    pub(crate) Line<'a>(snapshot: &'a Snapshot, group: &'a GroupView, now_ns: u64) {
        name: &'a str = &group.name, "Its name.";
        defined: bool = group.defined, "Whether an operator defined it; if not, a process named it.";
        memory: Option<String> = (group.memory != QuotaValue::Inherit).then(|| group.memory.to_string()), "What its members may hold together on a device, as an operator writes it; null when nothing is set.";
        memory_bytes: Option<u64> = bytes(group.memory), "The same as a number; null for a percentage, for none and when nothing is set.";
        weight: Option<u32> = group.weight, "The weight each member inherits.";
        cap_percent: Option<u32> = group.cap, "The cap each member inherits.";
        reserve: Option<String> = group.reserve.map(|reserve| reserve.to_string()), "What no process outside it can take on a device; null when nothing is set.";
        reverts_in_ns: Option<u64> = group.until_ns.map(|until| until.saturating_sub(now_ns)), "Time until the first of these reverts by itself; null where all last.";
        members: usize = group.members.len(), "Members alive now.";
        used_bytes: Vec<u64> = used(snapshot, &group.members), "What its members hold, for each device of the segment.";
    }
}

/// Returns the bytes of a quota, or `None` for a percentage, whose bytes depend on the device.
fn bytes(memory: QuotaValue) -> Option<u64> {
    match memory {
        QuotaValue::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let segments = Segments::open_viewer(&dir.path)?;
    let snapshot = snapshot(&segments, clock::now());
    let wanted = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    let groups = snapshot.groups.iter();
    let lines: Vec<Line<'_>> = groups
        .filter(|group| wanted(&group.name))
        .map(|group| Line::of(&snapshot, group, snapshot.time_ns))
        .collect();
    if let (Some(name), true) = (&args.name, lines.is_empty()) {
        return Err(no_such_group(name));
    }
    if args.json {
        return json(out, &Document::of(lines));
    }
    if lines.is_empty() {
        note("there is no group; gpushare group create NAME memory=SIZE makes one");
    }
    table(&lines).write(out)?;
    Ok(Exit::Done)
}

/// Returns the memory that the members hold together, for each device of the segment.
fn used(snapshot: &Snapshot, members: &[SlotId]) -> Vec<u64> {
    let mut used = vec![0; snapshot.devices.len()];
    let of_group = snapshot
        .processes
        .iter()
        .filter(|process| members.contains(&process.slot));
    for held in of_group.flat_map(|process| &process.devices) {
        if let Some(at) = snapshot
            .devices
            .iter()
            .position(|device| device.index == held.device)
        {
            used[at] += held.used;
        }
    }
    used
}

fn table(lines: &[Line<'_>]) -> Table {
    let mut table = Table::new(&[
        ("GROUP", Side::Left),
        ("MEMBERS", Side::Right),
        ("USED", Side::Right),
        ("MEMORY", Side::Right),
        ("WEIGHT", Side::Right),
        ("CAP", Side::Right),
        ("RESERVE", Side::Right),
        ("REVERTS IN", Side::Right),
        ("", Side::Left),
    ]);
    for line in lines {
        let used: Vec<String> = line
            .used_bytes
            .iter()
            .map(|bytes| gpushare_base::text::units::short_size(*bytes))
            .collect();
        table.row([
            line.name.to_owned(),
            line.members.to_string(),
            if used.is_empty() {
                "-".into()
            } else {
                used.join("+")
            },
            line.memory.clone().unwrap_or_else(|| "-".into()),
            line.weight
                .map_or_else(|| "-".into(), |weight| weight.to_string()),
            line.cap_percent
                .map_or_else(|| "-".into(), |cap| format!("{cap}%")),
            line.reserve.clone().unwrap_or_else(|| "-".into()),
            line.reverts_in_ns.map_or_else(|| "-".into(), short_time),
            if line.defined {
                String::new()
            } else {
                "only named by its members".into()
            },
        ]);
    }
    table
}
