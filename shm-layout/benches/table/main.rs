//! Cost of the lock and the ledger, in one table with alternative mechanisms, measured in the same run.
//!
//! Run it with `cargo bench -p shm-layout`. Hand-offs are a ping-pong between two processes, pinned to one CPU or to two. The
//! ratios compare with a raw futex.

#![expect(
    unsafe_code,
    reason = "forks, pins and calls the mechanisms it compares with"
)]

mod rivals;

use std::{
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use rivals::{PingPong, Side, fork, pin};
use shm_layout::*;

const GPU: Uuid = [9; 16];
const ROUNDS: u32 = 4000;
const REPEATS: u32 = 12;
const KILLS: usize = 25;

fn main() {
    let dir = tempfile::Builder::new()
        .prefix("gpushare-bench-")
        .tempdir_in("/dev/shm")
        .expect("a directory");
    let mut out = std::io::stdout().lock();
    let mut row = |name: &str, ns: f64, yardstick: Option<f64>| {
        let ratio = yardstick.map_or(String::new(), |base| format!("{:>8.2} x", ns / base));
        writeln!(out, "{name:<58} {ns:>12.1} ns {ratio}").expect("a terminal");
    };
    // `cargo bench -p shm-layout -- hand-off` runs one part.
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let part = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let dir = dir.path();
    if part("lock") {
        uncontended(dir, &mut row);
    }
    if part("ledger") {
        ledger(dir, &mut row);
    }
    if part("looks") {
        looks(dir, &mut row);
    }
    for (place, cpus) in [("one CPU", [0, 0]), ("two CPUs", [0, 1])] {
        if part("hand-off") {
            // Alternating, and the best of each: a halted or busy CPU affects all mechanisms equally.
            let awake = [rivals::awake(0), rivals::awake(1)];
            let mut best = [f64::MAX; 5];
            for _ in 0..REPEATS {
                let run = [
                    rivals::futex(cpus, ROUNDS),
                    rivals::watched_futex(cpus, ROUNDS),
                    hand_off(dir, cpus),
                    rivals::semaphore(cpus, ROUNDS),
                    rivals::daemon(cpus, ROUNDS),
                ];
                best.iter_mut()
                    .zip(run)
                    .for_each(|(best, ns)| *best = best.min(ns));
            }
            for spinner in awake {
                spinner.kill();
                spinner.wait();
            }
            let names = [
                "raw futex ping-pong",
                "the same, two words watched for 50 ms at most",
                "this lock",
                "SysV semaphores",
                "Unix-socket daemon",
            ];
            for (name, ns) in names.iter().zip(best) {
                row(&format!("hand-off, {place}: {name}"), ns, Some(best[0]));
            }
        }
    }
    if part("flock") {
        let (ns, changes) = rivals::flock(dir, 5 * ROUNDS);
        row(
            &format!("flock in a loop, owner changes in {changes:.2} %: acquisition"),
            ns,
            None,
        );
    }
    for waiters in [2, 16, 64, 255] {
        if part("crowd") {
            row(
                &format!("hand-off among {waiters} waiters"),
                crowd(dir, waiters),
                None,
            );
        }
    }
    for gib in [0, 2] {
        if part("takeover") {
            // Alternating, so that other load on the machine affects both equally.
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..KILLS {
                times[0].push(rivals::robust(|| vec![1u8; gib << 30]).as_nanos() as f64);
                times[1].push(takeover(dir, gib));
            }
            for (who, mut times) in ["bare robust futex", "this lock"].iter().zip(times) {
                times.sort_unstable_by(f64::total_cmp);
                let [best, median, worst] = [0, KILLS / 2, KILLS - 1].map(|at| times[at]);
                for (which, ns) in [("best", best), ("median", median), ("worst", worst)] {
                    let name = format!("SIGKILL of {gib} GiB: {who}, {which} of {KILLS}");
                    row(&name, ns, None);
                }
            }
        }
    }
    if part("many") {
        row("200 processes register at once", many(dir), None);
    }
}

fn process(dir: &Path, limits: &LaunchLimits) -> (Registration, Entry) {
    let segments = Segments::open_workload(dir).expect("segments");
    let registration = register(&segments, &Identity::of_self("bench"), limits).expect("a slot");
    let entry = registration
        .add_device(GPU, 0, "bench", 1 << 40, 0)
        .expect("an entry");
    (registration, entry)
}

/// Measures many short batches and returns the fastest: the cost without interruptions.
fn each(rounds: u32, mut work: impl FnMut()) -> f64 {
    let batch = (rounds / 200).max(1);
    let mut best = f64::MAX;
    for _ in 0..200 {
        let begun = Instant::now();
        (0..batch).for_each(|_| work());
        best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(batch));
    }
    best
}

type Row<'r> = dyn FnMut(&str, f64, Option<f64>) + 'r;

fn uncontended(dir: &Path, row: &mut Row<'_>) {
    let (process, entry) = process(dir, &LaunchLimits::default());
    let lock = process.lock(entry);
    let ns = each(200_000, || {
        let now = clock::now();
        assert!(lock.try_acquire(now));
        lock.release(Reason::Idle, now);
    });
    row(
        "uncontended acquire + release, statistics and events",
        ns,
        None,
    );
    assert!(lock.try_acquire(clock::now()));
    row(
        "holder asks whether a process waits",
        each(1_000_000, || assert!(!lock.contended())),
        None,
    );
}

