//! Traces in the JSON Trace Event Format, which Perfetto and chrome://tracing load.
//!
//! ```text
//!   process 41849 train          one for each trace
//!     thread 41849               calls; within them the waits for a lock; denials as instants
//!     gpu0 lock                  holds
//!   process GPU 0                from the event ring, all processes, traced or not
//!     held by                    holds
//!     41850 serve waits          a lane for each who waited
//!   process operator             edits as instants over all lanes
//! ```
//!
//! Times are microseconds on the segments' clock (CLOCK_BOOTTIME), the same for all processes, so exports
//! of one boot may be put together. Written record by record, whatever the length.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use shm_layout::trace::{Kind, Reader, Record};

use super::csv::ended_by;
use super::ring::{self, Edits};
use super::{Account, Found, device_name, device_names};
use crate::exit::Failure;
use crate::sample::Sample;

/// Lanes that are no thread, and processes that are none, have numbers no pid has.
const BEYOND_PIDS: u32 = 1 << 22;

/// One event of the format.
#[derive(Serialize)]
struct Event<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    args: Args<'a>,
}

/// What is told beside an event.
#[derive(Default, Serialize)]
struct Args<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    ended_by: &'static str,
}

impl Args<'_> {
    fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.labels.is_none()
            && self.sort_index.is_none()
            && self.bytes.is_none()
            && self.gpu.is_none()
            && self.ended_by.is_empty()
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn meta<'a>(what: &'static str, pid: u32, tid: u32, args: Args<'a>) -> Event<'a> {
    Event {
        name: what.into(),
        cat: "",
        ph: "M",
        ts: 0.0,
        dur: None,
        pid,
        tid,
        s: None,
        args,
    }
}

fn named<'a>(what: &'static str, pid: u32, tid: u32, name: impl Into<Cow<'a, str>>) -> Event<'a> {
    let args = Args {
        name: Some(name.into()),
        ..Args::default()
    };
    meta(what, pid, tid, args)
}

/// Writes all of them into one document.
pub fn write(
    traces: &[Found],
    sample: &Sample,
    edits: &Edits,
    out: &mut dyn Write,
) -> Result<Vec<Account>, Failure> {
    let document = Document {
        traces,
        sample,
        edits,
        done: RefCell::default(),
        failure: RefCell::default(),
    };
    if let Err(error) = serde_json::to_writer(&mut *out, &document) {
        return Err(match document.failure.take() {
            Some(failure) => failure,
            None => error.into(),
        });
    }
    writeln!(out)?;
    Ok(document.done.take())
}

/// The document. What was written is told behind the events, for only then is it known.
struct Document<'a> {
    traces: &'a [Found],
    sample: &'a Sample,
    edits: &'a Edits,
    done: RefCell<Vec<Account>>,
    /// Why a trace could not be read, if that ended it.
    failure: RefCell<Option<Failure>>,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("displayTimeUnit", "ns")?;
        map.serialize_entry("traceEvents", &Events(self))?;
        map.serialize_entry("otherData", &Other::of(self))?;
        map.end()
    }
}

#[derive(Serialize)]
struct Other<'a> {
    tool: &'static str,
    version: &'static str,
    clock: &'static str,
    host: &'a str,
    /// Events of the ring that were written over before they could be read.
    events_lost: u64,
    processes: Vec<Account>,
}

impl<'a> Other<'a> {
    fn of(document: &Document<'a>) -> Self {
        Self {
            tool: "gpushare",
            version: env!("CARGO_PKG_VERSION"),
            clock: "CLOCK_BOOTTIME, microseconds",
            host: &document.sample.host,
            events_lost: document.sample.events_lost,
            processes: document.done.borrow().clone(),
        }
    }
}

struct Events<'a>(&'a Document<'a>);

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        let document = self.0;
        let mut pids = HashSet::new();
        let (mut from, mut to) = (u64::MAX, 0);
        for found in document.traces {
            let reader = found.read().map_err(|failure| {
                let error = S::Error::custom(&failure);
                document.failure.replace(Some(failure));
                error
            })?;
            let mut account = Account::new(found, &reader);
            account.pid = free_pid(account.pid, &mut pids);
            let mut lanes = Lanes::new(found, &reader, document.sample, account.pid);
            let span = lanes.write(&reader, &mut account, &mut |event| {
                seq.serialize_element(&event)
            })?;
            from = from.min(span.0);
            to = to.max(span.1);
            document.done.borrow_mut().push(account);
        }
        of_ring(document, from, to, &mut |event| {
            seq.serialize_element(&event)
        })?;
        seq.end()
    }
}

