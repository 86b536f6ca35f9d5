//! One look, or several, as text: for pipes, scripts and monitors.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::options::Format;
use super::state::State;
use gpushare_base::text::plain::{Plain, cell};
use gpushare_observe::data::alert::Alert;
use gpushare_observe::data::blame::{Pair, Waits};
use gpushare_observe::data::history::Efficiency;
use gpushare_sample::columns::{COLUMNS, Column, Value};
use gpushare_sample::keys::object;
use gpushare_sample::report::{self, GroupReport, ProcessReport, quantile_us};
use gpushare_sample::{
    DeviceSample, Nvml, Origin, ProcessSample, SCHEMA_VERSION, Sample, Segment, Who, nvml,
};

object! {
    /// The document of `--format json`.
    pub Document<'a>(state: &'a State, only: Option<usize>, sample: &'a Sample) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed." => Silent;
        unix_ms: i64 = sample.unix_ms, "When it was read." => Silent;
        host: &'a str = &sample.host, "The host's name." => Silent;
        origin: Origin = sample.origin, "live, sim (the simulator's devices) or replay (a recording).";
        segment: &'a Segment = &sample.segment, "The shared memory it was read from." => Silent;
        nvml: &'a Nvml = &sample.nvml, "Whether NVML answers." => Silent;
        generation: u64 = sample.generation, "Edits of operators so far." => CounterAs("edits");
        refused: u64 = sample.unmanaged, "Processes that found no free slot: they run uncounted." => Counter;
        refused_last_unix_ms: Option<i64> = sample.refused_unix_ms(), "When the last of them found no free slot.";
        devices: Vec<Device<'a>> = devices(state, only), "The devices, in the order of their numbers." => Each("device");
        processes: Vec<ProcessReport<'a>> = processes(state, only), "The processes, as gpushare ps --json describes them." => Each("process");
        groups: Vec<GroupReport<'a>> = report::groups(sample), "Groups that share a quota." => Each("group");
        alerts: Vec<AlertLine<'a>> = alerts(state, only), "What is wrong now, the worst first." => Present("alert");
        warnings: &'a Vec<String> = &sample.warnings, "What is wrong with the sources, as sentences." => Silent;
    }
}

impl Document<'_> {
    /// Leaves out the devices on which a process did nothing.
    pub fn only_used(&mut self) {
        self.processes.iter_mut().for_each(ProcessReport::only_used);
    }
}

object! {
    Device<'a>(state: &'a State, gpu: usize, sample: &'a Sample, device: &'a DeviceSample) {
        gpu: usize = gpu, "The device's number, as --gpu takes it." => Label("gpu");
        uuid: &'a str = &device.uuid, "Its UUID." => Info;
        name: &'a str = &device.name, "The product name." => Info;
        simulated: bool = device.is_sim(), "It is the simulator's." => Silent;
        mig: bool = device.is_mig(), "It is a MIG instance." => Silent;
        mps: bool = sample.is_mps(gpu), "MPS runs kernels of several processes on it at once.";
        total_bytes: u64 = device.total_bytes, "Memory it has.";
        used_bytes: Option<u64> = device.used_bytes, "Memory in use by NVML's count, driver overhead included.";
        ledger_bytes: u64 = sample.ledger_bytes(gpu), "Memory in use by gpushare's count.";
        limit_bytes: Option<u64> = device.limit, "What all processes together may hold; null for no limit.";
        ..figures: nvml::Figures = device.nvml;
        time: Time = Time::of(time(state, gpu)), "What became of its last 20 s.";
        lock: DeviceLock = DeviceLock::of(state, gpu, sample, device, &state.data().waits(gpu, false)), "Its lock.";
    }
}

object! {
    Time(shares: Option<Efficiency>) {
        busy_held_percent: Option<f64> = shares.map(|s| percent(s.used)), "Share in which a kernel ran and the lock was held. These are null in a first look and without NVML.";
        held_idle_percent: Option<f64> = shares.map(|s| percent(s.wasted)), "Share in which the lock was held and nothing ran.";
        busy_beside_percent: Option<f64> = shares.map(|s| percent(s.beside)), "Share in which a kernel ran without the lock.";
        free_percent: Option<f64> = shares.map(|s| percent(s.idle)), "Share in which neither was so.";
    }
}

object! {
    DeviceLock(state: &State, gpu: usize, sample: &Sample, device: &DeviceSample, waits: &Waits) {
        policy: String = device.policy.0.to_string(), "When a holder must yield, and who is next." => Info;
        policy_source: &'static str = device.policy.1.word(), "Who set the policy." => Info;
        holder_pid: Option<u32> = owner(sample, device).map(|p| p.shown_pid()), "Who holds it." => Silent;
        held_ns: Option<u64> = owner(sample, device).map(|_| sample.time_ns.saturating_sub(device.owner_since_ns)), "For how long.";
        waiters: usize = device.waiters.len(), "How many wait.";
        handoffs: u64 = device.handoffs, "Times it went from one process to another." => Counter;
        last_handoff_ns: Option<u64> = Some(device.last_handoff_ns).filter(|ns| *ns > 0), "From the last release to its waiter running." => Silent;
        handoff_p50_us: Option<f64> = quantile_us(&device.handoff_hist, 0.50), "The median of these times." => Silent;
        handoff_p99_us: Option<f64> = quantile_us(&device.handoff_hist, 0.99), "Their 99th percentile." => Silent;
        wait_p99_us: Option<f64> = state.data().wait_p99_ns(gpu).map(|ns| ns as f64 / 1e3), "The 99th percentile of the waits of all processes there, since they began." => Silent;
        takeovers: u64 = device.takeovers, "Times it was taken over from a holder that had died." => Counter;
        forced: u64 = device.forced, "Times it was taken from a holder that did not yield." => Counter;
        waits: Vec<Wait> = waits.pairs().into_iter().map(|pair| Wait::of(state, pair)).collect(), "Waits and blockers since the processes began, longest first." => Silent;
        longest_wait: Option<String> = super::view::waits::worst(state.data(), waits), "The first of them as a sentence.";
    }
}

