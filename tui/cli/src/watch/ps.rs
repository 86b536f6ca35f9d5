//! `gpushare ps`: lists the processes, with one line for each device.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write};
use std::sync::LazyLock;
use std::time::Duration;

use super::hosts;
use crate::setup::checks;
use crate::table::{SHORT_NAME, Side, Table, USUAL_WIDTH, shorten, terminal_width};
use crate::{Done, json, note, segments};
use gpushare_base::host::launched;
use gpushare_base::host::signal::started;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::refused::Refused;
use gpushare_base::text::shell;
use gpushare_observe::filter::Filter;
use gpushare_sample::columns::{self, Column, Row};
use gpushare_sample::keys::object;
use gpushare_sample::report::{self, ProcessReport};
use gpushare_sample::{DeviceSample, Holding, ProcessSample, SCHEMA_VERSION, Sample, Who, memory};

/// Show every process on the GPUs: memory held, quota, lock, denials
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON: the key names the unit, null means no value
    #[arg(long)]
    json: bool,
    /// Show only processes that match: terms such as user=alice, used>4G or name~train, or a word to search for
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// Show these columns; gpushare-top(1) lists their keys. Columns about the last seconds are empty here
    #[arg(long, value_name = "KEYS")]
    columns: Option<String>,
    /// Show whole names, and the command line of each process too
    #[arg(long, short, conflicts_with_all = ["json", "hosts"])]
    wide: bool,
    /// Show the processes of these machines, separated by commas: names for ssh, or http://HOST:PORT of gpushare metrics
    /// --listen. --json writes an object for each: host, wrong (why it does not answer, or null) and processes
    #[arg(
        long,
        value_name = "HOSTS",
        value_delimiter = ',',
        conflicts_with = "columns"
    )]
    hosts: Vec<String>,
    /// Repeat every SEC seconds until Ctrl-C
    #[arg(long, value_name = "SEC", num_args = 0..=1, default_missing_value = "2", conflicts_with = "json", value_parser = read_seconds)]
    watch: Option<Duration>,
    /// Stop after N repetitions
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
}

fn read_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|s| (0.1..=3600.0).contains(s));
    let seconds = seconds.ok_or("write seconds between 0.1 and 3600")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The selection of processes and columns.
struct Choice {
    filter: Filter,
    columns: Vec<&'static Column>,
    /// The user's column is added where there are several users.
    is_usual: bool,
    /// The command lines are added.
    is_wide: bool,
    /// The width to which names are cut; `None` for whole names.
    name_width: Option<usize>,
}

/// Returns the columns that are shown without `--columns`.
fn usual() -> Vec<&'static Column> {
    COLUMNS
        .iter()
        .filter_map(|key| columns::find(key))
        .collect()
}

impl Choice {
    fn read(args: &Args) -> Result<Self, Failure> {
        let filter = Filter::parse(args.filter.as_deref().unwrap_or_default())
            .map_err(|why| Failure::usage(format!("--filter: {why}")))?;
        let columns = match &args.columns {
            None => usual(),
            Some(keys) => columns::positions(keys)
                .map_err(|why| Failure::usage(format!("--columns: {why}")))?
                .into_iter()
                .map(|at| &columns::COLUMNS[at])
                .collect(),
        };
        let is_usual = args.columns.is_none();
        let chooses_names = filter.text().contains("name");
        let is_cut = is_usual && !args.wide && !chooses_names;
        Ok(Self {
            filter,
            columns,
            is_usual,
            is_wide: args.wide,
            name_width: is_cut.then(name_width).flatten(),
        })
    }

    /// Keeps only the processes in the sample that match on at least one device.
    fn leave_matching(&self, sample: &mut Sample) {
        if self.filter.is_empty() {
            return;
        }
        let mut processes = std::mem::take(&mut sample.processes);
        processes.retain(|process| {
            rows(process, sample)
                .iter()
                .any(|row| self.filter.accepts(row))
        });
        sample.processes = processes;
    }
}

