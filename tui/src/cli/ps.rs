//! `gpushare ps`: one line for each process and device.

use std::io::Write;

use super::table::{Side, Table, clip};
use super::{Done, json, note, segments};
use crate::doctor;
use crate::sample::columns::{self, Column, Row};
use crate::sample::keys::object;
use crate::sample::report::{self, ProcessReport};
use crate::sample::{DeviceSample, Holding, ProcessSample, SCHEMA_VERSION, Sample, Who, memory};
use crate::text::exit::Exit;

/// Show every process on the GPUs: memory held, quota, lock, denials
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON: the key names the unit, null means no value
    #[arg(long)]
    json: bool,
}

object! {
    /// What `--json` writes.
    pub Document<'a>(sample: &'a Sample) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        refused: u64 = sample.unmanaged, "Processes that found no free slot since the segments were made: they run uncounted.";
        refused_last_unix_ms: Option<i64> = sample.refused_unix_ms(), "When the last of them found no free slot; null if none did.";
        processes: Vec<ProcessReport<'a>> = report::processes(sample), "The processes that use a GPU.";
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let sample = segments::sample(&dir)?;
    if let Some(apart) = doctor::apart(&dir) {
        note(&apart);
    }
    if args.json {
        return json(out, &Document::of(&sample));
    }
    table(&sample).write(out)?;
    if sample.processes.is_empty() {
        note(match &sample.segment.waiting {
            Some(waiting) => waiting,
            None => "no process uses a GPU here; start one with gpushare run -- CMD",
        });
    }
    for line in waits(&sample) {
        note(&line);
    }
    if let Some(refusal) = sample.refusal() {
        note(&format!(
            "{refusal}; end some programs, or start some with another GPUSHARE_DIR"
        ));
    }
    Ok(Exit::Done)
}

/// Who waits for memory, and who holds it.
fn waits(sample: &Sample) -> impl Iterator<Item = String> {
    let named = |process: &ProcessSample| format!("{} {}", process.shown_pid(), process.name());
    let holdings = sample.processes.iter().flat_map(|process| {
        process
            .devices
            .iter()
            .map(move |holding| (process, holding))
    });
    holdings.filter_map(move |(process, holding)| {
        let what = memory::sentence(sample, process, holding, named)?;
        Some(format!("{} {what}", named(process)))
    })
}

/// The columns of the table, by key.
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
/// Those that a process has which did nothing on any device.
const OF_PROCESS: [&str; 3] = ["pid", "name", "status"];
/// A longer name is cut, so that 80 columns hold the table, whatever the numbers.
const NAME: usize = 13;

fn table(sample: &Sample) -> Table {
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter_map(|key| columns::find(key))
        .collect();
    let side = |column: &Column| match column.is_text() {
        true => Side::Left,
        false => Side::Right,
    };
    let headings: Vec<_> = columns.iter().map(|c| (c.title, side(c))).collect();
    let mut table = Table::new(&headings);
    let nowhere = (Holding::default(), DeviceSample::default());
    for process in &sample.processes {
        let row = |holding, device| Row {
            who: Who::of(process),
            letter: ' ',
            process,
            holding,
            device,
            recent: None,
            now_ns: sample.time_ns,
        };
        let cell = |column: &Column, row: &Row<'_>| {
            let value = (column.value)(row);
            match column.key {
                "name" => clip(&value.shown(), NAME),
                _ => value.shown().into_owned(),
            }
        };
        let used = process.devices.iter().filter(|holding| is_used(holding));
        let mut rows = used
            .map(|holding| {
                let device = sample.devices.get(holding.gpu).unwrap_or(&nowhere.1);
                row(holding, device)
            })
            .peekable();
        if rows.peek().is_none() {
            let row = row(&nowhere.0, &nowhere.1);
            table.row(
                columns
                    .iter()
                    .map(|column| match OF_PROCESS.contains(&column.key) {
                        true => cell(column, &row),
                        false => "-".into(),
                    }),
            );
        }
        for row in rows {
            table.row(columns.iter().map(|column| cell(column, &row)));
        }
    }
    table
}

/// A program sees every device; the table shows those it did something on.
fn is_used(holding: &Holding) -> bool {
    holding.peak > 0
        || holding.launches() > 0
        || holding.counters.denials > 0
        || holding.lock.waited_ns > 0
        || holding.memory_wait.is_some()
        || holding.used > 0
}

#[cfg(test)]
mod tests {
    use super::*;

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
        holding.lock.wait_hist = [9; 32];
        process.devices.push(holding);
        let mut sample = Sample::default();
        sample.processes.push(process);
        sample.time_ns = 90_000_000_000_000;
        let mut out = Vec::new();
        table(&sample).write(&mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("  100%  "), "it waited all its life: {text}");
    }
}
