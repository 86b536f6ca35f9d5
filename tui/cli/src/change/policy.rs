//! `gpushare policy`: the time at which the holder of a device's lock must yield, and the order of the waiters.

use std::collections::BTreeMap;
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
use gpushare_sample::keys::{Key, Keys, object};
use gpushare_sample::{DeviceSample, SCHEMA_VERSION, Sample};
use serde::{Serialize, Serializer};
use serde_json::Value;
use shm_layout::LockPolicy;
use shm_layout::policy::{POLICY_ROWS, PolicyRow, policy_words};

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
    /// is full, an allocation has idle or paused processes of no higher priority evicted, those first whose return costs least.
    /// timeslice=T swap=on, or turn=T beside overcommit=on: also busy ones, after their turn
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
    let mut help = String::new();
    for (word, values, about) in policy_words() {
        let equals = if values.is_some() { "=" } else { "" };
        let range = values.and_then(|values| values.range());
        let range = range.map_or_else(String::new, |[least, most]| format!(", {least}..{most}"));
        help.push_str(&format!(
            "{:<20}{about}{range}\n",
            format!("{word}{equals}")
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
        gpu => Some(targets::uuid(&sample, targets::device(gpu, &sample)?)?),
    };
    let editor = segments::editor(&dir);
    let reason = args.edit.reason.as_deref();
    let own = BTreeMap::new();
    let requests = device_memory::requests(memory, device, &own, &sample, &editor, reason)?;
    args.edit.submit_some(&editor, requests, &sample, out)?;
    let Some(edit) = edit else {
        return Ok(Exit::Done);
    };
    let first = policy::request(device, edit, None, &sample, &dir, Place::Ctl, reason)?;
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
        ..settings: Settings = Settings(device.policy.0);
        evict_after_ns: Option<u64> = device.evict_after, "The idle time after which processes that have no setting of their own are evicted; null for never.";
        overcommit: bool = device.overcommit, "Whether whoever finds the device full may have idle processes evicted.";
        source: &'a str = device.policy.1.word(), "Who set the policy: default, launch, group, operator, invalid, or another tool's variable.";
        reverts_in_ns: Option<u64> = device.policy_until_ns.map(|until| until.saturating_sub(now_ns)), "Time until the policy reverts by itself; null for a lasting one.";
        waiters: usize = device.waiters.len(), "How many processes wait for the lock.";
        handoffs: u64 = device.handoffs, "Times the lock went from one process to another.";
        forced: u64 = device.forced, "Times it was taken from a holder that did not yield.";
    }
}

/// The settings of a policy besides its kind, a key each.
#[derive(Debug)]
pub(crate) struct Settings(LockPolicy);

impl Settings {
    /// Lists each row with its value; `None` for one that has no effect under the policy's kind.
    fn values(&self) -> impl Iterator<Item = (&'static PolicyRow, Option<u64>)> {
        let kind = self.0.kind;
        let settings = self.0.settings();
        settings.map(move |(row, number)| (row, row.applies(kind).then_some(number)))
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.values().map(|(row, number)| {
            let value = match row.values.limits {
                _ if row.values.is_switch() => Value::from(number == Some(1)),
                None => Value::from(number.and_then(|number| row.values.word_of(number))),
                // `auto` is null.
                Some(_) => Value::from(number.and_then(|number| row.values.amount(number))),
            };
            (row.key, value)
        }))
    }
}

impl Keys for Settings {
    fn list(path: &str, keys: &mut Vec<Key>) {
        for row in POLICY_ROWS {
            u64::add(path, row.key, row.says, keys);
        }
    }
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
    let shown = |row: &PolicyRow| !row.title.is_empty();
    let side = |row: &PolicyRow| match row.values.limits {
        None => Side::Left,
        Some(_) => Side::Right,
    };
    let settings = POLICY_ROWS.iter().filter(|row| shown(row));
    let mut columns = vec![("GPU", Side::Right), ("POLICY", Side::Left)];
    columns.extend(settings.map(|row| (row.title, side(row))));
    columns.extend([
        ("EVICT", Side::Right),
        ("OVERCOMMIT", Side::Left),
        ("SOURCE", Side::Left),
        ("REVERTS IN", Side::Right),
        ("QUEUE", Side::Right),
        ("FORCED", Side::Right),
        ("MORE", Side::Left),
    ]);
    let mut table = Table::new(&columns);
    for line in lines(&sample) {
        let settings = line.settings.values().filter(|(row, _)| shown(row));
        let settings = settings.map(|(row, number)| {
            number.map_or_else(|| "-".to_owned(), |number| row.values.show(number))
        });
        let more = more(&line.settings);
        let mut cells = vec![line.gpu.to_string(), line.policy];
        cells.extend(settings);
        cells.extend([
            line.evict_after_ns
                .map_or_else(|| "-".into(), units::format_duration),
            match (line.settings.0.swap, line.overcommit) {
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
            more,
        ]);
        table.row(cells);
    }
    table.write(out)?;
    Ok(Exit::Done)
}

/// Returns the settings without a column that are not the default, as a person types them: `evict-idle=2s stay=5s`.
fn more(settings: &Settings) -> String {
    let untold = settings.values().filter_map(|(row, number)| {
        // `auto` and `never` are 0; a switch is shown beside OVERCOMMIT.
        let number = number.filter(|number| *number != 0)?;
        let is_untold = row.title.is_empty() && !row.values.is_switch();
        is_untold.then(|| format!("{}={}", row.word, row.values.show(number)))
    });
    let words: Vec<String> = untold.collect();
    match words.is_empty() {
        true => "-".into(),
        false => words.join(" "),
    }
}
