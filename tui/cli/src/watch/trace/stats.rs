//! `gpushare trace stats`: shows the count and the times of each call, also while the program runs.

use std::collections::HashMap;
use std::io::Write;

use super::Place;
use crate::table::{Side, Table};
use crate::{Done, json, note};
use gpushare_base::text::exit::Exit;
use gpushare_base::text::units::{short_count, short_size, short_time};
use gpushare_launch::traces;
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

/// Show count, total, longest and average time, and bytes of each driver call; also while the program runs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Times are what the program spent in the call; WAIT is the part spent waiting for the lock."
)]
pub struct Args {
    /// pid, name:LABEL, group:G, user:U, all, or the path of a trace
    #[arg(value_name = "TARGET|FILE", default_value = "all")]
    subject: String,
    /// Sort by this, largest first
    #[arg(long, value_enum, default_value = "total", value_name = "KEY")]
    sort: Sort,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Sort {
    Total,
    Calls,
    Longest,
    Mean,
    Bytes,
}

object! {
    /// The document that `--json` writes.
    pub Document(traces: usize, lines: Vec<Line>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        processes: usize = traces, "Traces that were added up.";
        calls: Vec<Line> = lines, "Each driver call that was made, sorted by --sort.";
    }
}

object! {
    /// A driver call.
    #[derive(Default)]
    pub Line {
        call: String, "The exported name.";
        calls: u64, "How often it was called.";
        total_ns: u64, "Time spent in it, waits for the lock included.";
        longest_ns: u64, "The longest call.";
        mean_ns: u64, "The average.";
        bytes: u64, "Bytes that it moved or was asked for.";
        waited_ns: u64, "Time spent waiting for the lock in it.";
    }
}

impl Line {
    fn key(&self, sort: Sort) -> u64 {
        match sort {
            Sort::Total => self.total_ns,
            Sort::Calls => self.calls,
            Sort::Longest => self.longest_ns,
            Sort::Mean => self.mean_ns,
            Sort::Bytes => self.bytes,
        }
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let place = Place::look()?;
    let found = traces::choose(&args.subject, &place.dir.path, &place.sample, note)?;
    let mut sums: HashMap<String, Line> = HashMap::new();
    for found in &found {
        for stat in found.read()?.stats() {
            let line = sums.entry(stat.name.to_owned()).or_insert_with(|| Line {
                call: stat.name.to_owned(),
                ..Line::default()
            });
            line.calls = line.calls.saturating_add(stat.count);
            line.total_ns = line.total_ns.saturating_add(stat.total_ns);
            line.longest_ns = line.longest_ns.max(stat.longest_ns);
            line.bytes = line.bytes.saturating_add(stat.bytes);
            line.waited_ns = line.waited_ns.saturating_add(stat.waited_ns);
            line.mean_ns = line.total_ns / line.calls.max(1);
        }
    }
    let mut lines: Vec<Line> = sums.into_values().collect();
    lines.sort_by(|a, b| {
        b.key(args.sort)
            .cmp(&a.key(args.sort))
            .then_with(|| a.call.cmp(&b.call))
    });
    if args.json {
        return json(out, &Document::of(found.len(), lines));
    }
    let mut table = Table::new(&[
        ("CALL", Side::Left),
        ("CALLS", Side::Right),
        ("TOTAL", Side::Right),
        ("LONGEST", Side::Right),
        ("MEAN", Side::Right),
        ("WAIT", Side::Right),
        ("BYTES", Side::Right),
    ]);
    for line in &lines {
        table.row([
            line.call.clone(),
            short_count(line.calls),
            short_time(line.total_ns),
            short_time(line.longest_ns),
            short_time(line.mean_ns),
            short_time(line.waited_ns),
            if line.bytes == 0 {
                "-".into()
            } else {
                short_size(line.bytes)
            },
        ]);
    }
    table.write(out)?;
    if lines.is_empty() {
        note("no calls since the trace began");
    }
    Ok(Exit::Done)
}
