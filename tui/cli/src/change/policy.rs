//! `gpushare policy`: the time at which the holder of a device's lock must yield, and the order of the waiters.

use std::io::Write;

use super::edits::{self, EditOptions};
use crate::table::{Side, Table};
use crate::{Done, json, segments};
use gpushare_base::text::exit::Exit;
use gpushare_base::text::units;
use gpushare_control::audit::Place;
use gpushare_control::quota::parse_until;
use gpushare_control::targets;
use gpushare_control::{EditRequest, device_memory, policy};
use gpushare_sample::keys::object;
use gpushare_sample::{DeviceSample, SCHEMA_VERSION, Sample};
use shm_layout::PolicyKind;

/// Set or show lock policies
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
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
    /// off, overlap[=AHEAD], always, launches=N or timeslice=T, and the keys below; inherit unsets the policy. With a policy or
    /// alone, evict-after=TIME|never|inherit evicts processes that have been idle for that long. overcommit=on: if the device
    /// is full, an allocation has idle or paused processes of no higher priority evicted, the longest idle first. timeslice=T
    /// swap=on: also busy ones, after their turn
    #[arg(required = true, value_name = "POLICY")]
    words: Vec<String>,
    /// Go back to the present policy and settings after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    span: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Lists the keys and their ranges, from the table of fields.
fn policy_help() -> String {
    let mut help = String::from("off                 count only; no process waits for the lock\n");
    help.push_str("always              yield after every launch\n");
    for field in units::POLICY_FIELDS {
        let (least, most) = field.range();
        let range = if field.is_of_words() {
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
        "A holder yields only when another process waits. Keys that are not given keep their values.",
    );
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

fn set(args: &SetArgs, out: &mut dyn Write) -> Done {
    let mut words = args.words.clone();
    let memory = device_memory::take(&mut words)?;
    let until = args.span.as_deref().map(parse_until).transpose()?;
    let memory = until.map_or(memory, |ns| memory.timed(ns));
    let edit = (!words.is_empty())
        .then(|| policy::parse(&words))
        .transpose()?;
    let dir = segments::dir_or_new()?;
    let sample = segments::sample_to_edit(&dir)?;
    let device = match args.gpu.as_str() {
        "all" => None,
        gpu => Some(targets::device(gpu, &sample)?),
    };
    let editor = segments::editor(&dir);
    let reason = args.edit.reason.as_deref();
    let requests = device_memory::requests(memory, device, &sample, reason)?;
    args.edit.submit_some(&editor, requests, &sample, out)?;
    let Some(edit) = edit else {
        return Ok(Exit::Done);
    };
    let first = policy::request(device, edit, &sample, &dir, Place::Ctl, reason)?;
    let first = policy::timed(first, until);
    if args.edit.dry_run {
        let own = policy::would_clear(&editor, &first.change, &sample, &[])?;
        let requests: Vec<EditRequest> = std::iter::once(first).chain(own).collect();
        args.edit.submit(&editor, requests, &sample, out)?;
        return Ok(Exit::Done);
    }
    let everywhere = first.change.clone();
    let verbose = args.edit.verbose;
    edits::apply_all(&editor, vec![first], &sample, verbose, out)?;
    if device.is_none() {
        edits::apply_all(
            &editor,
            policy::clear_own(&everywhere, &sample, &dir, &[], Place::Ctl, reason)?,
            &sample,
            verbose,
            out,
        )?;
    }
    Ok(Exit::Done)
}

object! {
    /// The document that `--json` writes.
    pub(crate) Document<'a>(sample: &'a Sample) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        generation: u64 = sample.generation, "Edits of operators so far.";
        policies: Vec<Line<'a>> = lines(sample), "One entry for each device, in the order of their numbers.";
    }
}

