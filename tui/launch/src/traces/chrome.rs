//! Traces in the JSON Trace Event Format, which Perfetto and chrome://tracing load.
//!
//! ```text
//!   process 41849 train          one for each trace
//!     thread 41849               calls; within them the waits for a lock; denials as instants
//!     gpu0 lock                  holds
//!   process GPU 0                from the event ring, all processes, traced or not
//!     held by                    holds
//!     41850 serve waits          a lane for each process that waited
//!   process operator             edits as instants over all lanes
//! ```
//!
//! Times are microseconds on the segments' clock (CLOCK_BOOTTIME), which all processes share, so exports of one boot can be
//! merged. The file is written record by record, so a trace of any length fits.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::ring::{self, Edits};
use super::{Account, Found};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::Plain;
use gpushare_sample::Sample;

mod event;
mod lanes;

use event::{Args, Event, named, us};
use lanes::Lanes;

/// First number for lanes that are no thread and processes that do not exist: no pid is as high.
const BEYOND_PIDS: u32 = 1 << 22;

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
    if let Err(error) = serde_json::to_writer(Plain::json(&mut *out), &document) {
        return Err(match document.failure.take() {
            Some(failure) => failure,
            None => error.into(),
        });
    }
    writeln!(out)?;
    Ok(document.done.take())
}

/// The document. The account of what was written is at its end, because it is known only then.
struct Document<'a> {
    traces: &'a [Found],
    sample: &'a Sample,
    edits: &'a Edits,
    done: RefCell<Vec<Account>>,
    /// Reason why a trace could not be read, if that ended the document.
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
    /// Number of ring events that were overwritten before they could be read.
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

/// Returns a free pid for the document: two containers may both have a process 7.
fn free_pid(wanted: u32, taken: &mut HashSet<u32>) -> u32 {
    let mut pid = wanted;
    while !taken.insert(pid) {
        pid = pid.wrapping_add(BEYOND_PIDS << 2);
    }
    pid
}

/// Writes the devices' own lanes and the operator's edits in the time of the traces.
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
