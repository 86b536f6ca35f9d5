//! The columns of the process table: one table from which the screen, sorting, filters, CSV, `gpushare ps` and help are
//! made.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{
    DeviceSample, Holding, LockState, LockView, PolicyKind, ProcessSample, ProcessState, Who,
};
use gpushare_base::text::{eviction, units};
use shm_layout::Source;

/// A row: a process on a device.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// The identity of the process.
    pub who: Who,
    /// The process's letter, or a blank.
    pub letter: char,
    /// The process.
    pub process: &'a ProcessSample,
    /// The process's holding on the device.
    pub holding: &'a Holding,
    /// The device.
    pub device: &'a DeviceSample,
    /// Values computed from several samples; `None` if there is only one.
    pub recent: Option<Recent>,
    /// The time of the row.
    pub now_ns: u64,
}

impl Row<'_> {
    /// Reports whether the process holds more than its quota.
    pub fn is_over_quota(&self) -> bool {
        let quota = self.holding.quota.bytes;
        quota.is_some_and(|quota| self.holding.used > quota)
    }

    /// Returns the part of its quota that the process holds; `None` without a quota.
    pub fn fullness(&self) -> Option<f64> {
        let quota = self.holding.quota.bytes?;
        Some(match quota {
            0 => 1.0,
            quota => self.holding.used as f64 / quota as f64,
        })
    }
}

/// The recent activity of a process on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    /// Share of the time holding the lock, 0 to 1.
    pub hold: f64,
    /// Share of the time waiting for the lock, 0 to 1.
    pub wait: f64,
    /// The share of the lock that the process is entitled to, 0 to 1; `None` while it does not want it.
    pub fair: Option<f64>,
    /// The 99th percentile of its holds.
    pub hold_p99_ns: Option<u64>,
    /// The median of its waits.
    pub wait_p50_ns: Option<u64>,
    /// The 99th percentile of its waits.
    pub wait_p99_ns: Option<u64>,
    /// Kernels and graphs launched per second.
    pub launches_per_s: Option<f64>,
    /// The process that this one waited for longest: letter, pid, and its share of the waits.
    pub behind: Option<(char, u32, f64)>,
}

/// A column of the process table.
#[derive(Debug)]
pub struct Column {
    /// The name in filters, settings and the header of CSV files.
    pub key: &'static str,
    /// The title on screen.
    pub title: &'static str,
    /// The width on screen; 0 keeps it off the screen.
    pub width: u16,
    /// Order in which columns are removed on a narrow screen: the highest first.
    pub rank: u8,
    /// The meaning of the column, for help.
    pub about: &'static str,
    /// Returns the cell of a row.
    pub value: fn(&Row<'_>) -> Value<'static>,
}

/// The value of a cell, before it is cut to a width.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    None,
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(u64),
    /// The bytes of a quota, in the unit of what is just below it: `1024M` beside `1000M`, whatever is in use now.
    Quota(u64),
    /// A count.
    Count(u64),
    /// A rate per second.
    Rate(f64),
    /// A percentage, 0 to 100.
    Percent(f64),
    /// A time span in nanoseconds.
    Span(u64),
    /// A number that may be negative.
    Number(i64),
    /// A share, 0 to 1, drawn as a bar.
    Share(f64),
    /// Another process: its letter, its pid, and its share, 0 to 1.
    Blocker(char, u32, f64),
}

