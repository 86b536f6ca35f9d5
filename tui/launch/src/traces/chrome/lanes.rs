//! The lanes of one process: its threads with their calls, and the locks that it held.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use shm_layout::trace::{Kind, Reader, Record};

use super::BEYOND_PIDS;
use super::event::{Args, Event, meta, named, us};
use crate::traces::csv::ended_by;
use crate::traces::{Account, Found, device_name, device_names};
use gpushare_sample::Sample;

/// The lanes of one process.
pub(super) struct Lanes<'a> {
    pid: u32,
    title: String,
    /// Directory with the names of its threads, while it lives in our pid namespace.
    tasks: Option<String>,
    devices: Vec<String>,
    known: HashSet<u32>,
    /// Waits of threads whose call is not read yet. The call encloses the wait, so it is written first.
    waits: HashMap<u32, Vec<Record<'a>>>,
}

impl<'a> Lanes<'a> {
    pub(super) fn new(found: &Found, reader: &'a Reader, sample: &Sample, pid: u32) -> Self {
        let process = &found.process;
        let same = found.lives() && process.pid == Some(process.identity.pid);
        Self {
            pid,
            title: process.pid_and_name(),
            tasks: same.then(|| format!("/proc/{}/task", process.identity.pid)),
            devices: device_names(reader.header(), sample),
            known: HashSet::new(),
            waits: HashMap::new(),
        }
    }

    /// Writes all lanes, and returns the first and the last time of the trace.
    pub(super) fn write<E>(
        &mut self,
        reader: &'a Reader,
        account: &mut Account,
        put: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(u64, u64), E> {
        put(named("process_name", self.pid, 0, self.title.as_str()))?;
        if let Some(label) = shortfall(account) {
            let args = Args {
                labels: Some(label),
                ..Args::default()
            };
            put(meta("process_labels", self.pid, 0, args))?;
        }
        // The trace's own times count, because it may begin or end without a call.
        let header = reader.header();
        let (mut from, mut to) = match header.started_ns {
            0 => (u64::MAX, 0),
            started => (started, header.stopped_ns.max(header.seen_ns)),
        };
        for record in reader.records() {
            from = from.min(record.start_ns);
            to = to.max(record.start_ns.saturating_add(record.duration_ns));
            account.records += 1;
            self.introduce(&record, put)?;
            match record.kind {
                Kind::Wait => self.waits.entry(record.tid).or_default().push(record),
                Kind::Call => {
                    put(self.event(&record))?;
                    for wait in self.waits.remove(&record.tid).unwrap_or_default() {
                        put(self.event(&wait))?;
                    }
                }
                Kind::Hold | Kind::Denial => put(self.event(&record))?,
            }
        }
        // These waits have no record of their call: it did not return, or the buffer was full.
        for wait in std::mem::take(&mut self.waits).into_values().flatten() {
            put(self.event(&wait))?;
        }
        Ok((from, to))
    }

    /// Writes a lane's name before its first event.
    fn introduce<E>(
        &mut self,
        record: &Record<'_>,
        put: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let lane = self.lane(record);
        if !self.known.insert(lane) {
            return Ok(());
        }
        let name = match record.kind {
            Kind::Hold => {
                let gpu = device_name(&self.devices, record.device).unwrap_or("its");
                format!("{gpu} lock")
            }
            _ => self.thread_name(record.tid),
        };
        put(named("thread_name", self.pid, lane, name))
    }

    fn lane(&self, record: &Record<'_>) -> u32 {
        match record.kind {
            Kind::Hold => BEYOND_PIDS + u32::from(record.device.unwrap_or(u8::MAX)),
            _ => record.tid,
        }
    }

    fn thread_name(&self, tid: u32) -> String {
        let path = self
            .tasks
            .as_ref()
            .map(|tasks| format!("{tasks}/{tid}/comm"));
        match path.and_then(|path| gpushare_base::host::procfs::text(path).ok()) {
            Some(name) => format!("{} {tid}", name.trim_end()),
            None => format!("thread {tid}"),
        }
    }

    fn event<'e>(&'e self, record: &Record<'e>) -> Event<'e> {
        let call = record.name.unwrap_or("?");
        let (name, cat): (Cow<'e, str>, _) = match record.kind {
            Kind::Call => (call.into(), "call"),
            Kind::Wait => ("wait for the lock".into(), "wait"),
            Kind::Hold => ("hold".into(), "hold"),
            Kind::Denial => (format!("{call} denied").into(), "denial"),
        };
        let instant = record.kind == Kind::Denial;
        Event {
            name,
            cat,
            ph: if instant { "i" } else { "X" },
            ts: us(record.start_ns),
            dur: (!instant).then(|| us(record.duration_ns)),
            pid: self.pid,
            tid: self.lane(record),
            s: instant.then_some("t"),
            args: Args {
                bytes: Some(record.bytes).filter(|bytes| *bytes > 0),
                gpu: device_name(&self.devices, record.device),
                ended_by: ended_by(record),
                ..Args::default()
            },
        }
    }
}

fn shortfall(account: &Account) -> Option<String> {
    let mut words = Vec::new();
    if account.dropped > 0 {
        words.push(format!("{} records dropped", account.dropped));
    }
    if account.unfinished > 0 {
        words.push(format!("{} unfinished", account.unfinished));
    }
    (!words.is_empty()).then(|| words.join(", "))
}
