//! The machine's processors and memory, and the threads of processes, from `/proc`.
//!
//! No file here makes a reader wait for another process. Threads that did not run lately are read in one of several rounds,
//! because a Python program has a hundred of them.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustc_hash::FxHashMap;
use shm_layout::clock;

use gpushare_base::host::pace::{Pace, thread_time};
use gpushare_base::host::procfs;
use gpushare_sample::host::{Machine, Threads};

/// Limits of the time between two rounds.
const PACE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// A round may cost the time until the next one divided by this.
const SHARE: u32 = 2000;
/// Number of threads of one process that are looked at.
const MOST_THREADS: usize = 256;
/// One of so many rounds reads the threads that did not run.
const FULL: u64 = 5;
/// Length of a clock tick, the unit of start times in `/proc`.
const TICK_NS: u64 = 10_000_000;

/// Time on a processor and time ready to run without one, in nanoseconds.
type Spent = [u64; 2];

/// The reader, and what it found in the last round.
pub(super) struct Host {
    proc: PathBuf,
    pace: Pace,
    due_ns: u64,
    rounds: u64,
    machine: Machine,
    /// Used and all time of the processors.
    used: [u64; 2],
    processes: FxHashMap<u32, Process>,
}

/// A process at the last round.
struct Process {
    start_ticks: u64,
    seen_ns: u64,
    count: Option<u32>,
    /// Of each thread what it had spent when it was last read, and when that was.
    threads: FxHashMap<u32, (Spent, u64)>,
    /// The threads that wanted a processor in the last full round or since.
    awake: Vec<u32>,
    shown: Threads,
}

impl Host {
    pub(super) fn new() -> Self {
        Self::of(PathBuf::from("/proc"))
    }

    fn of(proc: PathBuf) -> Self {
        let [shortest, longest] = PACE;
        Self {
            proc,
            pace: Pace::new(shortest, longest, SHARE),
            due_ns: 0,
            rounds: 0,
            machine: Machine::default(),
            used: [0; 2],
            processes: FxHashMap::default(),
        }
    }

