//! `gpushare events`: writes past and new events, one a line, for people, scripts and logs.

use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Map, Value};

use crate::signals::Ends;
use crate::{Done, note, segments};
use gpushare_base::text::calls;
use gpushare_base::text::events::{self, Said};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::{Plain, plain};
use gpushare_observe::data::log::Showing;
use gpushare_observe::source::live::Live;
use gpushare_sample::keys::{Key, Keys};
use gpushare_sample::{EventLine, SCHEMA_VERSION, Sample};

/// Interval between two readings of the ring in `--follow`.
const PACE: Duration = Duration::from_millis(200);

/// Show what happened to the processes and the lock, oldest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A line is the time, the kind, the pid and name of the process, the GPU and a sentence.\n\
                  With --json it is an object of its own; the manual lists the keys."
)]
pub struct Args {
    /// Continue with new events until SIGINT, or until the reader closes the pipe
    #[arg(short, long)]
    follow: bool,
    /// Show only the newest N past events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    last: usize,
    /// Show every turn of the lock and every wait for memory, not only those of a second or longer
    #[arg(short, long)]
    all: bool,
    /// Write one JSON object for each event, on a line of its own
    #[arg(long)]
    json: bool,
}

/// The document that `--json` writes for each event.
#[derive(Debug)]
pub(crate) struct Document;

/// Keys of every event, with their descriptions.
const EVERY: [(&str, &str); 8] = [
    (
        "schema_version",
        "Increases when a key changes its meaning or is removed.",
    ),
    (
        "seq",
        "The event's number; a gap is events that are not shown, or that were overwritten before they were read.",
    ),
    ("unix_ms", "When it happened."),
    (
        "pid",
        "The process's pid on this host; null if it is not visible from here or there is none.",
    ),
    ("name", "Its label; null without one."),
    (
        "gpu",
        "The device's number, as --gpu takes it; null for an event without one.",
    ),
    ("kind", "What happened, in a word."),
    ("sentence", "What happened; the process is the subject."),
];
const SOME: [(&str, &str); 17] = [
    (
        "waited_ns",
        "hold, active, memory_done: after waiting or being held back this long.",
    ),
    (
        "held_ns",
        "release, forced: after holding the lock this long.",
    ),
    ("active_ns", "rest, back: after this long."),
    ("reason", "release: why the hold ended."),
    (
        "asked_bytes",
        "denial, memory_wait: what the allocation asked for.",
    ),
    (
        "limit",
        "memory_wait: what has no room: quota, group, limit (of the device, or a reserve there) or device; behind, if others asked before it.",
    ),
    (
        "granted",
        "memory_done: whether it got the memory; false where it gave up.",
    ),
    ("quota_bytes", "denial, over_quota: the quota."),
    ("used_bytes", "over_quota: what the process holds."),
    (
        "call",
        "denial: the driver call that asked; null if unknown.",
    ),
    (
        "phase",
        "residence: where its memory is now, as residence.state of gpushare ps --json.",
    ),
    (
        "why",
        "residence: why it is not elsewhere; null where nothing is in the way.",
    ),
    (
        "code",
        "residence: the driver's error code that goes with it; 0 for none.",
    ),
    ("took_ms", "residence: how long it was in the phase before."),
    ("bytes", "residence: how many bytes it is about."),
    ("generation", "edit: its generation, as in gpushare audit."),
    (
        "reaped",
        "exit: whether the process died, so that another one released its slot.",
    ),
];

impl Keys for Document {
    fn list(path: &str, keys: &mut Vec<Key>) {
        for (name, meaning) in EVERY.into_iter().chain(SOME) {
            <str as Keys>::add(path, name, meaning, keys);
        }
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let dir = segments::dir()?;
    let mut live = Live::new(&dir.path, true);
    live.settle(segments::NVML);
    let sample = live.look()?;
    let showing = match args.all {
        true => Showing::All,
        false => Showing::Notable,
    };
    let count = shown(&sample, showing).count();
    let newest = shown(&sample, showing).skip(count.saturating_sub(args.last));
    say_all(&sample, newest, args.json, out)?;
    if !args.follow {
        if count == 0 {
            note(match &sample.segment.waiting {
                Some(waiting) => waiting,
                None if sample.events.is_empty() => "no events yet",
                None => "no events but turns of the lock; gpushare events --all shows them",
            });
        }
        return Ok(Exit::Done);
    }
    if let Some(waiting) = &sample.segment.waiting {
        note(waiting);
    }
    let (runtime, ends) = Ends::watch()?;
    runtime.block_on(follow(&mut live, ends, showing, args.json, out))
}

/// Returns the events of a sample that are shown.
fn shown(sample: &Sample, showing: Showing) -> impl Iterator<Item = &EventLine> {
    let events = sample.events.iter();
    events.filter(move |event| showing.includes(event))
}

/// Writes new events until a signal asks for the end, or until the reader closes the pipe.
async fn follow(
    live: &mut Live,
    mut ends: Ends,
    showing: Showing,
    json: bool,
    out: &mut dyn Write,
) -> Done {
    loop {
        tokio::select! {
            _ = ends.come() => return Ok(Exit::Done),
            () = tokio::time::sleep(PACE) => {}
        }
        if is_reader_gone() {
            return Ok(Exit::Done);
        }
        let sample = live.look()?;
        say_all(&sample, shown(&sample, showing), json, out)?;
    }
}

/// Returns true if the reader of standard output has gone. Without this check, the program would stay until the next event.
fn is_reader_gone() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let asked = poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok()
        && fds[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::NVAL)
}

