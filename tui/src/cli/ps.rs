//! `gpushare ps`: one line for each process and device.

use std::io::Write;

use serde::Serialize;

use super::table::{Side, Table, clip};
use super::{Done, json, note, segments};
use crate::doctor;
use crate::sample::{Holding, ProcessSample, SCHEMA_VERSION, Sample, report};
use crate::text::exit::Exit;
use crate::text::units::{short_count, short_size, short_time};

/// Show every process on the GPUs: memory held, quota, lock, denials
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON: base units, the unit in the key, null where there is none
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    /// Processes that found no free slot since the segments were made.
    refused: u64,
    /// When the last of them found none; `null` while there is none.
    refused_last_unix_ms: Option<i64>,
    processes: Vec<report::ProcessReport<'a>>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let sample = segments::sample(&dir)?;
    if let Some(apart) = doctor::apart(&dir) {
        note(&apart);
    }
    if args.json {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            refused: sample.unmanaged,
            refused_last_unix_ms: sample.refused_unix_ms(),
            processes: report::processes(&sample),
        };
        return json(out, &document);
    }
    table(&sample).write(out)?;
    if sample.processes.is_empty() {
        note(match &sample.segment.waiting {
            Some(waiting) => waiting,
            None => "no process uses a GPU here; start one with gpushare run -- CMD",
        });
    }
    if let Some(refusal) = sample.refusal() {
        note(&format!(
            "{refusal}; end some, or give some a GPUSHARE_DIR of their own"
        ));
    }
    Ok(Exit::Done)
}

/// 80 columns hold it, whatever the numbers.
fn table(sample: &Sample) -> Table {
    let mut table = Table::new(&[
        ("PID", Side::Right),
        ("NAME", Side::Left),
        ("GPU", Side::Right),
        ("USED", Side::Right),
        ("QUOTA", Side::Right),
        ("HELD", Side::Right),
        ("WAITED", Side::Right),
        ("P99", Side::Right),
        ("DENY", Side::Right),
        ("STATE", Side::Left),
    ]);
    for process in &sample.processes {
        let name = clip(process.name(), 13);
        let used: Vec<&Holding> = process
            .devices
            .iter()
            .filter(|holding| is_used(holding))
            .collect();
        if used.is_empty() {
            let none = || "-".to_owned();
            table.row([
                process.shown_pid().to_string(),
                name,
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                none(),
                process.state.word().to_owned(),
            ]);
            continue;
        }
        for holding in used {
            table.row(row(process, &name, holding));
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
        || holding.used > 0
}

fn row(process: &ProcessSample, name: &str, holding: &Holding) -> [String; 10] {
    let managed = process.is_managed();
    let only_managed = |text: String| if managed { text } else { "-".into() };
    let over = holding
        .quota
        .bytes
        .is_some_and(|quota| holding.used > quota);
    let wait = crate::sample::quantile(&holding.lock.wait_hist, 0.99);
    let state = match process.state {
        crate::sample::ProcessState::Idle
        | crate::sample::ProcessState::Hold
        | crate::sample::ProcessState::Wait => holding.lock.state.word(),
        crate::sample::ProcessState::Stopped
            if holding.lock.state == crate::sample::LockState::Hold =>
        {
            "hold, stopped"
        }
        other => other.word(),
    };
    [
        process.shown_pid().to_string(),
        name.to_owned(),
        holding.gpu.to_string(),
        short_size(holding.used),
        holding.quota.bytes.map_or_else(|| "-".into(), short_size),
        only_managed(short_time(holding.lock.held_ns)),
        only_managed(short_time(holding.lock.waited_ns)),
        wait.map_or_else(|| "-".into(), short_time),
        only_managed(short_count(holding.counters.denials)),
        format!("{state}{}", if over { " over" } else { "" }),
    ]
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
        let mut out = Vec::new();
        table(&sample).write(&mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