/// Two containers may both have a process 7.
fn free_pid(wanted: u32, taken: &mut HashSet<u32>) -> u32 {
    let mut pid = wanted;
    while !taken.insert(pid) {
        pid = pid.wrapping_add(BEYOND_PIDS << 2);
    }
    pid
}

/// One process's lanes.
struct Lanes<'a> {
    pid: u32,
    title: String,
    /// Where the names of its threads are, while it lives in our pid namespace.
    tasks: Option<String>,
    devices: Vec<String>,
    known: HashSet<u32>,
    /// Waits of a thread whose call is still to come: it is written first, for it is around them.
    waits: HashMap<u32, Vec<Record<'a>>>,
}

impl<'a> Lanes<'a> {
    fn new(found: &Found, reader: &'a Reader, sample: &Sample, pid: u32) -> Self {
        let process = &found.process;
        let same = found.lives() && process.pid == Some(process.ns_pid);
        Self {
            pid,
            title: found.title(),
            tasks: same.then(|| format!("/proc/{}/task", process.ns_pid)),
            devices: device_names(reader.header(), sample),
            known: HashSet::new(),
            waits: HashMap::new(),
        }
    }

    /// Writes all; returns from when to when.
    fn write<E>(
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
        let (mut from, mut to) = (u64::MAX, 0);
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
        // Calls that were never answered, or that found no room.
        for wait in std::mem::take(&mut self.waits).into_values().flatten() {
            put(self.event(&wait))?;
        }
        Ok((from, to))
    }

    /// A lane's name, before the first event on it.
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
        match path.and_then(|path| std::fs::read_to_string(path).ok()) {
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

/// The devices' own lanes, and what an operator did, in the time of the traces.
fn of_ring<E>(
    document: &Document<'_>,
    from: u64,
    to: u64,
    put: &mut impl FnMut(Event<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let sample = document.sample;
    let spans = ring::spans(sample, from, to);
    let process = |gpu: usize| BEYOND_PIDS + 1 + u32::try_from(gpu).unwrap_or(u32::MAX >> 1);
    for gpu in ring::devices(&spans) {
        let name = sample.devices.get(gpu).map_or("", |device| &device.name);
        put(named(
            "process_name",
            process(gpu),
            0,
            format!("GPU {gpu} {name}"),
        ))?;
        put(named("thread_name", process(gpu), 0, "held by"))?;
    }
    let mut lanes: BTreeMap<(usize, u16), &str> = BTreeMap::new();
    for span in &spans {
        if let Some(slot) = span.waiter {
            lanes.insert((span.gpu, slot), &span.who);
        }
    }
    for ((gpu, slot), who) in &lanes {
        let lane = u32::from(*slot) + 1;
        put(named(
            "thread_name",
            process(*gpu),
            lane,
            format!("{who} waits"),
        ))?;
    }
    for span in &spans {
        put(Event {
            name: span.who.as_str().into(),
            cat: if span.waiter.is_some() {
                "wait"
            } else {
                "hold"
            },
            ph: "X",
            ts: us(span.start_ns),
            dur: Some(us(span.duration_ns)),
            pid: process(span.gpu),
            tid: span.waiter.map_or(0, |slot| u32::from(slot) + 1),
            s: None,
            args: Args {
                ended_by: span.ended_by,
                ..Args::default()
            },
        })?;
    }
    let moments = ring::moments(sample, document.edits, from, to);
    if !moments.is_empty() {
        put(named("process_name", BEYOND_PIDS, 0, "operator"))?;
        put(named("thread_name", BEYOND_PIDS, 0, "edits"))?;
    }
    for moment in moments {
        put(Event {
            name: moment.what.into(),
            cat: "operator",
            ph: "i",
            ts: us(moment.time_ns),
            dur: None,
            pid: BEYOND_PIDS,
            tid: 0,
            s: Some("g"),
            args: Args::default(),
        })?;
    }
    Ok(())
}