    /// Starts a round if one is due, and returns the machine's figures.
    pub(super) fn machine(&mut self, pids: impl Iterator<Item = u32>) -> Machine {
        let now_ns = clock::now();
        if now_ns >= self.due_ns {
            let start = thread_time();
            self.round(pids, now_ns);
            let rest = self.pace.after(thread_time() - start);
            self.due_ns = now_ns + u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX);
        }
        self.machine
    }

    /// Returns the figures of a process.
    pub(super) fn threads(&self, pid: Option<u32>) -> Threads {
        let known = pid.and_then(|pid| self.processes.get(&pid));
        match pid {
            // The pid of a process of another namespace is not known.
            None => unreadable(),
            Some(_) => known.map_or_else(Threads::default, |process| process.shown),
        }
    }

    fn round(&mut self, pids: impl Iterator<Item = u32>, now_ns: u64) {
        self.machine = self.load();
        let is_full = self.rounds.is_multiple_of(FULL);
        self.rounds += 1;
        let mut before = std::mem::take(&mut self.processes);
        for pid in pids {
            let process = self.process(pid, before.remove(&pid), is_full, now_ns);
            self.processes.insert(pid, process);
        }
    }

    fn load(&mut self) -> Machine {
        let stat = procfs::text(self.proc.join("stat")).unwrap_or_default();
        let processors = stat.lines().filter(|line| line.starts_with("cpu")).count();
        let memory = procfs::text(self.proc.join("meminfo")).unwrap_or_default();
        let bytes = |key: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(kib << 10)
        };
        let used = stat.lines().next().and_then(processor_time);
        let before = self.used;
        self.used = used.unwrap_or(before);
        let grown = used.map(|used| [0, 1].map(|at| used[at].saturating_sub(before[at])));
        Machine {
            // The first line is the sum.
            processors: u32::try_from(processors.saturating_sub(1))
                .ok()
                .filter(|count| *count > 0),
            cpu_percent: grown.map(|[used, all]| percent(used, all)),
            memory_bytes: bytes("MemTotal:"),
            available_bytes: bytes("MemAvailable:"),
        }
    }

    fn process(&self, pid: u32, before: Option<Process>, is_full: bool, now_ns: u64) -> Process {
        let dir = self.proc.join(pid.to_string());
        let tasks = dir.join("task");
        let is_full = is_full || before.is_none();
        let mut process = match before {
            Some(before) if !is_full => before,
            before => Process::new(&dir, before),
        };
        let (mut all, mut most) = (0, [0; 2]);
        let mut awake = Vec::new();
        let mut any = false;
        for tid in std::mem::take(&mut process.awake) {
            let Some(spent) = spent(tasks.join(tid.to_string()).join("schedstat")) else {
                continue;
            };
            any = true;
            let earlier = process.threads.insert(tid, (spent, now_ns));
            // A thread that was not there before has begun since.
            let (earlier, seen_ns) = earlier.unwrap_or(([0; 2], process.seen_ns));
            let grown = [0, 1].map(|at| spent[at].saturating_sub(earlier[at]));
            let span_ns = now_ns.saturating_sub(seen_ns);
            let shares = grown.map(|ns| percent(ns, span_ns).min(100));
            all += shares[0];
            if shares[0] + shares[1] > most[0] + most[1] {
                most = shares;
            }
            if grown != [0; 2] {
                awake.push(tid);
            }
        }
        process.seen_ns = now_ns;
        process.awake = awake;
        // In the other rounds nothing is read of a process that sleeps.
        let was_readable = !is_full && process.shown.readable == Some(true);
        process.shown = match any || was_readable {
            true => Threads {
                readable: Some(true),
                number: process.count,
                cpu_percent: Some(all),
                busiest_percent: Some(most[0]),
                waits_percent: Some(most[1]),
            },
            false => unreadable(),
        };
        process
    }
}

impl Process {
    /// Lists the threads of a process. What was known of an earlier process with its pid is dropped.
    fn new(dir: &Path, before: Option<Self>) -> Self {
        let stat = procfs::record(dir.join("stat")).unwrap_or_default();
        let start_ticks = procfs::start_time(&stat).unwrap_or(0);
        let before = before.filter(|before| before.start_ticks == start_ticks);
        let began_ns = start_ticks.saturating_mul(TICK_NS);
        let tids = fs::read_dir(dir.join("task"))
            .into_iter()
            .flatten()
            .flatten();
        let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let awake: Vec<u32> = tids.take(MOST_THREADS).collect();
        let known = before.as_ref().map(|before| &before.threads);
        let threads = awake
            .iter()
            .filter_map(|tid| Some((*tid, *known?.get(tid)?)));
        Self {
            start_ticks,
            count: thread_count(&stat),
            seen_ns: before.as_ref().map_or(began_ns, |before| before.seen_ns),
            threads: threads.collect(),
            awake,
            shown: Threads::default(),
        }
    }
}

fn unreadable() -> Threads {
    Threads {
        readable: Some(false),
        ..Threads::default()
    }
}

fn percent(part: u64, whole: u64) -> u32 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u32::try_from(percent).unwrap_or(u32::MAX)
}

/// Returns the used and the whole time of the processors from the first line of `/proc/stat`, in ticks.
fn processor_time(line: &str) -> Option<[u64; 2]> {
    let times: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    // Guests' times, behind the first eight, are counted in the others.
    let all = times
        .iter()
        .take(8)
        .fold(0, |sum: u64, time| sum.saturating_add(*time));
    let idle = times.get(3)?.saturating_add(*times.get(4)?);
    Some([all.saturating_sub(idle), all])
}

/// Returns the number of threads, field 20.
fn thread_count(stat: &str) -> Option<u32> {
    procfs::stat_fields(stat)?.nth(17)?.parse().ok()
}

