//! One look, or several, as text: for pipes, scripts and monitors.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde::Serialize;

use super::data::alert::Severity;
use super::data::blame::Pair;
use super::options::Format;
use super::state::State;
use crate::sample::columns::{COLUMNS, Value};
use crate::sample::report::{self, ProcessReport};
use crate::sample::{DeviceSample, SCHEMA_VERSION, nvml, quantile};
use crate::text::plain::{Plain, cell};

/// The document of `--format json`.
#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    unix_ms: i64,
    host: &'a str,
    origin: crate::sample::Origin,
    segment: &'a crate::sample::Segment,
    nvml: &'a crate::sample::Nvml,
    generation: u64,
    refused: u64,
    refused_last_unix_ms: Option<i64>,
    devices: Vec<Device<'a>>,
    processes: Vec<ProcessReport<'a>>,
    groups: Vec<report::GroupReport<'a>>,
    alerts: Vec<AlertLine<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Device<'a> {
    gpu: usize,
    #[serde(flatten)]
    device: Common<'a>,
    lock: DeviceLock,
}

#[derive(Serialize)]
struct Common<'a> {
    uuid: &'a str,
    name: &'a str,
    simulated: bool,
    mig: bool,
    total_bytes: u64,
    used_bytes: Option<u64>,
    ledger_bytes: u64,
    limit_bytes: Option<u64>,
    #[serde(flatten)]
    figures: nvml::Figures,
}

#[derive(Serialize)]
struct DeviceLock {
    policy: String,
    policy_source: &'static str,
    holder_pid: Option<u32>,
    held_ns: Option<u64>,
    waiters: usize,
    handoffs: u64,
    /// From the last release to its waiter running.
    last_handoff_ns: Option<u64>,
    handoff_p50_us: Option<f64>,
    handoff_p99_us: Option<f64>,
    /// From holders that had died.
    takeovers: u64,
    /// From holders that did not yield.
    forced: u64,
    /// Waits and blockers since the processes began, longest first.
    waits: Vec<Wait>,
    /// The first of them as a sentence.
    longest_wait: Option<String>,
}

#[derive(Serialize)]
struct Wait {
    pid: Option<u32>,
    for_pid: Option<u32>,
    waited_ns: u64,
    /// Of all the waits of `pid` on this device.
    share_percent: f64,
}

#[derive(Serialize)]
struct AlertLine<'a> {
    kind: &'static str,
    severity: &'static str,
    pid: Option<u32>,
    gpu: Option<usize>,
    sentence: &'a str,
}

/// Prints one snapshot. `only` is the one GPU to print.
pub fn print(
    out: &mut impl Write,
    state: &State,
    format: Format,
    only: Option<usize>,
    first: bool,
) -> Result<()> {
    match format {
        Format::Json => json(out, state, only),
        Format::Csv => csv(out, state, first),
        Format::Table => table(out, state),
    }
}

fn json(out: &mut impl Write, state: &State, only: Option<usize>) -> Result<()> {
    let sample = &state.data().sample;
    let shown = |gpu: usize| only.is_none_or(|only| only == gpu);
    let rows = state.rows();
    let listed = |process: &crate::sample::ProcessSample| {
        let nowhere =
            process.devices.is_empty() && only.is_none() && state.choices.filter.is_empty();
        nowhere || rows.iter().any(|row| std::ptr::eq(row.process, process))
    };
    let document = Document {
        schema_version: SCHEMA_VERSION,
        unix_ms: sample.unix_ms,
        host: &sample.host,
        origin: sample.origin,
        segment: &sample.segment,
        nvml: &sample.nvml,
        generation: sample.generation,
        refused: sample.unmanaged,
        refused_last_unix_ms: sample.refused_unix_ms(),
        devices: (0..sample.devices.len())
            .filter(|gpu| shown(*gpu))
            .map(|gpu| device(state, gpu, &sample.devices[gpu]))
            .collect(),
        processes: sample
            .processes
            .iter()
            .filter(|p| listed(p))
            .map(|p| report::process(sample, p))
            .collect(),
        groups: report::groups(sample),
        alerts: alerts(state, only),
        warnings: &sample.warnings,
    };
    serde_json::to_writer(Plain::json(&mut *out), &document)?;
    Ok(writeln!(out)?)
}