impl Value<'_> {
    /// Reports whether the value is aligned left.
    pub fn is_text(&self) -> bool {
        matches!(self, Value::Text(_) | Value::None)
    }

    /// Returns the value in short form with its unit, for a person.
    pub fn shown(&self) -> Cow<'_, str> {
        match self {
            Value::None => "-".into(),
            Value::Text(text) => Cow::Borrowed(text),
            Value::Bytes(bytes) => units::short_size(*bytes).into(),
            Value::Quota(bytes) => units::short_size_like(*bytes, bytes.saturating_sub(1)).into(),
            Value::Count(count) => units::short_count(*count).into(),
            Value::Rate(rate) if *rate > 0.0 && *rate < 10.0 => format!("{rate:.1}").into(),
            Value::Rate(rate) => units::short_count(rate.max(0.0) as u64).into(),
            Value::Percent(percent) => format!("{percent:.0}%").into(),
            Value::Span(ns) => units::short_time(*ns).into(),
            Value::Number(number) => number.to_string().into(),
            Value::Share(share) => format!("{:.0}%", share * 100.0).into(),
            Value::Blocker(letter, _, share) => format!("{letter} {:.0}%", share * 100.0).into(),
        }
    }

    /// Returns the value in base units without the unit, for a program; empty for no value.
    pub fn raw(&self) -> Cow<'_, str> {
        match self {
            Value::None => "".into(),
            Value::Text(text) => Cow::Borrowed(text),
            Value::Bytes(number)
            | Value::Quota(number)
            | Value::Count(number)
            | Value::Span(number) => number.to_string().into(),
            Value::Rate(number) | Value::Percent(number) => format!("{number:.1}").into(),
            Value::Number(number) => number.to_string().into(),
            Value::Share(share) => format!("{share:.3}").into(),
            Value::Blocker(_, pid, _) => pid.to_string().into(),
        }
    }

    /// Returns the value in base units, if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::None | Value::Text(_) => None,
            Value::Bytes(number)
            | Value::Quota(number)
            | Value::Count(number)
            | Value::Span(number) => Some(*number as f64),
            Value::Rate(number) | Value::Percent(number) | Value::Share(number) => Some(*number),
            Value::Number(number) => Some(*number as f64),
            Value::Blocker(_, pid, _) => Some(f64::from(*pid)),
        }
    }

    /// Compares numbers by size and texts by letters.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => self.raw().cmp(&other.raw()),
        }
    }
}

impl Column {
    /// Reports whether the column is hidden while all its cells are empty.
    pub fn is_sparse(&self) -> bool {
        matches!(self.key, "left" | "job" | "group" | "cap")
    }

    /// Reports whether the column and its heading are aligned left.
    pub fn is_text(&self) -> bool {
        matches!(
            self.key,
            "user"
                | "name"
                | "group"
                | "job"
                | "container"
                | "exe"
                | "policy"
                | "state"
                | "full"
                | "status"
                | "where"
                | "pin"
        )
    }
}

/// Finds the column with this key.
pub fn find(key: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.key == key)
}

/// Returns the positions in [`COLUMNS`] of the columns with these comma-separated keys; the error is a sentence.
pub fn positions(keys: &str) -> Result<Vec<usize>, String> {
    let keys = keys.split(',').map(str::trim).filter(|key| !key.is_empty());
    let found: Vec<usize> = keys
        .map(|key| {
            position(key).ok_or_else(|| {
                let known: Vec<&str> = COLUMNS.iter().map(|column| column.key).collect();
                format!(
                    "there is no column \"{key}\"; there are {}",
                    known.join(", ")
                )
            })
        })
        .collect::<Result<_, _>>()?;
    match found.is_empty() {
        true => Err("name at least one column, for example pid,name,used".into()),
        false => Ok(found),
    }
}

/// Returns the position in [`COLUMNS`] of the column with this key.
pub fn position(key: &str) -> Option<usize> {
    COLUMNS.iter().position(|column| column.key == key)
}

macro_rules! columns {
    ($($key:literal $title:literal $width:literal $rank:literal $about:literal $value:expr;)*) => {
        /// Every column, in the order of the screen.
        pub static COLUMNS: &[Column] = &[$(Column {
            key: $key,
            title: $title,
            width: $width,
            rank: $rank,
            about: $about,
            value: $value,
        },)*];
    };
}

