//! The document of `gpushare-top --once --format json`, from which the metrics are made as well.

use gpushare_sample::host::Machine;
use gpushare_sample::keys::object;
use gpushare_sample::report::{self, GroupReport, ProcessReport, quantile_us};
use gpushare_sample::{
    DeviceSample, Histogram, Nvml, Origin, ProcessSample, SCHEMA_VERSION, Sample, Segment, Who,
    nvml,
};

use crate::data::Data;
use crate::data::history::Efficiency;
use crate::data::wait_attribution::{Pair, Waits};
use crate::finding::Finding;

object! {
    /// The document of `--format json`.
    pub Document<'a>(data: &'a Data, only: Option<usize>, listed: Vec<&'a ProcessSample>, sample: &'a Sample) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed." => Silent;
        unix_ms: i64 = sample.unix_ms, "When it was read." => Silent;
        host: &'a str = &sample.host, "The host's name." => Silent;
        machine: Machine = sample.machine, "The host's processors and memory.";
        origin: Origin = sample.origin, "live, sim (the simulator's devices) or replay (a recording).";
        segment: &'a Segment = &sample.segment, "The shared memory it was read from." => Silent;
        nvml: &'a Nvml = &sample.nvml, "Whether NVML answers." => Silent;
        generation: u64 = sample.generation, "Edits of operators so far." => CounterAs("edits");
        refused: u64 = sample.unmanaged, "Processes that found no free slot: they run uncounted." => Counter;
        refused_last_unix_ms: Option<i64> = sample.refused_unix_ms(), "When the last of them found no free slot.";
        devices: Vec<Device<'a>> = devices(data, only), "The devices, in the order of their numbers." => Each("device");
        processes: Vec<ProcessReport<'a>> = listed.into_iter().map(|process| ProcessReport::of(sample, process)).collect(), "The processes, as gpushare ps --json describes them." => Each("process");
        groups: Vec<GroupReport<'a>> = report::groups(sample), "Groups that share a quota." => Each("group");
        alerts: Vec<AlertLine<'a>> = alerts(data, only), "What is wrong now, the worst first." => Present("alert");
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
    Device<'a>(data: &'a Data, gpu: usize, sample: &'a Sample, device: &'a DeviceSample) {
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
        ..figures: nvml::Figures = device.nvml.clone();
        time: Time = Time::of(time(data, gpu)), "What became of its last 20 s.";
        lock: DeviceLock = DeviceLock::of(data, gpu, sample, device, &data.waits(gpu, false)), "Its lock.";
    }
}

object! {
    Time(shares: Option<Efficiency>) {
        busy_held_percent: Option<f64> = shares.map(|s| percent(s.used)), "Share in which a kernel ran and the lock was held. These are null in the first seconds and without NVML.";
        held_idle_percent: Option<f64> = shares.map(|s| percent(s.wasted)), "Share in which the lock was held and nothing ran.";
        busy_beside_percent: Option<f64> = shares.map(|s| percent(s.beside)), "Share in which a kernel ran without the lock.";
        free_percent: Option<f64> = shares.map(|s| percent(s.idle)), "Share in which neither was so.";
    }
}

object! {
    DeviceLock(data: &Data, gpu: usize, sample: &Sample, device: &DeviceSample, waits: &Waits) {
        policy: String = device.policy.0.to_string(), "When a holder must yield, and who is next." => Info;
        policy_source: &'static str = device.policy.1.word(), "Who set the policy." => Info;
        holder_pid: Option<u32> = owner(sample, device).map(|p| p.shown_pid()), "Who holds it." => Silent;
        held_ns: Option<u64> = owner(sample, device).map(|_| sample.time_ns.saturating_sub(device.owner_since_ns)), "For how long.";
        waiters: usize = device.waiters.len(), "How many wait.";
        handoffs: u64 = device.handoffs, "Times it went from one process to another." => Counter;
        last_handoff_ns: Option<u64> = Some(device.last_handoff_ns).filter(|ns| *ns > 0), "From the last release to its waiter running." => Silent;
        handoff_p50_us: Option<f64> = quantile_us(&device.handoff_times, 0.50), "The median of these times." => Silent;
        handoff_p99_us: Option<f64> = quantile_us(&device.handoff_times, 0.99), "Their 99th percentile." => Silent;
        wait_p99_us: Option<f64> = quantile_us(&all_waits(data, gpu), 0.99), "The 99th percentile of the waits of all processes there, since they began." => Silent;
        takeovers: u64 = device.takeovers, "Times it was taken over from a holder that had died." => Counter;
        forced: u64 = device.forced, "Times it was taken from a holder that did not yield." => Counter;
        waits: Vec<Wait> = waits.pairs().into_iter().map(|pair| Wait::of(data, pair)).collect(), "Waits and blockers since the processes began, longest first." => Silent;
        longest_wait: Option<String> = data.longest_wait(waits), "The first of them as a sentence.";
    }
}