/// Reads a thread's `schedstat`: its time on a processor, its time in the queue for one.
fn spent(path: PathBuf) -> Option<Spent> {
    let mut room = [0; 96];
    let length = File::open(path).ok()?.read(&mut room).ok()?;
    let mut words = std::str::from_utf8(&room[..length])
        .ok()?
        .split_whitespace();
    Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn process(proc: &Path, threads: &[(u32, u64, u64)]) {
        let dir = proc.join("77");
        fs::create_dir_all(&dir).unwrap();
        let stat = "77 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 140 18 0 20";
        fs::write(dir.join("stat"), stat).unwrap();
        for (tid, run, wait) in threads {
            let task = dir.join("task").join(tid.to_string());
            fs::create_dir_all(&task).unwrap();
            fs::write(
                task.join("schedstat"),
                format!("{} {} 5\n", run * MS, wait * MS),
            )
            .unwrap();
        }
    }

    fn machine(proc: &Path, busy: u64, idle: u64) {
        let stat = format!("cpu  {busy} 0 0 {idle} 0 0 0 0 9 9\ncpu0 1\ncpu1 1\nctxt 5\n");
        fs::write(proc.join("stat"), stat).unwrap();
        let memory = "MemTotal:  2048 kB\nMemFree: 5 kB\nMemAvailable:   1024 kB\n";
        fs::write(proc.join("meminfo"), memory).unwrap();
    }

    #[test]
    fn the_thread_that_wants_a_processor_most_is_told_by_what_it_got_since_the_look_before() {
        let proc = tempfile::tempdir().unwrap();
        let mut host = Host::of(proc.path().to_owned());
        machine(proc.path(), 100, 300);
        process(proc.path(), &[(77, 9000, 0), (78, 0, 0)]);
        host.round([77].into_iter(), 10_000 * MS);
        let first = host.threads(Some(77));
        assert_eq!((first.busiest_percent, first.number), (Some(90), Some(140)));
        assert_eq!(host.machine.cpu_percent, Some(25));
        machine(proc.path(), 300, 300);
        process(proc.path(), &[(77, 9200, 300), (78, 400, 0)]);
        host.round([77].into_iter(), 11_000 * MS);
        let next = host.threads(Some(77));
        assert_eq!(
            next.cpu_percent,
            Some(20),
            "thread 78 slept: it is read in a later round"
        );
        assert_eq!(
            (next.busiest_percent, next.waits_percent),
            (Some(20), Some(30))
        );
        assert_eq!(
            host.machine,
            Machine {
                processors: Some(2),
                cpu_percent: Some(100),
                memory_bytes: Some(2 << 20),
                available_bytes: Some(1 << 20),
            }
        );
        process(proc.path(), &[(77, 9200, 300), (78, 1100, 0)]);
        for _ in 0..FULL - 1 {
            host.round([77].into_iter(), 12_000 * MS);
        }
        let late = host.threads(Some(77)).busiest_percent;
        assert_eq!(late, Some(55), "by the whole time since it was read");
    }

    #[test]
    fn a_process_whose_threads_are_not_shown_has_no_figures() {
        let proc = tempfile::tempdir().unwrap();
        let mut host = Host::of(proc.path().to_owned());
        host.round([5].into_iter(), MS);
        assert_eq!(host.threads(Some(5)), unreadable());
        assert_eq!(host.threads(None), unreadable(), "of another namespace");
        assert_eq!(host.threads(Some(6)).readable, None, "not looked at yet");
        assert_eq!(host.machine, Machine::default());
    }

    #[test]
    fn this_process_has_worked() {
        let mut host = Host::new();
        let own = std::process::id();
        let machine = host.machine([own].into_iter());
        assert!(machine.memory_bytes > machine.available_bytes);
        let threads = host.threads(Some(own));
        if fs::exists("/proc/self/schedstat").unwrap() {
            assert_eq!(threads.readable, Some(true));
            assert!(threads.busiest_percent.unwrap() <= 100);
        }
    }
}
