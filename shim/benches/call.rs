//! Cost of a driver call with and without the preload library: `cargo bench -p gpushare-shim --bench call`.
//!
//! One C program calls a driver that does nothing, in tight loops. It runs without the library, then with it: under policy
//! `off`, holding the lock, limited because a process that goes first is registered on the device (`overlap`), and with a
//! trace on. The runs alternate. Absolute times depend on the machine; compare the ratios
//! in the last columns.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use gpushare_testbed::{Watched, artifact, cc, cc_driver, eventually};
use shm_layout::{Change, clock, snapshot, trace};

const TURNS: usize = 3;
const STARTS: usize = 200;
/// The policy under which an idle process of higher priority limits the queue of the one that is measured.
const LIMITED: &str = "overlap order=priority";

/// The shortest times in nanoseconds, by name.
type Times = BTreeMap<String, f64>;

fn main() {
    let driver_dir = tempfile::tempdir().expect("a temporary directory");
    symlink(noop_driver(), driver_dir.path().join("libcuda.so.1"))
        .expect("a fresh directory takes links");
    let caller = source("benches/apps/caller.c");
    let caller = cc(&caller, "caller", &["-O2", "-w"]);
    let ways = [
        ("bare", None),
        ("off", Some("off")),
        ("held", Some("timeslice=1s")),
        ("limited", Some(LIMITED)),
    ];
    let mut times: Vec<Times> = vec![Times::new(); ways.len()];
    let mut traced = Times::new();
    for _ in 0..TURNS {
        for (best, (_, policy)) in times.iter_mut().zip(ways) {
            keep_best(best, &run(&caller, driver_dir.path(), policy));
        }
        keep_best(&mut traced, &run_traced(&caller, driver_dir.path()));
    }
    let [bare, preloaded] = starts();
    let starts = [bare, preloaded, preloaded, preloaded];
    for (times, start) in times.iter_mut().zip(starts) {
        times.insert("start".to_owned(), start);
    }
    print(&times);
    print_traced(&times[0], &traced);
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn noop_driver() -> PathBuf {
    cc_driver(&source("tests/apps/noop_driver.c"), &["-O2"])
}

/// Runs the caller once; `None` means without the preload library.
fn run(caller: &Path, driver: &Path, policy: Option<&str>) -> Times {
    let segments = tempfile::tempdir().expect("a temporary directory");
    let command = || {
        let mut command = Command::new(caller);
        command
            .env("LD_LIBRARY_PATH", driver)
            .env("GPUSHARE_DIR", segments.path());
        if let Some(policy) = policy {
            command
                .env("LD_PRELOAD", artifact("libgpushare.so"))
                .env("GPUSHARE_POLICY", policy);
        }
        command
    };
    let urgent = (policy == Some(LIMITED)).then(|| {
        let mut urgent = Watched::spawn(command().arg("traced").env("GPUSHARE_PRIORITY", "5"));
        assert_eq!(urgent.line(), "ready");
        urgent
    });
    let output = command().output().expect("the caller starts");
    drop(urgent);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{} {said}",
        output.status
    );
    times_of(&String::from_utf8_lossy(&output.stdout))
}

fn times_of(text: &str) -> Times {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, ns)| (name.to_owned(), ns.parse().expect("nanoseconds")))
        .collect()
}