object! {
    /// The document that `--json` writes.
    pub Document<'a>(sample: &'a Sample) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        refused: u64 = sample.unmanaged, "Processes that found no free slot since the segments were made: they run uncounted.";
        refused_last_unix_ms: Option<i64> = sample.refused_unix_ms(), "When the last of them found no free slot; null if none did.";
        processes: Vec<ProcessReport<'a>> = report::processes(sample), "The processes that use a GPU.";
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let choice = Choice::read(args)?;
    if !args.hosts.is_empty() {
        let hosts = hosts::read(&args.hosts, args.filter.as_deref())?;
        return again(args, out, |out| hosts.ps(args.json, out));
    }
    let dir = segments::dir()?;
    if let Some(apart) = checks::apart(&dir) {
        note(&apart);
    }
    if args.watch.is_none() {
        let mut sample = segments::sample(&dir)?;
        choice.leave_matching(&mut sample);
        if args.json {
            return json(out, &Document::of(&sample));
        }
        show(&sample, &choice, out)?;
        return Ok(Exit::Done);
    }
    let mut live = segments::live(&dir).without_events();
    again(args, out, |out| {
        let mut sample = segments::look(&mut live)?;
        choice.leave_matching(&mut sample);
        show(&sample, &choice, out)?;
        Ok(Exit::Done)
    })
}

/// Shows the output once, or repeatedly with `--watch`.
fn again(args: &Args, out: &mut dyn Write, mut show: impl FnMut(&mut Vec<u8>) -> Done) -> Done {
    let is_screen = args.watch.is_some() && io::stdout().is_terminal();
    let mut shown = 0;
    loop {
        // The text is collected before the screen is cleared, because other machines take time to answer.
        let mut text = Vec::new();
        let exit = show(&mut text)?;
        if is_screen {
            // Clears the screen from the top left corner.
            out.flush()?;
            io::stdout().write_all(b"\x1b[H\x1b[J")?;
        } else if shown > 0 {
            writeln!(out)?;
        }
        out.write_all(&text)?;
        out.flush()?;
        shown += 1;
        let is_last = args.count.is_some_and(|count| shown >= count);
        let Some(pause) = args.watch.filter(|_| !is_last) else {
            return Ok(exit);
        };
        std::thread::sleep(pause);
    }
}

/// Writes the table, and notes below it.
fn show(sample: &Sample, choice: &Choice, out: &mut dyn Write) -> io::Result<()> {
    table(sample, choice).write(out)?;
    if sample.processes.is_empty() {
        note(match &sample.segment.waiting {
            _ if !choice.filter.is_empty() => "no process matches the filter",
            Some(waiting) => waiting,
            None => "no process uses a GPU here; start one with gpushare run -- CMD",
        });
    }
    for line in waits(sample) {
        note(&line);
    }
    if let Some(damage) = sample.damage().filter(|_| sample.is_brokered()) {
        note(&format!("{damage}; {}", sample.damage_remedy()));
    }
    if let Some(refusal) = sample.refusal() {
        note(&format!(
            "{refusal}; {}",
            Refused::remedy(sample.is_brokered())
        ));
    }
    Ok(())
}

/// Returns sentences about the processes that wait for memory, and the holders.
fn waits(sample: &Sample) -> impl Iterator<Item = String> {
    let holdings = sample.processes.iter().flat_map(|process| {
        process
            .devices
            .iter()
            .map(move |holding| (process, holding))
    });
    holdings.filter_map(move |(process, holding)| {
        let what = memory::sentence(sample, process, holding, ProcessSample::pid_and_name)?;
        Some(format!("{} {what}", process.pid_and_name()))
    })
}

/// Keys of the table's columns.
const COLUMNS: [&str; 10] = [
    "pid",
    "name",
    "gpu",
    "used",
    "quota",
    "held",
    "waited_share",
    "wait_p99",
    "denials",
    "status",
];
/// Keys of the columns with a value for a process that used no device.
const OF_PROCESS: [&str; 15] = [
    "rule",
    "pid",
    "user",
    "name",
    "group",
    "weight",
    "priority",
    "cap",
    "on_full",
    "state",
    "container",
    "exe",
    "ns_pid",
    "trace",
    "status",
];

/// Returns the width to which a name is cut on the terminal, so that the table fits; `None` if the output goes elsewhere.
fn name_width() -> Option<usize> {
    Some(SHORT_NAME + terminal_width()?.saturating_sub(USUAL_WIDTH))
}

/// Empty device for a process that used none.
static NOWHERE: LazyLock<(Holding, DeviceSample)> = LazyLock::new(Default::default);

/// Returns one row for each device that the process used, or one row if it used none.
fn rows<'s>(process: &'s ProcessSample, sample: &'s Sample) -> Vec<Row<'s>> {
    let row = |holding, device| Row {
        who: Who::of(process),
        letter: ' ',
        process,
        holding,
        device,
        recent: None,
        now_ns: sample.time_ns,
    };
    let (nothing, nowhere) = &*NOWHERE;
    // A program sees every device; the table shows only those that it used.
    let used = process.devices.iter().filter(|holding| holding.is_used());
    let rows: Vec<_> = used
        .map(|holding| row(holding, sample.devices.get(holding.gpu).unwrap_or(nowhere)))
        .collect();
    match rows.is_empty() {
        true => vec![row(nothing, nowhere)],
        false => rows,
    }
}