fn ledger(dir: &Path, row: &mut Row<'_>) {
    let mut limits = LaunchLimits::default();
    limits.memory[0] = MemoryLimit::Bytes(1 << 30);
    let (process, entry) = process(dir, &limits);
    let ledger = process.ledger(entry);
    let mut pair = || {
        let bytes = ledger.reserve(4096).expect("room").commit();
        ledger.release(bytes);
    };
    row(
        "ledger: reserve + commit + release, process quota",
        each(1_000_000, &mut pair),
        None,
    );
    let operator = shm_layout::Operator::open(dir).expect("operator");
    let limit = |value| Change::DeviceLimit { uuid: GPU, value };
    operator
        .edit(None, &limit(QuotaValue::Bytes(1 << 30)), clock::now())
        .expect("edited");
    row(
        "ledger: the same under a device limit, 1 process",
        each(200_000, &mut pair),
        None,
    );
    let others: Vec<_> = (0..63)
        .map(|_| self::process(dir, &LaunchLimits::default()))
        .collect();
    row(
        "ledger: the same under a device limit, 64 processes",
        each(50_000, &mut pair),
        None,
    );
    drop(others);
    operator
        .edit(None, &limit(QuotaValue::Inherit), clock::now())
        .expect("edited");
}

fn looks(dir: &Path, row: &mut Row<'_>) {
    let processes: Vec<_> = (0..64)
        .map(|_| process(dir, &LaunchLimits::default()))
        .collect();
    for (process, _) in &processes {
        for device in 1..8 {
            process
                .add_device([device; 16], device, "bench", 1 << 40, 0)
                .expect("room");
        }
    }
    let viewer = Segments::open_viewer(dir).expect("viewer");
    row(
        "snapshot of 64 processes on 8 devices",
        each(50, || drop(snapshot(&viewer, clock::now()))),
        None,
    );
    let (mut views, mut lives) = (Vec::<ProcessView>::new(), LivenessCache::default());
    let mut again = || {
        let earlier = std::mem::take(&mut views);
        views = snapshot_of::<_, ProcessDeviceView>(&viewer, clock::now(), earlier, &mut lives)
            .processes;
    };
    row(
        "the same in the memory of the one before, as the dashboard does",
        each(50, &mut again),
        None,
    );
    drop(processes);
    let ns = each(200, || drop(process(dir, &LaunchLimits::default())));
    row("open + register + enter a device + leave", ns, None);
}

fn policy(dir: &Path, order: Order) {
    let operator = shm_layout::Operator::open(dir).expect("operator");
    let policy = LockPolicy {
        kind: PolicyKind::Always,
        order,
        ..LockPolicy::default()
    };
    operator
        .edit(
            None,
            &Change::Policy {
                device: None,
                policy: Some(policy),
                until: None,
            },
            clock::now(),
        )
        .expect("edited");
}

struct Ours {
    process: Registration,
    entry: Entry,
    _mark: KeeperMark,
}

impl Side for Ours {
    fn wait(&mut self) -> bool {
        !matches!(
            self.process.lock(self.entry).acquire(&|| false),
            Acquire::Held { waited_ns: 0 }
        )
    }

    fn give(&mut self) {
        self.process
            .lock(self.entry)
            .release(Reason::Count, clock::now());
    }

    fn other_waits(&self) -> bool {
        self.process.lock(self.entry).contended()
    }
}

fn hand_off(dir: &Path, cpus: [usize; 2]) -> f64 {
    policy(dir, Order::Fifo);
    rivals::hand_off(cpus, ROUNDS, |_| {
        let (process, entry) = process(dir, &LaunchLimits::default());
        let _mark = process.attach_keeper().expect("a robust list");
        Ours {
            process,
            entry,
            _mark,
        }
    })
}

fn crowd(dir: &Path, waiters: usize) -> f64 {
    pin(usize::MAX);
    policy(dir, Order::Fair);
    let all: Vec<_> = (0..waiters)
        .map(|_| process(dir, &LaunchLimits::default()))
        .collect();
    let rounds = (4000 / waiters).max(10);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (process, entry) in &all {
            scope.spawn(move || {
                for _ in 0..rounds {
                    let lock = process.lock(*entry);
                    lock.acquire(&|| false);
                    lock.release(Reason::Count, clock::now());
                }
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / (rounds * waiters) as f64
}

/// Measures the time from the kill to the waiter's return.
fn takeover(dir: &Path, gib: usize) -> f64 {
    pin(usize::MAX);
    let (process, entry) = process(dir, &LaunchLimits::default());
    let ready = PingPong::shared();
    let child = fork(|| {
        let (holder, entry) = self::process(dir, &LaunchLimits::default());
        let _mark = holder.attach_keeper().expect("a robust list");
        let ballast = vec![1u8; gib << 30];
        std::hint::black_box(&ballast);
        assert!(matches!(
            holder.lock(entry).acquire(&|| false),
            Acquire::Held { .. }
        ));
        ready.meet(2);
        std::thread::sleep(Duration::from_secs(60));
    });
    ready.meet(2);
    let took = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            process.lock(entry).acquire(&|| false);
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(5));
        let killed = Instant::now();
        child.kill();
        waiter.join().expect("no panic") - killed
    });
    process.lock(entry).release(Reason::Idle, clock::now());
    child.wait();
    reap(process.segments(), clock::now());
    took.as_nanos() as f64
}

fn many(dir: &Path) -> f64 {
    let ready = PingPong::shared();
    let begun = Instant::now();
    let children: Vec<_> = (0..200)
        .map(|_| {
            fork(|| {
                let registered = process(dir, &LaunchLimits::default());
                ready.meet(201);
                std::thread::sleep(Duration::from_secs(60));
                drop(registered);
            })
        })
        .collect();
    ready.meet(201);
    let took = begun.elapsed().as_nanos() as f64;
    for child in children {
        child.kill();
        child.wait();
    }
    took
}
