//! The report of a demonstration: the processes that held the device, waited for it, or were refused memory.

use std::io::Write;

use shm_layout::{ProcessDeviceView, ProcessView, Snapshot};

use gpushare_base::text::exit::Failure;
use gpushare_base::text::units::{short_count, short_size, short_time};
use gpushare_base::text::uuids;
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

object! {
    /// The report of a demonstration.
    pub Report {
        schema_version: u32, "Increases when a key changes its meaning or is removed.";
        seconds: f64, "How long the programs were watched.";
        simulated: bool, "Whether the device was the simulator's.";
        policy: String, "The policy they ran under.";
        policy_acknowledged: bool, "Whether every process applied it before the time began.";
        device: Option<Device>, "The device that they shared; null if none used any.";
        processes: Vec<Process>, "The programs.";
    }
}

object! {
    /// The device that the programs shared.
    pub Device {
        uuid: String, "Its UUID.";
        name: String, "The product name.";
        handoffs: u64, "Times the lock went from one process to another.";
        forced: u64, "Times it was taken from a holder that did not yield.";
        last_handoff_ns: u64, "From the last release to its waiter running.";
        violations: u64, "Times two processes held the lock at once; never anything but 0.";
    }
}

object! {
    /// A program of the demonstration.
    pub Process {
        pid: u32, "Its pid.";
        name: String, "Its label.";
        weight: u32, "Its share under order=fair; 100 is normal.";
        priority: i32, "Its priority under order=priority.";
        cap_percent: Option<u32>, "Upper limit of its share of the device's time; null for no cap.";
        used_bytes: u64, "Memory it holds.";
        quota_bytes: Option<u64>, "Its quota; null for no limit.";
        denials: u64, "Allocations that were refused.";
        launches: u64, "Kernels launched.";
        evictions: u64, "How often its memory left for others.";
        wake_p99_ns: Option<u64>, "The 99th percentile of its waits for that memory; null if it waited for none.";
        held_ns: u64, "Time it held the lock.";
        held_percent: f64, "Share of all the time that any of them held it.";
        waited_ns: u64, "Time it waited for the lock.";
        wait_p99_ns: Option<u64>, "The 99th percentile of its wait times.";
        acquisitions: u64, "How often it acquired the lock.";
        forced: u64, "How often the lock was taken from it.";
    }
}

impl Report {
    /// Makes the report from a snapshot at the start and one at the end.
    pub fn new(
        start: &Snapshot,
        end: &Snapshot,
        names: &[&str],
        simulated: bool,
        policy: (String, bool),
    ) -> Self {
        let seconds = end.time_ns.saturating_sub(start.time_ns) as f64 / 1e9;
        let cast: Vec<(&ProcessView, &ProcessDeviceView)> = end
            .processes
            .iter()
            .filter(|process| names.contains(&process.identity.label.as_str()))
            .filter_map(|process| Some((process, process.devices.first()?)))
            .collect();
        let before = |process: &ProcessView| {
            let same = |other: &&ProcessView| other.slot == process.slot;
            start
                .processes
                .iter()
                .find(same)
                .and_then(|process| process.devices.first())
        };
        let held = |process: &ProcessView, held: &ProcessDeviceView| {
            held.lock
                .held_ns
                .saturating_sub(before(process).map_or(0, |before| before.lock.held_ns))
        };
        let total: u64 = cast.iter().map(|(process, on)| held(process, on)).sum();
        let processes = cast
            .iter()
            .map(|(process, on)| Process {
                pid: process.identity.pid,
                name: process.identity.label.clone(),
                weight: process.share.weight,
                priority: process.share.priority,
                cap_percent: process.share.cap,
                used_bytes: on.used,
                quota_bytes: on.quota.bytes,
                denials: on.counters.denials,
                launches: on.counters.launches,
                evictions: on.counters.evictions,
                wake_p99_ns: Some(on.counters.wake_p99_ns).filter(|ns| *ns != 0),
                held_ns: held(process, on),
                held_percent: (held(process, on) as f64 * 1000.0 / total.max(1) as f64).round()
                    / 10.0,
                waited_ns: on
                    .lock
                    .waited_ns
                    .saturating_sub(before(process).map_or(0, |before| before.lock.waited_ns)),
                wait_p99_ns: on.lock.waits.quantile(0.99),
                acquisitions: on.lock.acquisitions,
                forced: on.lock.forced,
            })
            .collect();
        let used = cast.first().map(|(_, on)| on.device);
        let device = end
            .devices
            .iter()
            .find(|device| Some(device.index) == used)
            .map(|device| Device {
                uuid: uuids::format(device.uuid, device.flags & shm_layout::DEVICE_MIG != 0),
                name: device.name.clone(),
                handoffs: device.handoffs,
                forced: device.forced,
                last_handoff_ns: device.last_handoff_ns,
                violations: device.violations,
            });
        Self {
            schema_version: SCHEMA_VERSION,
            seconds: (seconds * 1000.0).round() / 1000.0,
            simulated,
            policy: policy.0,
            policy_acknowledged: policy.1,
            device,
            processes,
        }
    }

    /// Writes the report as JSON.
    pub fn write_json(&self, out: &mut dyn Write) -> Result<(), Failure> {
        serde_json::to_writer_pretty(gpushare_base::text::plain::Plain::json(&mut *out), self)?;
        Ok(writeln!(out)?)
    }

    /// Writes the report as sentences and a table of 80 columns.
    pub fn write_table(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let device = self
            .device
            .as_ref()
            .map_or("no device", |device| &device.name);
        writeln!(
            out,
            "{} programs shared one {device} for {:.1} s under {}",
            self.processes.len(),
            self.seconds,
            self.policy
        )?;
        writeln!(out)?;
        writeln!(
            out,
            "{:<10}{:>7}{:>6}{:>8}{:>9}{:>9}{:>9}{:>9}{:>8}",
            "NAME", "WEIGHT", "HELD%", "USED", "QUOTA", "WAITED", "WAIT P99", "LAUNCHES", "DENIED"
        )?;
        for process in &self.processes {
            writeln!(
                out,
                "{:<10}{:>7}{:>6.1}{:>8}{:>9}{:>9}{:>9}{:>9}{:>8}",
                process.name,
                process.weight,
                process.held_percent,
                short_size(process.used_bytes),
                process.quota_bytes.map_or_else(|| "-".into(), short_size),
                short_time(process.waited_ns),
                process.wait_p99_ns.map_or_else(|| "-".into(), short_time),
                short_count(process.launches),
                short_count(process.denials),
            )?;
        }
        writeln!(out)?;
        for process in self
            .processes
            .iter()
            .filter(|process| process.evictions > 0)
        {
            writeln!(
                out,
                "{}: its memory left {} times{}",
                process.name,
                process.evictions,
                process.wake_p99_ns.map_or_else(String::new, |ns| {
                    format!(", and its requests waited up to {} for it", short_time(ns))
                }),
            )?;
        }
        if let Some(device) = &self.device {
            writeln!(
                out,
                "{} hand-offs, the last took {}; {} forced; two holders at once: {} times",
                device.handoffs,
                short_time(device.last_handoff_ns),
                device.forced,
                device.violations
            )?;
        }
        Ok(())
    }
}
