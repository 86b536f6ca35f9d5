//! `gpushare quota`: the maximum memory of a process.

use std::io::Write;

use shm_layout::{Change, Until};

use super::edits::EditOptions;
use crate::table::{LONGEST_NAME, SHORT_NAME, Side, Table, shorten};
use crate::{Done, json, note, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units::{format_size, short_size, short_time};
use gpushare_control::audit::Place;
use gpushare_control::targets::{self, Chosen, Target};
use gpushare_control::{preview, quota};
use gpushare_sample::keys::object;
use gpushare_sample::{Holding, ProcessSample, SCHEMA_VERSION, Sample};

/// Column of the process's name.
const NAME_COLUMN: usize = 1;

/// Set or show memory quotas
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Set(SetArgs),
    Show(ShowArgs),
}

/// Change a running process's quota, from its next allocation on
///
/// If the process already holds more, it keeps its memory, and new allocations are refused.
#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// pid, name:LABEL, group:G, user:U or all
    target: String,
    /// A size (8GiB, 512M), a share of the device (25%), none for no limit, or inherit to unset it
    #[arg(value_name = "SIZE|%|none|inherit")]
    value: String,
    /// Only on this device (number or UUID) [default: every device of the target]
    #[arg(long, value_name = "N")]
    gpu: Option<String>,
    /// Revert automatically after this time
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    duration: Option<String>,
    #[command(flatten)]
    edit: EditOptions,
}

/// Show every process's quota and where it comes from
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Show only this target
    target: Option<String>,
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
    let target: Target = args.target.parse().map_err(Failure::usage)?;
    let value = quota::parse(&args.value)?;
    let until = args
        .duration
        .as_deref()
        .map(quota::parse_until)
        .transpose()?;
    let dir = segments::dir()?;
    let sample = segments::sample_to_edit(&dir)?;
    let gpu = args
        .gpu
        .as_deref()
        .map(|gpu| targets::device(gpu, &sample))
        .transpose()?;
    let requests = target
        .resolve(&sample)?
        .iter()
        .map(|chosen| {
            let change = Change::ProcessQuota {
                slot: chosen.slot,
                device: entry(chosen, gpu, &sample)?,
                value,
                until: until.map(Until::lasting),
            };
            let mut request = chosen.request(change, Place::Ctl);
            request.target.extend(gpu.map(|gpu| format!(" gpu{gpu}")));
            Ok(request.because(args.edit.reason.clone()))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    args.edit
        .submit(&segments::editor(&dir), requests, &sample, out)?;
    if !args.edit.dry_run {
        warn_over_quota(&target, &dir)?;
    }
    Ok(Exit::Done)
}

/// Returns the process's own number of a device.
fn entry(chosen: &Chosen, gpu: Option<usize>, sample: &Sample) -> Result<Option<u8>, Failure> {
    let Some(gpu) = gpu else { return Ok(None) };
    let process = sample.process(chosen.slot);
    let holding = process.and_then(|process| process.on(gpu));
    holding.map(|holding| Some(holding.entry)).ok_or_else(|| {
        Failure::no_such_target(format!(
            "{} does not use gpu{gpu}; omit --gpu to set its quota on every device, including later ones",
            plain(&chosen.title)
        ))
    })
}

/// Warns of the processes that hold more than their new quota.
fn warn_over_quota(target: &Target, dir: &shm_layout::SegmentDir) -> Result<(), Failure> {
    let sample = segments::sample(dir)?;
    let Ok(chosen) = target.resolve(&sample) else {
        return Ok(());
    };
    for (process, holding) in holdings(&sample, Some(&chosen)) {
        if let Some(warning) =
            preview::Effect::present(process, holding).warning(preview::Tense::Now)
        {
            note(&warning);
        }
    }
    Ok(())
}

fn holdings<'a>(
    sample: &'a Sample,
    only: Option<&'a [Chosen]>,
) -> impl Iterator<Item = (&'a ProcessSample, &'a Holding)> {
    let wanted = move |process: &&ProcessSample| {
        process.slot().is_some_and(|slot| {
            only.is_none_or(|only| {
                only.iter().any(|chosen| {
                    (chosen.slot.index, chosen.slot.epoch) == (slot.index, slot.epoch)
                })
            })
        })
    };
    let managed = sample.processes.iter().filter(wanted);
    managed.flat_map(|process| {
        process
            .devices
            .iter()
            .map(move |holding| (process, holding))
    })
}

object! {
    /// The document that `--json` writes.
    pub(crate) Document<'a>(lines: Vec<Line<'a>>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        quotas: Vec<Line<'a>> = lines, "One entry for each process and device.";
    }
}

object! {
    pub(crate) Line<'a>(sample: &'a Sample, process: &'a ProcessSample, holding: &'a Holding) {
        pid: Option<u32> = process.pid, "The process's pid on this host; null if it is not visible from here.";
        name: &'a str = process.name(), "Its label, or else its container or its program.";
        gpu: usize = holding.gpu, "The device's number, as --gpu takes it.";
        uuid: &'a str = sample.devices.get(holding.gpu).map_or("", |device| &device.uuid), "The device's UUID.";
        used_bytes: u64 = holding.used, "Memory it holds.";
        peak_bytes: u64 = holding.peak, "The most it has held.";
        quota_bytes: Option<u64> = holding.quota.bytes, "Its quota; null for no limit.";
        quota_source: &'a str = holding.quota.source.word(), "Who set the quota: default, launch, group, operator, invalid, or another tool's variable.";
        reverts_in_ns: Option<u64> = holding.quota_until_ns.map(|until| until.saturating_sub(sample.time_ns)), "Time until the quota reverts by itself; null for a lasting one.";
    }
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> Done {
    let target = args
        .target
        .as_deref()
        .map(str::parse::<Target>)
        .transpose()
        .map_err(Failure::usage)?;
    let sample = segments::sample(&segments::dir()?)?;
    let chosen = target.map(|target| target.resolve(&sample)).transpose()?;
    let lines: Vec<Line<'_>> = holdings(&sample, chosen.as_deref())
        .map(|(process, holding)| Line::of(&sample, process, holding))
        .collect();
    if args.json {
        return json(out, &Document::of(lines));
    }
    let mut table = Table::new(&[
        ("PID", Side::Right),
        ("NAME", Side::Left),
        ("GPU", Side::Right),
        ("USED", Side::Right),
        ("PEAK", Side::Right),
        ("QUOTA", Side::Right),
        ("SOURCE", Side::Left),
        ("REVERTS IN", Side::Right),
    ]);
    for line in &lines {
        table.row([
            line.pid.map_or_else(|| "-".into(), |pid| pid.to_string()),
            shorten(line.name, LONGEST_NAME),
            line.gpu.to_string(),
            short_size(line.used_bytes),
            short_size(line.peak_bytes),
            line.quota_bytes.map_or_else(|| "none".into(), format_size),
            line.quota_source.to_owned(),
            line.reverts_in_ns.map_or_else(|| "-".into(), short_time),
        ]);
    }
    table.fit_terminal(&[(NAME_COLUMN, SHORT_NAME)]);
    table.write(out)?;
    Ok(Exit::Done)
}