columns! {
// key          title     width rank about                                                   cell
    "pid"       "PID"      7  1 "pid on this machine"                         |r| Value::Number(r.process.shown_pid().into());
    "user"      "USER"     7 13 "its user"                                                    |r| text(&r.process.user);
    "name"      "NAME"    14  0 "name given, else script, else container, else program"       |r| text(r.process.name());
    "group"     "GROUP"    8 16 "group whose quota it shares"                                 |r| option(r.process.group.as_deref());
    "gpu"       "G"        2 15 "number of the GPU"                                           |r| Value::Number(r.holding.gpu as i64);
    "used"      "USED"     6  2 "memory it holds, as gpushare counts it"                      |r| Value::Bytes(r.holding.used);
    "quota"     "QUOTA"    6  3 "memory quota; a dash means no limit"                         |r| r.holding.quota.bytes.map_or(Value::None, Value::Quota);
    "reserved"  "RESERVED" 0  0 "memory that no other process can take, whether it holds it or not" |r| reserved(r);
    "left"      "LEFT"     7  3 "for how long the quota still holds; then the earlier one comes back" |r| span(r.holding.quota_until_ns.map(|until| until.saturating_sub(r.now_ns)));
    "full"      "FULL"     6 10 "how much of the quota is used"                               |r| r.fullness().map_or(Value::None, Value::Share);
    "util"      "GPU%"     5 12 "share of the GPU's compute time, by NVML"                    |r| r.holding.nvml.util_percent.map_or(Value::None, |p| Value::Percent(p.into()));
    "hold"      "HOLD%"    5  5 "share of the last 20 s, or since an edit if later, it held the lock"                     |r| recent(r, |recent| Some(Value::Percent(recent.hold * 100.0)));
    "wait"      "WAIT%"    5  4 "share of the same span it waited for the lock"               |r| recent(r, |recent| Some(Value::Percent(recent.wait * 100.0)));
    "fair"      "FAIR%"    5 14 "its share of the lock by weight and cap, among those that wanted it in the last 20 s" |r| recent(r, |recent| recent.fair.map(|fair| Value::Percent(fair * 100.0)));
    "hold_p99"  "HOLDp99"  7 14 "99th percentile of its holds in that span; in ps, since it began"                         |r| span(lately(r, |recent| recent.hold_p99_ns, |lock| lock.holds.quantile(0.99)));
    "wait_p50"  "WAITp50"  7 17 "median of its waits, likewise"                                  |r| span(lately(r, |recent| recent.wait_p50_ns, |lock| lock.waits.quantile(0.50)));
    "wait_p99"  "WAITp99"  7  8 "99th percentile of its waits, likewise"                         |r| span(lately(r, |recent| recent.wait_p99_ns, |lock| lock.waits.quantile(0.99)));
    "behind"    "FOR"      6 11 "pid it recently waited for most; on screen its letter, and the share" |r| recent(r, behind);
    "launches"  "LNCH/s"   6  9 "kernels and graphs launched in a second"                     |r| recent(r, |recent| recent.launches_per_s.map(Value::Rate));
    "denials"   "DENY"     4  6 "allocations refused over quota, since it started"            |r| Value::Count(r.holding.counters.denials);
    "memory_waits" "MEMWAITS" 0 0 "allocations that waited for memory, since it started"       |r| Value::Count(r.holding.counters.memory_waits);
    "memory_waited" "MEMWAITED" 0 0 "total time they waited, ns"                              |r| managed(r, Value::Span(r.holding.counters.memory_waited_ns));
    "on_full"   "ONFULL"   0  0 "what an allocation does that finds no room: fail, wait, wait=TIME" |r| managed(r, text(&r.process.share.on_full.to_string()));
    "settings"  "SETTINGS" 0  0 "what is set for it, each with its source: weight=200 (rule)" |r| settings(r.process);
    "weight"    "WGT"      4 11 "weight: its share relative to others, 100 is normal"         |r| managed(r, Value::Number(r.process.share.weight.into()));
    "priority"  "PRI"      3 18 "priority: under order=priority the highest gets the lock next"            |r| managed(r, Value::Number(r.process.share.priority.into()));
    "cap"       "CAP"      4 19 "upper limit of its share of the GPU's time"                      |r| r.process.share.cap.map_or(Value::None, |c| Value::Percent(c.into()));
    "policy"    "POLICY"  15 20 "lock policy: when it must yield the lock"                                 |r| managed(r, rule(r.holding.policy.0.kind));
    "state"     "STATE"    7  1 "hold, wait, active, idle, memwait: waits for memory, paused, stopped, stuck, lost, gone; no shim: unmanaged; astray: its segments are not these" state;
    "since"     "SINCE"    6  7 "for how long it holds or waits"                              since;
    "job"       "JOB"     12 14 "its Slurm job or Kubernetes pod"                             |r| option(r.process.job().as_deref());
    "container" "CONTAINER" 0 0 "its container"                                               |r| option(r.process.container.as_deref());
    "exe"       "PROGRAM"  0  0 "the path of its program"                                     |r| text(&r.process.identity.exe);
    "ns_pid"    "NSPID"    0  0 "its pid in its own namespace"                                   |r| Value::Number(r.process.identity.pid.into());
    "uuid"      "UUID"     0  0 "the GPU's UUID"                                              |r| text(&r.device.uuid);
    "rule"      "RULE"     0  0 "the rule that holds for it"                                  |r| option(r.process.rule.as_deref());
    "peak"      "PEAK"     0  0 "the most memory it held"                                     |r| Value::Bytes(r.holding.peak);
    "source"    "SOURCE"   0  0 "who set the quota"                                           |r| managed(r, text(r.holding.quota.source.word()));
    "held"      "HELD"     0  0 "total time it held the lock, ns"                             |r| managed(r, Value::Span(r.holding.lock.held_ns));
    "waited"    "WAITED"   0  0 "total time it waited, ns"                                    |r| managed(r, Value::Span(r.holding.lock.waited_ns));
    "waited_share" "WAITED%" 0 0 "share of its lifetime that it waited for the lock"              |r| managed(r, waited_share(r));
    "late"      "LATE"     0  0 "times it released the lock while its work still ran"         |r| Value::Count(r.holding.counters.drain_timeouts);
    "trace"     "TRACE"    0  0 "whether its calls are recorded: on, off, or why not"         |r| r.process.trace().map_or(Value::None, |t| text(t.progress.state.word()));
    "forced"    "FORCED"   0  0 "times the lock was taken from it"                            |r| Value::Count(r.holding.lock.forced);
    "evicted"   "EVICTED"  0  0 "memory of its own that is evicted to the host, bytes"           |r| managed(r, Value::Bytes(r.holding.evicted));
    "evicts_in" "EVICTS"   0  0 "time until it is evicted, if it stays idle, ns"                 |r| span(r.process.evicts_in_ns(r.now_ns));
    "deepens_in" "DEEPENS" 0  0 "time until the context of a process on the host leaves too (deep-after), ns" |r| span(r.process.residence.deepens_in_ns(r.now_ns));
    "where"     "WHERE"    0  0 "where its memory is: card, leaving, part: on the host as far as others lacked room, host, deep: on the host by the driver's checkpoint, waits: for room, coming, lost" |r| managed(r, text(&eviction::place(&r.process.residence, r.now_ns)));
    "total"     "BYTES"    0  0 "memory of its own, on the GPU or evicted"                       |r| Value::Bytes(r.process.own_bytes(r.holding));
    "unused"    "LAST"     0  0 "time since its last request, a call that is no query, ns"       |r| managed(r, Value::Span(r.process.unused_ns(r.now_ns)));
    "moves"     "MOVES"    0  0 "times its memory was evicted"                                   |r| managed(r, Value::Count(r.holding.counters.evictions));
    "moves_hour" "MOVES/h" 0  0 "times its memory was evicted in the last hour"                  |r| managed(r, Value::Count(r.holding.counters.evictions_in_hour));
    "wake_p50"  "WAKEp50"  0  0 "median of the last waits for evicted memory, from the first call that waits, ns" |r| span(r.process.wakes().map(|wakes| wakes[0]));
    "wake_p99"  "WAKEp99"  0  0 "99th percentile of these waits, ns"                             |r| span(r.process.wakes().map(|wakes| wakes[1]));
    "wake_max"  "WAKEmax"  0  0 "the longest of these waits, ns"                                 |r| span(r.process.wakes().map(|wakes| wakes[2]));
    "host"      "HOST"     0  0 "memory of the host that its copy takes, also where it is kept or made for the next eviction, bytes" |r| managed(r, Value::Bytes(r.process.residence.host_bytes));
    "pin"       "PIN"      0  0 "whether its memory stays on the GPU: gpushare pin"              |r| text(if r.process.share.pinned { "pin" } else { "" });
    "mps"       "MPS"      0  0 "whether MPS runs its kernels there"                          |r| r.holding.mps().map_or(Value::None, |mps| text(if mps { "yes" } else { "no" }));
    "status"    "STATUS"   0  0 "state, a stopped process that holds, over: more memory than its quota, mps: under MPS, pinned: never evicted" status;
}