object! {
    Wait(data: &Data, pair: Pair) {
        pid: Option<u32> = pid(data, pair.who), "Who waited.";
        for_pid: Option<u32> = pid(data, pair.behind), "The process it waited for.";
        waited_ns: u64 = pair.ns, "How long.";
        share_percent: f64 = (pair.share * 1000.0).round() / 10.0, "Share of all the waits of pid on this device.";
    }
}

object! {
    AlertLine<'a>(data: &'a Data, alert: &'a Finding) {
        kind: &'static str = alert.kind.id, "Which rule; ALERTS below lists them." => Label("kind");
        severity: &'static str = alert.kind.severity.word(), "warning or note." => Label("severity");
        pid: Option<u32> = alert.who.and_then(|who| pid(data, who)), "Which process, if it is about one." => Label("pid");
        gpu: Option<usize> = alert.gpu, "Which device, if it is about one." => Label("gpu");
        sentence: String = alert.sentence(), "What is wrong.";
        since_unix_ms: Option<i64> = (!alert.is_older).then(|| data.sample.unix_ms_at(alert.since_ns)), "Since when; null where it was so before the first look." => Silent;
        remedy: Option<&'a str> = alert.remedy.as_ref().map(|remedy| remedy.text.as_str()), "What helps, in few words.";
        commands: Vec<String> = alert.commands(&data.sample), "The commands that make the remedy, where gpushare can." => Silent;
        cost: Option<String> = alert.cost.as_ref().map(ToString::to_string), "What the remedy costs, and which jobs.";
    }
}

/// Returns how a device spent its time; a single sample cannot show it.
fn time(data: &Data, gpu: usize) -> Option<Efficiency> {
    data.efficiency(gpu).filter(|_| data.samples() > 1)
}

fn percent(share: f32) -> f64 {
    (f64::from(share) * 1000.0).round() / 10.0
}

fn devices(data: &Data, only: Option<usize>) -> Vec<Device<'_>> {
    let sample = &data.sample;
    let shown = |gpu: &usize| only.is_none_or(|only| only == *gpu);
    sample
        .gpus()
        .filter(shown)
        .map(|gpu| Device::of(data, gpu, sample, &sample.devices[gpu]))
        .collect()
}

fn alerts(data: &Data, only: Option<usize>) -> Vec<AlertLine<'_>> {
    let about = |alert: &&Finding| only.is_none_or(|only| alert.gpu.is_none_or(|gpu| gpu == only));
    let alerts = data.alerts.iter().filter(about);
    alerts.map(|alert| AlertLine::of(data, alert)).collect()
}

/// Returns the waits of all processes on a device, since each began.
fn all_waits(data: &Data, gpu: usize) -> Histogram {
    let mut all = Histogram::default();
    for (_, holding) in data.there(gpu) {
        all.merge(&holding.lock.waits);
    }
    all
}

fn owner<'a>(sample: &'a Sample, device: &DeviceSample) -> Option<&'a ProcessSample> {
    sample.process(device.owner?)
}

fn pid(data: &Data, who: Who) -> Option<u32> {
    data.process(who)?.pid
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
        let mut data = Data::default();
        data.update(sample);
        crate::findings::update(&mut data);
        let listed = data.sample.processes.iter().collect();
        explains(&Document::of(&data, None, listed, &data.sample));
    }
}
