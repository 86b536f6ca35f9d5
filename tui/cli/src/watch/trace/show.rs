//! `gpushare trace show`: lists the traces and the fill of their buffers.

use std::io::Write;

use shm_layout::trace::{self, Reader, TraceState, TraceView};

use super::Place;
use crate::table::{LONGEST_NAME, SHORT_NAME, Side, Table, shorten};
use crate::{Done, json, note};
use gpushare_base::text::exit::Exit;
use gpushare_base::text::units::{short_count, short_size};
use gpushare_launch::traces::{self, Found};
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

/// Column of the process's name.
const NAME_COLUMN: usize = 1;

/// Show every trace: active, stopped, or left by a process that has ended
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON
    #[arg(long)]
    json: bool,
}

object! {
    /// The document that `--json` writes.
    pub Document(lines: Vec<Line>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        traces: Vec<Line> = lines, "The traces here.";
    }
}

object! {
    /// A trace.
    pub Line(found: &Found, reader: &Reader, view: Option<TraceView>) {
        pid: u32 = found.process.shown_pid(), "The process's pid on this host, or the one it has in its own namespace.";
        name: String = found.process.name().to_owned(), "Its label, or else its container or its program.";
        state: &'static str = state(view), "starting, on, stopped, ended (the process has), or the reason why nothing is recorded.";
        records: u64 = reader.records().count() as u64, "Records written.";
        capacity: u32 = reader.header().capacity, "Records for which the buffer has room.";
        dropped: u64 = reader.dropped(), "Records that did not fit.";
        size_bytes: u64 = trace::size(reader.header().capacity), "Size of the buffer.";
        started_ns: Option<u64> = time(reader.header().started_ns), "When the process began to record, on CLOCK_BOOTTIME; null if it has not.";
        stopped_ns: Option<u64> = time(reader.header().stopped_ns), "When it stopped; null while it records or if it died.";
        file: String = found.path.display().to_string(), "The buffer's file.";
    }
}

fn time(ns: u64) -> Option<u64> {
    Some(ns).filter(|ns| *ns > 0)
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let place = Place::look()?;
    let lines = lines(&place);
    if args.json {
        return json(out, &Document::of(lines));
    }
    let mut table = Table::new(&[
        ("PID", Side::Right),
        ("NAME", Side::Left),
        ("STATE", Side::Left),
        ("RECORDS", Side::Right),
        ("ROOM", Side::Right),
        ("DROPPED", Side::Right),
        ("SIZE", Side::Right),
        ("FILE", Side::Left),
    ]);
    for line in &lines {
        table.row([
            line.pid.to_string(),
            shorten(&line.name, LONGEST_NAME),
            line.state.to_owned(),
            short_count(line.records),
            short_count(line.capacity.into()),
            short_count(line.dropped),
            short_size(line.size_bytes),
            line.file.clone(),
        ]);
    }
    table.fit_terminal(&[(NAME_COLUMN, SHORT_NAME)]);
    table.write(out)?;
    if lines.is_empty() {
        note("there is no trace; gpushare trace start TARGET makes one");
    }
    Ok(Exit::Done)
}

fn lines(place: &Place) -> Vec<Line> {
    let snapshot = place.snapshot();
    let view = |slot| {
        let process = snapshot
            .processes
            .iter()
            .find(|process| process.slot == slot);
        process.map(|process| process.trace)
    };
    let mut lines = Vec::new();
    for found in traces::all(&place.dir.path, &place.sample, note) {
        let reader = match Reader::open(&found.path) {
            Ok(reader) => reader,
            Err(error) => {
                note(&format!("{}: {error}", found.title()));
                continue;
            }
        };
        let view = view(reader.header().slot).filter(|_| found.lives());
        lines.push(Line::of(&found, &reader, view));
    }
    lines
}

fn state(view: Option<TraceView>) -> &'static str {
    let Some(view) = view else { return "ended" };
    match (view.wanted, view.progress.state) {
        (Some(_), TraceState::Off) => "starting",
        // Without an order of the operator, the launch asked for the trace.
        (Some(_), state) | (None, state @ TraceState::On) => state.word(),
        (None, _) => "stopped",
    }
}