/// Returns the chosen columns for a sample.
fn columns_of(sample: &Sample, choice: &Choice) -> Vec<&'static Column> {
    let mut columns = choice.columns.clone();
    let mut users = sample.processes.iter().map(|process| process.identity.uid);
    let first = users.next();
    if choice.is_usual && users.any(|user| Some(user) != first) {
        columns.splice(1..1, columns::find("user"));
    }
    let mut holdings = sample.processes.iter().flat_map(|process| &process.devices);
    let after_quota = columns.iter().position(|column| column.key == "quota");
    if let Some(at) =
        after_quota.filter(|_| choice.is_usual && holdings.any(|one| one.reserved != 0))
    {
        columns.splice(at + 1..at + 1, columns::find("reserved"));
    }
    columns
}

/// Returns the command line of a process, or `-` if it cannot be read.
fn command(process: &ProcessSample) -> String {
    let launched = process
        .pid
        .and_then(|pid| launched::look(pid, started(pid)?).ok());
    let words = launched.map(|launched| launched.command);
    match words.filter(|words| !words.is_empty()) {
        Some(words) => shell::line(words.into_iter().map(OsString::from)),
        None => "-".into(),
    }
}

fn table(sample: &Sample, choice: &Choice) -> Table {
    let columns = columns_of(sample, choice);
    let side = |column: &Column| match column.is_text() {
        true => Side::Left,
        false => Side::Right,
    };
    let headings = columns.iter().map(|c| (c.title, side(c)));
    let command_heading = choice.is_wide.then_some(("COMMAND", Side::Left));
    let mut table = Table::new(&headings.chain(command_heading).collect::<Vec<_>>());
    for process in &sample.processes {
        for row in rows(process, sample) {
            let is_nowhere = std::ptr::eq(row.holding, &NOWHERE.0);
            if !choice.filter.accepts(&row) {
                continue;
            }
            let values = columns.iter().map(|column| {
                if is_nowhere && !OF_PROCESS.contains(&column.key) {
                    return "-".into();
                }
                let value = (column.value)(&row);
                match choice.name_width.filter(|_| column.key == "name") {
                    Some(width) => shorten(&value.shown(), width),
                    None => value.shown().into_owned(),
                }
            });
            table.row(values.chain(choice.is_wide.then(|| command(process))));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the choice without options.
    fn unlimited() -> Choice {
        Choice {
            filter: Filter::default(),
            columns: usual(),
            is_usual: true,
            is_wide: false,
            name_width: Some(SHORT_NAME),
        }
    }

    #[test]
    fn the_user_is_shown_where_there_are_several() {
        let of = |uid| {
            let mut process = ProcessSample::default();
            process.identity.uid = uid;
            process
        };
        let choice = unlimited();
        let shown = |users: &[u32], choice: &Choice| {
            let mut sample = Sample::default();
            sample.processes.extend(users.iter().map(|uid| of(*uid)));
            columns_of(&sample, choice)
                .iter()
                .any(|column| column.key == "user")
        };
        assert!(shown(&[1000, 1000, 1001], &choice));
        assert!(!shown(&[1000, 1000], &choice));
        assert!(!shown(&[], &choice));
        let chosen = Choice {
            is_usual: false,
            ..choice
        };
        assert!(!shown(&[1000, 1001], &chosen));
    }

    #[test]
    fn the_widest_numbers_fit_eighty_columns() {
        let mut process = ProcessSample {
            pid: Some(4_194_304),
            ..ProcessSample::default()
        };
        process.view.slot.epoch = 1;
        process.identity.label = "a-name-far-too-long-to-show".into();
        let mut holding = Holding::default();
        holding.view.used = 141_u64 << 30;
        holding.quota.bytes = Some(140_900_000_000);
        holding.counters.denials = 1_234_567;
        holding.lock.held_ns = 400_000_000_000;
        holding.lock.waited_ns = 90_000_000_000_000;
        holding.lock.waits.counts = [9; shm_layout::HISTOGRAM];
        process.devices.push(holding);
        let mut sample = Sample::default();
        sample.processes.push(process);
        sample.time_ns = 90_000_000_000_000;
        let mut out = Vec::new();
        let choice = unlimited();
        table(&sample, &choice).write(&mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("  100%  "), "it waited all its life: {text}");
        assert!(text.contains("a-name~o-show"), "{text}");
    }
}