fn device<'a>(state: &'a State, gpu: usize, device: &'a DeviceSample) -> Device<'a> {
    let sample = &state.data().sample;
    let owner = device.owner.and_then(|slot| sample.process(slot));
    let us = |q| quantile(&device.handoff_hist, q).map(|ns| ns as f64 / 1e3);
    let waits = state.data().waits(gpu, false);
    let pid = |who| state.data().process(who).and_then(|process| process.pid);
    let wait = |pair: Pair| Wait {
        pid: pid(pair.who),
        for_pid: pid(pair.behind),
        waited_ns: pair.ns,
        share_percent: (pair.share * 1000.0).round() / 10.0,
    };
    Device {
        gpu,
        device: Common {
            uuid: &device.uuid,
            name: &device.name,
            simulated: device.is_sim(),
            mig: device.is_mig(),
            total_bytes: device.total_bytes,
            used_bytes: device.used_bytes,
            ledger_bytes: sample.ledger_bytes(gpu),
            limit_bytes: device.limit,
            figures: device.nvml,
        },
        lock: DeviceLock {
            policy: device.policy.0.to_string(),
            policy_source: device.policy.1.word(),
            holder_pid: owner.map(|p| p.shown_pid()),
            held_ns: owner.map(|_| sample.time_ns.saturating_sub(device.owner_since_ns)),
            waiters: device.waiters.len(),
            handoffs: device.handoffs,
            last_handoff_ns: Some(device.last_handoff_ns).filter(|ns| *ns > 0),
            handoff_p50_us: us(0.50),
            handoff_p99_us: us(0.99),
            takeovers: device.takeovers,
            forced: device.forced,
            longest_wait: super::view::waits::worst(state.data(), &waits),
            waits: waits.pairs().into_iter().map(wait).collect(),
        },
    }
}

fn alerts(state: &State, only: Option<usize>) -> Vec<AlertLine<'_>> {
    let data = state.data();
    let about = |alert: &&super::data::alert::Alert| {
        only.is_none_or(|only| alert.gpu.is_none_or(|gpu| gpu == only))
    };
    let alerts = data.alerts.iter().filter(about).map(|alert| AlertLine {
        kind: alert.kind,
        severity: match alert.severity {
            Severity::Warning => "warning",
            Severity::Note => "note",
        },
        pid: alert
            .who
            .and_then(|who| data.process(who))
            .and_then(|p| p.pid),
        gpu: alert.gpu,
        sentence: &alert.sentence,
    });
    alerts.collect()
}

fn csv(out: &mut impl Write, state: &State, first: bool) -> Result<()> {
    let sample = &state.data().sample;
    let mut writer = csv::Writer::from_writer(out);
    if first {
        let keys = COLUMNS.iter().map(|column| column.key);
        writer.write_record(std::iter::once("unix_ms").chain(keys))?;
    }
    for row in state.rows() {
        let time = sample.unix_ms.to_string();
        let values: Vec<Value<'_>> = COLUMNS.iter().map(|column| (column.value)(&row)).collect();
        let cells = values.iter().map(|value| cell(&value.raw()).into_owned());
        writer.write_record(std::iter::once(time).chain(cells))?;
    }
    Ok(writer.flush()?)
}

/// The same header, table and alerts as on the screen, as wide as the terminal.
fn table(out: &mut impl Write, state: &State) -> Result<()> {
    let width = match io::stdout().is_terminal() {
        true => crossterm::terminal::size().map_or(120, |(width, _)| width),
        false => 140,
    };
    let look = super::plain_look();
    let height = super::view::text_height(state);
    let area = Rect::new(0, 0, width.max(60), height);
    let mut buffer = Buffer::empty(area);
    super::view::text(&mut buffer, area, state, &look);
    for y in 0..height {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