object! {
    Wait(state: &State, pair: Pair) {
        pid: Option<u32> = pid(state, pair.who), "Who waited.";
        for_pid: Option<u32> = pid(state, pair.behind), "The process it waited for.";
        waited_ns: u64 = pair.ns, "How long.";
        share_percent: f64 = (pair.share * 1000.0).round() / 10.0, "Share of all the waits of pid on this device.";
    }
}

object! {
    AlertLine<'a>(state: &State, alert: &'a Alert) {
        kind: &'static str = alert.kind, "Which rule; ALERTS below lists them." => Label("kind");
        severity: &'static str = alert.severity.word(), "warning or note." => Label("severity");
        pid: Option<u32> = alert.who.and_then(|who| pid(state, who)), "Which process, if it is about one." => Label("pid");
        gpu: Option<usize> = alert.gpu, "Which device, if it is about one." => Label("gpu");
        sentence: &'a str = &alert.sentence, "What is wrong.";
        remedy: Option<&'a str> = alert.remedy.as_ref().map(|remedy| remedy.text.as_str()), "What helps, in few words.";
    }
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
    let document = Document::of(state, only, &state.data().sample);
    serde_json::to_writer(Plain::json(&mut *out), &document)?;
    Ok(writeln!(out)?)
}

/// What became of a device's time; one look does not tell.
fn time(state: &State, gpu: usize) -> Option<Efficiency> {
    let data = state.data();
    data.efficiency(gpu).filter(|_| data.samples() > 1)
}

fn percent(share: f32) -> f64 {
    (f64::from(share) * 1000.0).round() / 10.0
}

fn devices(state: &State, only: Option<usize>) -> Vec<Device<'_>> {
    let sample = &state.data().sample;
    let shown = |gpu: &usize| only.is_none_or(|only| only == *gpu);
    sample
        .gpus()
        .filter(shown)
        .map(|gpu| Device::of(state, gpu, sample, &sample.devices[gpu]))
        .collect()
}

fn processes(state: &State, only: Option<usize>) -> Vec<ProcessReport<'_>> {
    let sample = &state.data().sample;
    let rows = state.rows();
    let listed = |process: &&ProcessSample| {
        let nowhere =
            process.devices.is_empty() && only.is_none() && state.choices.filter.is_empty();
        nowhere || rows.iter().any(|row| std::ptr::eq(row.process, *process))
    };
    let listed = sample.processes.iter().filter(listed);
    listed.map(|p| ProcessReport::of(sample, p)).collect()
}

fn alerts(state: &State, only: Option<usize>) -> Vec<AlertLine<'_>> {
    let about = |alert: &&Alert| only.is_none_or(|only| alert.gpu.is_none_or(|gpu| gpu == only));
    let alerts = state.data().alerts.iter().filter(about);
    alerts.map(|alert| AlertLine::of(state, alert)).collect()
}

fn owner<'a>(sample: &'a Sample, device: &DeviceSample) -> Option<&'a ProcessSample> {
    sample.process(device.owner?)
}

fn pid(state: &State, who: Who) -> Option<u32> {
    state.data().process(who)?.pid
}

fn csv(out: &mut impl Write, state: &State, first: bool) -> Result<()> {
    let sample = &state.data().sample;
    let columns: Vec<&Column> = match &state.choices.columns {
        Some(chosen) => chosen.iter().filter_map(|at| COLUMNS.get(*at)).collect(),
        None => COLUMNS.iter().collect(),
    };
    let mut writer = csv::Writer::from_writer(out);
    if first {
        let keys = columns.iter().map(|column| column.key);
        writer.write_record(std::iter::once("unix_ms").chain(keys))?;
    }
    for row in state.rows() {
        let time = sample.unix_ms.to_string();
        let values: Vec<Value<'_>> = columns.iter().map(|column| (column.value)(&row)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::GroupView;
    use gpushare_sample::testing::explains;
    use gpushare_sample::testing::whole;

    #[test]
    fn every_key_is_explained_and_no_other() {
        let mut sample = whole();
        sample.nvml = Nvml::Ready("570.00".into());
        sample.groups.push(GroupView::default());
        sample.devices.push(DeviceSample::default());
        sample.devices[0].violations = 1;
        let mut state = State::default();
        state.update(sample);
        explains(&Document::of(&state, None, &state.data().sample));
    }
}
