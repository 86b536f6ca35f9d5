//! `gpushare apply`: quotas, groups, policies and rules from a file, all checked before any is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;
use shm_layout::{Change, DeviceEdit, SegmentDir, Segments, Set, ShareEdit, Uuid, settings};

use super::edits;
use crate::{Done, note, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_control::audit::Place;
use gpushare_control::manifest::{Manifest, Process};
use gpushare_control::targets::{self, Target};
use gpushare_control::{
    EditRequest, Editor, Installation as _, boot_settings, device_memory, group, policy, quota,
    rule,
};
use gpushare_sample::Sample;

/// Set quotas, groups, policies and rules from a TOML file
///
/// The whole file is checked first; a mistake changes nothing. Its tables are policy, limit, group.NAME,
/// rule and process. A rule holds for every process that matches, those that start later too, and the first one that matches
/// holds: of memory and cap the lesser of the rule and of the launch, else the rule. A rule for every process says all = true.
/// The rules of the file take the place of those in force; a file without rules leaves them. gpushare export-config writes such a file.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file:\n  [policy]\n  all = \"timeslice=5ms order=fair\"\n\n  [limit]\n  all = \"70GiB\"\n\n  [group.team-a]\n  memory = \"16GiB\"\n\n  \
                        [[rule]]\n  user = \"alice\"\n  executable = \"python*\"\n  memory = \"8GiB\"\n  evict-after = \"15m\"\n\n  \
                        [[process]]\n  target = \"name:train\"\n  memory = \"8GiB\"\n  weight = 50\n  optional = true"
)]
pub struct Args {
    /// The file [default: /etc/gpushare/config.toml and, for segments of your own, ~/.config/gpushare/config.toml above it]
    file: Option<PathBuf>,
    /// Do nothing if any setting was changed since the segments were made
    #[arg(long)]
    if_new: bool,
    /// Check it and show what would change; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Reason for the edit, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Add each edit's generation, and how many processes have applied it
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir_or_new()?;
    let Some((manifest, file)) = read(args.file.as_deref(), &dir)? else {
        let files = dir.boot_settings();
        let files: Vec<_> = files.iter().map(|file| file.shown()).collect();
        note(&format!(
            "there is no {}: nothing to apply",
            files.join(" and no ")
        ));
        return Ok(Exit::Done);
    };
    let sample = segments::sample_to_edit(&dir)?;
    if args.if_new && sample.generation != 0 {
        return Ok(Exit::Done);
    }
    let reason = match &args.reason {
        Some(why) => format!("apply {file}: {why}"),
        None => format!("apply {file}"),
    };
    let of_file = |failure: Failure| Failure {
        sentence: format!("{file}: {failure}"),
        ..failure
    };
    let editor = segments::editor(&dir);
    let mut plan = Plan::new(&manifest, &sample, &dir, &editor, &reason).map_err(of_file)?;
    let unmet = plan
        .unmet
        .take()
        .map_or(Ok(Exit::Done), |why| Err(of_file(why)));
    // At a boot there is no user to correct it, so the rest of the file holds.
    if unmet.is_err() && !args.if_new {
        return unmet;
    }
    if plan.everywhere.is_none() && plan.rest.is_empty() && unmet.is_ok() {
        note(&match plan.is_said {
            true => format!("the rules of {file} are in force already"),
            false => format!("{file} contains no settings; gpushare apply --help shows an example"),
        });
    }
    if let Some(refusal) = editor.refusal() {
        return Err(refusal.into());
    }
    for request in plan.everywhere.iter().chain(&plan.rest) {
        editor.check(request)?;
    }
    if args.dry_run {
        let own = match &plan.everywhere {
            Some(everywhere) => {
                policy::would_clear(&editor, &everywhere.change, &sample, &plan.own)?
            }
            None => Vec::new(),
        };
        let requests: Vec<EditRequest> = plan
            .everywhere
            .into_iter()
            .chain(own)
            .chain(plan.rest)
            .collect();
        edits::preview(&editor, &requests, &sample, out)?;
        return unmet;
    }
    if let Some(everywhere) = plan.everywhere {
        let change = everywhere.change.clone();
        edits::apply_all(&editor, vec![everywhere], &sample, args.verbose, out)?;
        let own = policy::clear_own(&change, &sample, &dir, &plan.own, Place::Ctl, Some(&reason))?;
        edits::apply_all(&editor, own, &sample, args.verbose, out)?;
    }
    edits::apply_all(&editor, plan.rest, &sample, args.verbose, out)?;
    unmet
}

/// Reads the file, or the boot settings without one. Returns the settings with a name for messages, or `None` if there are
/// none.
fn read(file: Option<&Path>, dir: &SegmentDir) -> Result<Option<(Manifest, String)>, Failure> {
    match file {
        Some(file) => Ok(Some((Manifest::read(file)?, file.shown()))),
        None => boot_settings::read(dir),
    }
}

/// Applies the boot settings to new segments. Does nothing if there is no file.
pub fn standing(dir: &SegmentDir, out: &mut dyn Write) -> Result<(), Failure> {
    if dir.boot_settings().iter().any(|file| file.exists()) {
        let args = Args {
            file: None,
            if_new: true,
            dry_run: false,
            reason: None,
            verbose: false,
        };
        run(&args, out)?;
    }
    Ok(())
}

/// The edits of a file in the order in which they are made: policies, limits, groups, then processes.
struct Plan {
    everywhere: Option<EditRequest>,
    /// Devices that get a policy of their own.
    own: Vec<Uuid>,
    rest: Vec<EditRequest>,
    /// True if the file has rules that are already in force.
    is_said: bool,
    /// Why a line of the file cannot hold yet.
    unmet: Option<Failure>,
}