object! {
    pub(crate) Line<'a>(gpu: usize, device: &'a DeviceSample, now_ns: u64) {
        gpu: usize = gpu, "The device's number, as --gpu takes it.";
        uuid: &'a str = &device.uuid, "Its UUID.";
        policy: String = device.policy.0.kind.to_string(), "off, overlap[=AHEAD], always, launches=N or timeslice=T.";
        order: &'static str = device.policy.0.order.word(), "Which process is next.";
        idle_ns: Option<u64> = device.policy.0.idle_ns, "A holder releases when nothing was submitted for this time; null for auto.";
        max_hold_ns: u64 = device.policy.0.max_hold_ns, "The longest hold while others wait.";
        grace_ns: u64 = device.policy.0.grace_ns, "How long a drain may take before it is forced.";
        sync_skips: u32 = device.policy.0.sync_skips, "Synchronisations that are skipped before one releases.";
        overlap_ns: Option<u64> = overlap_ns(device), "What may still run of a turn when the next begins; null without time slices.";
        swap: bool = device.policy.0.swap, "Whether a turn includes the memory: who finds the device full has a process evicted that had its turn.";
        evict_after_ns: Option<u64> = device.evict_after, "The idle time after which processes that have no setting of their own are evicted; null for never.";
        overcommit: bool = device.overcommit, "Whether whoever finds the device full may have idle processes evicted.";
        source: &'a str = device.policy.1.word(), "Who set the policy: default, launch, group, operator, invalid, or another tool's variable.";
        reverts_in_ns: Option<u64> = device.policy_until_ns.map(|until| until.saturating_sub(now_ns)), "Time until the policy reverts by itself; null for a lasting one.";
        waiters: usize = device.waiters.len(), "How many processes wait for the lock.";
        handoffs: u64 = device.handoffs, "Times the lock went from one process to another.";
        forced: u64 = device.forced, "Times it was taken from a holder that did not yield.";
    }
}

fn overlap_ns(device: &DeviceSample) -> Option<u64> {
    let policy = device.policy.0;
    matches!(policy.kind, PolicyKind::Timeslice(_)).then_some(policy.overlap_ns)
}

fn lines(sample: &Sample) -> Vec<Line<'_>> {
    let devices = sample.devices.iter().enumerate();
    devices
        .map(|(gpu, device)| Line::of(gpu, device, sample.time_ns))
        .collect()
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> Done {
    let sample = segments::sample(&segments::dir()?)?;
    if args.json {
        return json(out, &Document::of(&sample));
    }
    let mut table = Table::new(&[
        ("GPU", Side::Right),
        ("POLICY", Side::Left),
        ("ORDER", Side::Left),
        ("OVERLAP", Side::Right),
        ("IDLE", Side::Right),
        ("MAX-HOLD", Side::Right),
        ("GRACE", Side::Right),
        ("SKIPS", Side::Right),
        ("EVICT", Side::Right),
        ("OVERCOMMIT", Side::Left),
        ("SOURCE", Side::Left),
        ("REVERTS IN", Side::Right),
        ("QUEUE", Side::Right),
        ("FORCED", Side::Right),
    ]);
    for line in lines(&sample) {
        table.row([
            line.gpu.to_string(),
            line.policy,
            line.order.to_owned(),
            line.overlap_ns
                .map_or_else(|| "-".into(), units::format_duration),
            units::format_idle(line.idle_ns),
            units::format_duration(line.max_hold_ns),
            units::format_duration(line.grace_ns),
            line.sync_skips.to_string(),
            line.evict_after_ns
                .map_or_else(|| "-".into(), units::format_duration),
            match (line.swap, line.overcommit) {
                (true, _) => "by turns",
                (false, true) => "on",
                (false, false) => "off",
            }
            .to_owned(),
            line.source.to_owned(),
            line.reverts_in_ns
                .map_or_else(|| "-".into(), units::short_time),
            line.waiters.to_string(),
            line.forced.to_string(),
        ]);
    }
    table.write(out)?;
    Ok(Exit::Done)
}
