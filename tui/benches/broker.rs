//! Cost of a broker, compared with a user's own segments, in one run: a registration, 200 processes at once, and the idle
//! broker. Needs root.
//!
//! `cargo bench -p gpushare --bench broker`

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use gpushare_testbed::{Need, needs};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shm_layout::{Identity, LaunchLimits, Segments, register};

/// Role of a child: it registers, prints the time that took, and stays until its input ends.
const ROLE: &str = "GPUSHARE_BENCH_ROLE";
/// User id of the registering processes.
const USER: u32 = 65_534;
const ONE_BY_ONE: usize = 100;
const AT_ONCE: usize = 200;

fn main() {
    if let Some(dir) = std::env::var_os(ROLE) {
        return role(Path::new(&dir));
    }
    if !needs(Need::Root) {
        return;
    }
    let place = tempfile::tempdir_in("/dev/shm").expect("there is room");
    let (own, served) = (place.path().join("own"), place.path().join("run"));
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(place.path(), mode(0o755)).expect("ours");
    std::fs::create_dir(&own).expect("ours");
    std::fs::set_permissions(&own, mode(0o700)).expect("ours");
    std::os::unix::fs::chown(&own, Some(USER), Some(USER)).expect("we are root");
    let mut broker = Command::new(env!("CARGO_BIN_EXE_gpushare"))
        .args(["serve", "--per-user", "256", "--group"])
        .arg(USER.to_string())
        .env("GPUSHARE_DIR", &served)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let out = broker.stdout.take().expect("a pipe");
    BufReader::new(out)
        .read_line(&mut String::new())
        .expect("readable");

    println!("{:34} {:>12} {:>12}", "", "own segments", "broker");
    let [a, b] = [&own, &served].map(|dir| one_by_one(dir));
    for (what, at) in [("p50", ONE_BY_ONE / 2), ("the least", 0)] {
        let (what, a, b) = (format!("open and register, {what}"), a[at], b[at]);
        println!("{what:34} {a:>9} us {b:>9} us");
    }
    let [a, b] = [&own, &served].map(|dir| at_once(dir));
    println!(
        "{:34} {a:>9} ms {b:>9} ms",
        "200 processes, spawned to registered"
    );
    std::thread::sleep(Duration::from_secs(1));
    let before = ticks(&broker);
    std::thread::sleep(Duration::from_secs(5));
    println!(
        "{:34} {:>12} {:>9} ms",
        "CPU time of 5 idle seconds",
        "",
        (ticks(&broker) - before) * 10
    );
    for key in ["RssAnon", "RssShmem", "RssFile"] {
        println!("{key:34} {:>12} {:>9} kB", "", status(&broker, key));
    }
    let _ = broker.kill();
    let _ = broker.wait();
}

fn role(dir: &Path) {
    let began = Instant::now();
    let limits = LaunchLimits::default();
    let segments = Segments::open_to_register(dir, "bench", &limits).expect("segments");
    let identity = Identity::of_self_in(&segments, "bench");
    let process = register(&segments, &identity, &limits);
    let took = began.elapsed();
    let _process = process.expect("a slot");
    println!("{}", took.as_nanos());
    let _ = std::io::stdin().read(&mut [0]);
}

fn spawn(dir: &Path) -> Child {
    let this = std::env::current_exe().expect("our own path");
    let mut command = Command::new(this);
    command.uid(USER).gid(USER);
    command
        .env(ROLE, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().expect("started")
}

fn heard(child: &mut Child) -> u64 {
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("readable");
    line.trim().parse().expect("a number")
}

/// Registers one process after another and returns sorted microseconds; on a busy machine the smallest is the most reliable.
fn one_by_one(dir: &Path) -> Vec<u64> {
    let mut all: Vec<u64> = (0..ONE_BY_ONE)
        .map(|_| {
            let mut child = spawn(dir);
            let took = heard(&mut child);
            end(child);
            took / 1000
        })
        .collect();
    all.sort_unstable();
    all
}

/// Registers all processes at once and returns milliseconds.
fn at_once(dir: &Path) -> u128 {
    let began = Instant::now();
    let mut all: Vec<Child> = (0..AT_ONCE).map(|_| spawn(dir)).collect();
    all.iter_mut().for_each(|child| {
        heard(child);
    });
    let took = began.elapsed().as_millis();
    all.into_iter().for_each(end);
    took
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    let _ = child.wait();
}

fn ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it lives");
    let fields = shm_layout::procfs::stat_fields(&stat).expect("fields");
    let numbers = fields.skip(11).take(2);
    numbers
        .map(|number| number.parse::<u64>().expect("a number"))
        .sum()
}

fn status(child: &Child, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it lives");
    let line = status
        .lines()
        .find(|line| line.starts_with(key))
        .expect("there");
    let number = line.split_ascii_whitespace().nth(1).expect("a number");
    number.parse().expect("a number")
}