/// Runs the caller once with a trace that has room for all its events.
fn run_traced(caller: &Path, driver: &Path) -> Times {
    let segments = tempfile::tempdir().expect("a temporary directory");
    let mut child = Command::new(caller)
        .arg("traced")
        .env("LD_LIBRARY_PATH", driver)
        .env("GPUSHARE_DIR", segments.path())
        .env("LD_PRELOAD", artifact("libgpushare.so"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the caller starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says it is ready");
    let operator = shm_layout::Operator::open(segments.path()).expect("its segments");
    let process = snapshot(operator.segments(), clock::now())
        .processes
        .remove(0);
    let records = *trace::RECORDS.end();
    let path = trace::create(segments.path(), process.slot, &process.identity, records)
        .expect("room for a buffer");
    let change = Change::Trace {
        slot: process.slot,
        on: Some(records),
    };
    let edit = operator
        .edit(None, &change, clock::now())
        .expect("a valid edit");
    eventually("it is acknowledged", Duration::from_secs(30), || {
        operator.unacknowledged(edit.generation).is_empty()
    });
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"go\n").expect("it listens");
    let mut text = String::new();
    output.read_to_string(&mut text).expect("its times");
    assert!(child.wait().expect("it ends").success());
    let trace = trace::Reader::open(&path).expect("a trace");
    let launches = trace.stats().iter().map(|stat| stat.count).sum::<u64>();
    assert!(
        launches > 1_000_000 && trace.dropped() == 0,
        "{launches} launches traced"
    );
    times_of(&text)
}

/// Measures the nanoseconds from start to end of a process that never uses CUDA, without and with the library. Of many
/// alternating starts it takes the 10th percentile.
fn starts() -> [f64; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..STARTS {
        for (preload, times) in [None, Some(artifact("libgpushare.so"))]
            .iter()
            .zip(&mut times)
        {
            let mut command = Command::new("/bin/true");
            command.envs(preload.iter().map(|library| ("LD_PRELOAD", library)));
            let began = Instant::now();
            command.status().expect("a program that does nothing");
            times.push(began.elapsed());
        }
    }
    times.map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        times[STARTS / 10].as_nanos() as f64
    })
}

fn keep_best(best: &mut Times, now: &Times) {
    for (name, &ns) in now {
        let known = best.entry(name.clone()).or_insert(f64::INFINITY);
        *known = known.min(ns);
    }
}

const ROWS: [(&str, &str); 13] = [
    ("launch", "launch"),
    ("launch_2", "launch, 2 threads"),
    ("launch_4", "launch, 4 threads"),
    ("info", "cuMemGetInfo"),
    ("pair_0", "alloc+free, 0 live"),
    ("pair_1000", "alloc+free, 1 000 live"),
    ("pair_100000", "alloc+free, 100 000 live"),
    ("pair_async", "alloc+free in a stream"),
    ("context", "cuCtxSetCurrent"),
    ("dlsym", "dlsym of a foreign name"),
    ("request", "ioctl of no device"),
    ("request_of_driver", "ioctl, driver's number"),
    ("start", "process start and end"),
];

#[allow(clippy::print_stdout, reason = "a benchmark prints")]
fn print(times: &[Times]) {
    println!(
        "{:<26}{:>12}{:>12}{:>10}{:>12}{:>10}{:>12}{:>10}",
        "ns a call", "bare", "off", "+", "held", "+", "limited", "+"
    );
    let of = |name: &str| -> Vec<f64> { times.iter().map(|times| times[name]).collect() };
    for (name, label) in ROWS {
        let [bare, off, held, limited] = of(name)[..] else {
            unreachable!("four ways are measured")
        };
        println!(
            "{label:<26}{bare:>12.2}{off:>12.2}{:>10.2}{held:>12.2}{:>10.2}{limited:>12.2}{:>10.2}",
            off - bare,
            held - bare,
            limited - bare
        );
    }
    println!();
    for (name, label) in ROWS {
        let [bare, off, held, limited] = of(name)[..] else {
            unreachable!("four ways are measured")
        };
        println!(
            "{label:<26} off ÷ bare {:>6.3}   held ÷ bare {:>6.3}   limited ÷ bare {:>6.3}",
            off / bare,
            held / bare,
            limited / bare
        );
    }
}

#[allow(clippy::print_stdout, reason = "a benchmark prints")]
fn print_traced(bare: &Times, traced: &Times) {
    println!(
        "\n{:<26}{:>12}{:>12}{:>10}",
        "ns a call", "bare", "profiling", "+"
    );
    for (name, label) in ROWS.iter().filter(|(name, _)| name.starts_with("launch")) {
        let (bare, traced) = (bare[*name], traced[*name]);
        println!(
            "{label:<26}{bare:>12.2}{traced:>12.2}{:>10.2}   ÷ {:.3}",
            traced - bare,
            traced / bare
        );
    }
}