fn reserved<'r>(row: &Row<'_>) -> Value<'r> {
    match row.holding.reserved {
        0 => Value::None,
        bytes => Value::Bytes(bytes),
    }
}

fn text(text: &str) -> Value<'static> {
    match text {
        "" => Value::None,
        text => Value::Text(Cow::Owned(text.to_owned())),
    }
}

fn option(text: Option<&str>) -> Value<'static> {
    text.map_or(Value::None, self::text)
}

fn span(ns: Option<u64>) -> Value<'static> {
    ns.map_or(Value::None, Value::Span)
}

fn managed(row: &Row<'_>, value: Value<'static>) -> Value<'static> {
    match row.process.slot() {
        Some(_) => value,
        None => Value::None,
    }
}

fn settings(process: &ProcessSample) -> Value<'static> {
    let set = process.settings().into_iter();
    let set = set.filter(|(.., source)| *source != Source::Default);
    let words =
        set.map(|(about, value, source)| format!("{}={value} ({})", about.word, source.word()));
    text(&words.collect::<Vec<_>>().join(" "))
}

fn rule(rule: PolicyKind) -> Value<'static> {
    Value::Text(Cow::Owned(rule.to_string()))
}

fn state(row: &Row<'_>) -> Value<'static> {
    let word = match (row.process.state, row.holding.lock.state) {
        (ProcessState::Unmanaged, _) if row.process.elsewhere.is_some() => "astray",
        (ProcessState::Unmanaged, _) => "no shim",
        (ProcessState::Memwait, _) if row.holding.memory_wait.is_some() => {
            ProcessState::Memwait.word()
        }
        (
            ProcessState::Hold
            | ProcessState::Wait
            | ProcessState::Back
            | ProcessState::Active
            | ProcessState::Memwait
            | ProcessState::Idle,
            LockState::Idle,
        ) if row.holding.works(row.now_ns) => LockState::Active.word(),
        (
            ProcessState::Hold
            | ProcessState::Wait
            | ProcessState::Back
            | ProcessState::Active
            | ProcessState::Memwait
            | ProcessState::Idle,
            lock,
        ) => lock.word(),
        (other, _) => other.word(),
    };
    Value::Text(Cow::Borrowed(word))
}

fn waited_share(row: &Row<'_>) -> Value<'static> {
    let life_ns = row.now_ns.saturating_sub(row.process.registered_ns).max(1);
    let share = row.holding.lock.waited_ns as f64 / life_ns as f64;
    Value::Percent((share * 100.0).min(100.0))
}

fn status(row: &Row<'_>) -> Value<'static> {
    let state = match (row.process.state, row.holding.lock.state) {
        (ProcessState::Stopped, LockState::Hold) => Value::Text("hold, stopped".into()),
        _ => state(row),
    };
    let mut status = state.shown().into_owned();
    if row.is_over_quota() {
        status += " over";
    }
    if row.holding.mps() == Some(true) {
        status += " mps";
    }
    if row.process.share.pinned {
        status += " pinned";
    }
    Value::Text(status.into())
}

fn recent(row: &Row<'_>, value: fn(&Recent) -> Option<Value<'static>>) -> Value<'static> {
    row.recent.as_ref().and_then(value).unwrap_or(Value::None)
}

/// Returns a value of the recent activity; of a single sample, that of the process's whole life.
fn lately<T>(
    row: &Row<'_>,
    recent: fn(&Recent) -> Option<T>,
    ever: fn(&LockView) -> Option<T>,
) -> Option<T> {
    match &row.recent {
        Some(known) => recent(known),
        None => ever(&row.holding.lock),
    }
}

fn behind(recent: &Recent) -> Option<Value<'static>> {
    recent
        .behind
        .map(|(letter, pid, share)| Value::Blocker(letter, pid, share))
}

fn since(row: &Row<'_>) -> Value<'static> {
    match row.holding.lock.state {
        LockState::Hold | LockState::Wait | LockState::Active | LockState::Back => {
            Value::Span(row.now_ns.saturating_sub(row.holding.lock.since_ns))
        }
        LockState::Idle | LockState::Paused => Value::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_keeps_its_unit_whatever_is_in_use() {
        let shown =
            [1 << 30, 3 << 29, 32 << 30, 0].map(|quota| Value::Quota(quota).shown().into_owned());
        assert_eq!(shown, ["1024M", "1.5G", "32.0G", "0B"]);
        let process = ProcessSample::default();
        let device = DeviceSample::default();
        let told = [100 << 20, 1000 << 20, 1 << 30].map(|used| {
            let mut holding = Holding::default();
            holding.view.used = used;
            holding.view.quota.bytes = Some(1 << 30);
            let row = Row {
                who: Who::of(&process),
                letter: 'A',
                process: &process,
                holding: &holding,
                device: &device,
                recent: None,
                now_ns: 0,
            };
            let quota = find("quota").expect("a column");
            (quota.value)(&row).shown().into_owned()
        });
        assert_eq!(told, ["1024M"; 3]);
    }
}
