//! `gpushare policy`: when the holder of a device's lock must yield, and who is next.

use std::io::Write;

use serde::Serialize;

use super::edits::{self, EditOptions};
use super::table::{Side, Table};
use super::{Done, json, segments};
use crate::edit::audit::Place;
use crate::edit::targets;
use crate::edit::{EditRequest, policy};
use crate::sample::SCHEMA_VERSION;
use crate::text::exit::Exit;
use crate::text::units;

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
    /// off, overlap[=AHEAD], always, launches=N or timeslice=T, and the keys below; inherit unsets the policy
    #[arg(required = true, value_name = "POLICY")]
    words: Vec<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// From the table of fields, so that no range is written twice.
fn policy_help() -> String {
    let mut help = String::from("off                 count only; no process waits for the lock\n");
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
    let edit = policy::parse(&args.words)?;
    let dir = segments::dir_or_new()?;
    let sample = segments::sample_to_edit(&dir)?;
    let device = match args.gpu.as_str() {
        "all" => None,
        gpu => Some(targets::device(gpu, &sample)?),
    };
    let editor = segments::editor(&dir);
    let reason = args.edit.reason.as_deref();
    let first = policy::request(device, edit, &sample, &dir, Place::Ctl, reason)?;
    if args.edit.dry_run {
        let own = policy::would_clear(&editor, &first.change, &sample, &[])?;
        let requests: Vec<EditRequest> = std::iter::once(first).chain(own).collect();
        args.edit.submit(&editor, requests, &sample, out)?;
        return Ok(Exit::Done);
    }
    let everywhere = first.change.clone();
    edits::apply_all(&editor, vec![first], &sample, out)?;
    if device.is_none() {
        edits::apply_all(
            &editor,
            policy::clear_own(&everywhere, &sample, &dir, &[], Place::Ctl, reason)?,
            &sample,
            out,
        )?;
    }
    Ok(Exit::Done)
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
    idle_ns: Option<u64>,
    max_hold_ns: u64,
    grace_ns: u64,
    sync_skips: u32,
    source: &'a str,
    waiters: usize,
    handoffs: u64,
    forced: u64,
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> Done {
    let sample = segments::sample(&segments::dir()?)?;
    let lines = sample.devices.iter().enumerate().map(|(gpu, device)| Line {
        gpu,
        uuid: &device.uuid,
        policy: device.policy.0.kind.to_string(),
        order: device.policy.0.order.word(),
        idle_ns: device.policy.0.idle_ns,
        max_hold_ns: device.policy.0.max_hold_ns,
        grace_ns: device.policy.0.grace_ns,
        sync_skips: device.policy.0.sync_skips,
        source: device.policy.1.word(),
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
            units::format_idle(line.idle_ns),
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
