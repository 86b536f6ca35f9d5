//! `gpushare trace show`: who is traced, how full the buffers are.

use std::io::Write;

use serde::Serialize;
use shm_layout::trace::{self, Reader, TraceState, TraceView};

use super::Place;
use crate::cli::table::{Side, Table, clip};
use crate::cli::{Done, json, note};
use crate::sample::SCHEMA_VERSION;
use crate::text::exit::Exit;
use crate::text::units::{short_count, short_size};
use crate::traces;

/// Show every trace: active, stopped, or left by a process that has ended
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    traces: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    pid: u32,
    name: String,
    /// `on`, `stopped`, `ended`, or why it could not begin.
    state: &'static str,
    records: u64,
    capacity: u32,
    dropped: u64,
    size_bytes: u64,
    started_ns: Option<u64>,
    stopped_ns: Option<u64>,
    file: String,
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let place = Place::look()?;
    let lines = lines(&place);
    if args.json {
        let document = Document {
            schema_version: SCHEMA_VERSION,
            traces: lines,
        };
        return json(out, &document);
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
            clip(&line.name, 16),
            line.state.to_owned(),
            short_count(line.records),
            short_count(line.capacity.into()),
            short_count(line.dropped),
            short_size(line.size_bytes),
            line.file.clone(),
        ]);
    }
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
        let header = reader.header();
        let view = view(header.slot).filter(|_| found.lives());
        let time = |ns: u64| Some(ns).filter(|ns| *ns > 0);
        lines.push(Line {
            pid: found.process.shown_pid(),
            name: found.process.name().to_owned(),
            state: state(view),
            records: reader.records().count() as u64,
            capacity: header.capacity,
            dropped: reader.dropped(),
            size_bytes: trace::size(header.capacity),
            started_ns: time(header.started_ns),
            stopped_ns: time(header.stopped_ns),
            file: found.path.display().to_string(),
        });
    }
    lines
}

fn state(view: Option<TraceView>) -> &'static str {
    let Some(view) = view else { return "ended" };
    match (view.wanted, view.progress.state) {
        (Some(_), TraceState::Off) => "starting",
        // Without an order: asked for at its launch.
        (Some(_), state) | (None, state @ TraceState::On) => state.word(),
        (None, _) => "stopped",
    }
}