impl Plan {
    fn new(
        manifest: &Manifest,
        sample: &Sample,
        dir: &SegmentDir,
        editor: &Editor,
        reason: &str,
    ) -> Result<Self, Failure> {
        let mut plan = Self {
            everywhere: None,
            own: Vec::new(),
            rest: Vec::new(),
            is_said: false,
            unmet: None,
        };
        let mut lines = Vec::new();
        for (device, words) in by_device(&manifest.policy, sample)? {
            let mut words = vec![words.clone()];
            let memory = device_memory::take(&mut words)?;
            lines.push((device, memory, words));
        }
        let own = lines
            .iter()
            .filter_map(|(device, memory, _)| Some(((*device)?, *memory)));
        let own: BTreeMap<Uuid, DeviceEdit> = own.collect();
        for (device, memory, words) in lines {
            let memory =
                device_memory::requests(memory, device, &own, sample, editor, Some(reason))?;
            plan.rest.extend(memory);
            if words.is_empty() {
                continue;
            }
            let edit = policy::parse(&words)?;
            let for_all = || match plan.everywhere.as_ref()?.change {
                Change::Policy { policy, .. } => policy,
                _ => None,
            };
            let base = device.and_then(|_| for_all());
            let request =
                policy::request(device, edit, base, sample, dir, Place::Ctl, Some(reason))?;
            match device {
                None => plan.everywhere = Some(request),
                Some(uuid) => {
                    plan.own.push(uuid);
                    plan.rest.push(request);
                }
            }
        }
        let limits = by_device(&manifest.limit, sample)?;
        let own: BTreeSet<Uuid> = limits.iter().filter_map(|(device, _)| *device).collect();
        for (device, value) in limits {
            let value = quota::parse(&value.text())?;
            let devices = match device {
                None => {
                    let all = everywhere(sample)?;
                    plan.unmet = all.is_empty().then(no_device);
                    all
                }
                Some(one) => vec![one],
            };
            let is_meant = |uuid: &Uuid| device.is_some() || !own.contains(uuid);
            for uuid in devices.into_iter().filter(is_meant) {
                let change = Change::DeviceLimit { uuid, value };
                let title = targets::device_title(uuid, sample);
                plan.rest.push(request(change, title, reason));
            }
        }
        if let Some(rules) = &manifest.rule {
            let wanted = rules
                .iter()
                .zip(1..)
                .map(|(entry, place)| rule::read(entry, place))
                .collect::<Result<Vec<_>, _>>()?;
            let present = Segments::open_viewer(&dir.path);
            let present = present
                .map(|segments| settings(&segments))
                .unwrap_or_default();
            let changes = rule::changes(&wanted, &present)?;
            plan.is_said |= changes.is_empty();
            let requests = changes.into_iter();
            plan.rest
                .extend(requests.map(|(change, target)| request(change, target, reason)));
        }
        group::check_room(manifest.group.keys(), sample)?;
        for (name, settings) in &manifest.group {
            let change = group::change(name, &settings.typed(), None)?;
            plan.rest
                .push(request(change, format!("group {name}"), reason));
        }
        for process in &manifest.process {
            plan.rest.extend(of_process(process, sample, reason)?);
        }
        Ok(plan)
    }
}

/// Returns the devices of `[limit] all`: a limit is kept for each device.
fn everywhere(sample: &Sample) -> Result<Vec<Uuid>, Failure> {
    let uuids = (0..sample.devices.len()).map(|gpu| targets::uuid(sample, gpu));
    uuids.collect()
}

fn no_device() -> Failure {
    Failure::no_such_target(
        "[limit] all: found no GPU, so this limit holds for none; gpushare doctor shows why; run gpushare apply again when the GPU is \
         there, or name each GPU by its UUID",
    )
}

/// Returns the lines of a table by device, that for all (`None`) first: a device's own line stands above it.
fn by_device<'m, T>(
    table: &'m BTreeMap<String, T>,
    sample: &Sample,
) -> Result<Vec<(Option<Uuid>, &'m T)>, Failure> {
    let uuid = |device: &str| match device {
        "all" => Ok(None),
        one => targets::device_uuid(one, sample).map(Some),
    };
    let lines = table
        .iter()
        .map(|(device, value)| Ok((uuid(device)?, value)));
    let mut lines: Vec<_> = lines.collect::<Result<_, Failure>>()?;
    lines.sort_by_key(|(device, _)| device.is_some());
    Ok(lines)
}

fn of_process(
    process: &Process,
    sample: &Sample,
    reason: &str,
) -> Result<Vec<EditRequest>, Failure> {
    let target: Target = process.target.parse().map_err(Failure::usage)?;
    let (memory, mut share) = process.settings.read()?;
    share.paused = process.paused.map_or(Set::Keep, Set::To);
    let chosen = match target.resolve(sample) {
        Err(failure) if process.optional && failure.exit == Exit::NoSuchTarget => {
            return Ok(Vec::new());
        }
        chosen => chosen?,
    };
    let mut requests = Vec::new();
    for chosen in chosen {
        let quota = memory.map(|value| Change::ProcessQuota {
            slot: chosen.slot,
            device: None,
            value,
            until: None,
        });
        let share = (share != ShareEdit::default()).then(|| share.change(chosen.slot));
        for change in quota.into_iter().chain(share) {
            let request = chosen.request(change, Place::Ctl);
            requests.push(request.because(Some(reason.to_owned())));
        }
    }
    Ok(requests)
}

fn request(change: Change, target: String, reason: &str) -> EditRequest {
    EditRequest::new(change, target, Place::Ctl).because(Some(reason.to_owned()))
}