/// Writes events, whole lines at a time.
fn say_all<'e>(
    sample: &Sample,
    events: impl Iterator<Item = &'e EventLine>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if sample.events_lost > 0 {
        note(&format!(
            "{} events were overwritten before they were read",
            sample.events_lost
        ));
    }
    for event in events {
        if json {
            serde_json::to_writer(Plain::json(&mut *out), &object(sample, event)?)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", line(sample, event))?;
        }
    }
    Ok(out.flush()?)
}

fn line(sample: &Sample, event: &EventLine) -> String {
    let Said { word, text, .. } = events::say(&event.what);
    let pid = event.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
    let name = match &*event.name {
        "" => "-".into(),
        name => plain(name),
    };
    let gpu = event
        .gpu
        .map_or_else(String::new, |gpu| format!("GPU{gpu} "));
    let time = local_time(sample.unix_ms_at(event.time_ns));
    format!("{time}  {word:<9} {pid:>7} {name}  {gpu}{text}")
}

fn local_time(unix_ms: i64) -> String {
    let zone = jiff::tz::TimeZone::system();
    jiff::Timestamp::from_millisecond(unix_ms).map_or_else(
        |_| "-".into(),
        |at| {
            let at = at.to_zoned(zone);
            at.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
        },
    )
}

/// Returns the event's JSON object: the keys of its kind, and those of every kind.
fn object(sample: &Sample, event: &EventLine) -> Result<Map<String, Value>, Failure> {
    let Value::Object(mut keys) = serde_json::to_value(event.what)? else {
        return Ok(Map::new());
    };
    if let Some(call) = keys.get_mut("call") {
        let code = call.as_u64().and_then(|code| u16::try_from(code).ok());
        *call = code.and_then(calls::name).into();
    }
    let name = Some(&event.name).filter(|name| !name.is_empty());
    keys.insert("schema_version".into(), SCHEMA_VERSION.into());
    keys.insert("seq".into(), event.seq.into());
    keys.insert("unix_ms".into(), sample.unix_ms_at(event.time_ns).into());
    keys.insert("pid".into(), event.pid.into());
    keys.insert("name".into(), name.map(|name| &**name).into());
    keys.insert("gpu".into(), event.gpu.into());
    keys.insert("sentence".into(), events::say(&event.what).text.into());
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shm_layout::{Blocked, Phase, Reason, What};

    use super::*;
    use gpushare_sample::keys;

    #[test]
    fn every_key_of_every_kind_is_explained_and_no_other() {
        let kinds = [
            What::Register,
            What::Exit { reaped: true },
            What::Wait,
            What::Hold { waited_ns: 1 },
            What::Release {
                reason: Reason::Sync,
                held_ns: 1,
            },
            What::Denial {
                asked_bytes: 2,
                quota_bytes: 1,
                call: None,
            },
            What::Forced { held_ns: 1 },
            What::Takeover,
            What::OverQuota {
                used_bytes: 2,
                quota_bytes: 1,
            },
            What::Edit { generation: 1 },
            What::Refused,
            What::Pick,
            What::Trouble,
            What::Active { waited_ns: 1 },
            What::Rest { active_ns: 1 },
            What::Back { active_ns: 1 },
            What::MemoryWait {
                asked_bytes: 1,
                limit: Blocked::Quota,
            },
            What::MemoryDone {
                waited_ns: 1,
                granted: true,
            },
            What::Residence {
                phase: Phase::Evicted,
                why: None,
                code: 0,
                took_ms: 1,
                bytes: 1,
            },
            What::Other,
        ];
        let always: BTreeSet<String> = EVERY.map(|(key, _)| key.to_owned()).into();
        let mut written = BTreeSet::new();
        for what in kinds {
            let event = EventLine {
                what,
                ..EventLine::default()
            };
            let object = object(&Sample::default(), &event).expect("plain data");
            let kind = object["kind"].as_str().expect("a word").to_owned();
            let keys: BTreeSet<String> = object.into_iter().map(|(key, _)| key).collect();
            assert!(keys.is_superset(&always), "{kind}: {keys:?}");
            for key in keys.difference(&always) {
                let meaning = SOME.iter().find(|(name, _)| name == key);
                let (_, meaning) = meaning.unwrap_or_else(|| panic!("{kind}: {key}"));
                let (kinds, _) = meaning.split_once(": ").expect("kinds first");
                assert!(kinds.split(", ").any(|word| word == kind), "{kind}: {key}");
            }
            written.extend(keys);
        }
        let explained: BTreeSet<String> = keys::of::<Document>()
            .into_iter()
            .map(|key| key.path)
            .collect();
        assert_eq!(written, explained);
    }
}
