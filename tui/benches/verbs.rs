//! Cost of the verbs of `gpushare` that scripts call often, compared with the bare start of a program and with nvidia-smi if it
//! is installed. 64 processes use two devices each, and the ring of events is full.
//!
//! `cargo bench -p gpushare --bench verbs`

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use gpushare_testbed::artifact;
use shm_layout::{
    DEVICE_SIM, EVENT_RING, Identity, LaunchLimits, Reason, Registration, Segments, register,
};

/// Role of a child: it registers in this directory and stays until its input ends.
const ROLE: &str = "GPUSHARE_BENCH_ROLE";
const PROCESSES: usize = 64;
const DEVICES: u8 = 2;
const ROUNDS: usize = 100;

fn main() {
    if let Some(dir) = std::env::var_os(ROLE) {
        return role(Path::new(&dir));
    }
    let place = tempfile::tempdir_in("/dev/shm").expect("there is room");
    let dir = place.path();
    let busy: Vec<Child> = (0..PROCESSES).map(|_| spawn(dir)).collect();

    println!("{:44} {:>8} {:>8} {:>8}", "", "best", "median", "CPU ms");
    let gpushare = env!("CARGO_BIN_EXE_gpushare");
    let bare = row(dir, "true", &["true"]);
    row(dir, "gpushare --version", &[gpushare, "--version"]);
    let run = row(
        dir,
        "gpushare run -- true",
        &[gpushare, "run", "--", "true"],
    );
    row(dir, "gpushare ps", &[gpushare, "ps"]);
    row(dir, "gpushare ps --json", &[gpushare, "ps", "--json"]);
    row(dir, "gpushare quota show", &[gpushare, "quota", "show"]);
    // NVML's values are cached for a second and a hundred picks; from here on a simulated NVML is used.
    let folder = dir.join("sim-lib");
    std::fs::create_dir(&folder).expect("ours");
    let library = folder.join("libnvidia-ml.so.1");
    std::os::unix::fs::symlink(artifact("libnvidia_ml.so"), library).expect("ours");
    row(dir, "gpushare pick", &[gpushare, "pick"]);
    row(dir, "nvidia-smi -L", &["nvidia-smi", "-L"]);
    if let (Some(run), Some(bare)) = (run, bare) {
        println!("{:44} {:8.2}", "run adds", run - bare);
    }
    for mut child in busy {
        drop(child.stdin.take());
        let _ = child.wait();
    }
}

/// Prints a row of the table. It returns the shortest time in milliseconds, which other load affects least.
fn row(dir: &Path, name: &str, words: &[&str]) -> Option<f64> {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .env("GPUSHARE_DIR", dir)
        .env("GPUSHARE_LIB", artifact("libgpushare.so"))
        .env("GPUSHARE_SIM", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // The first run fills caches, including its own.
    command.status().ok()?;
    let cpu = cpu_ms();
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let _ = command.status();
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    let cpu = (cpu_ms() - cpu) / ROUNDS as f64;
    times.sort_by(f64::total_cmp);
    println!(
        "{name:44} {:8.2} {:8.2} {cpu:8.2}",
        times[0],
        times[ROUNDS / 2]
    );
    Some(times[0])
}

/// Returns the processor time of the ended children, in whole ticks of the kernel.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("it lives");
    let fields = shm_layout::procfs::stat_fields(&stat).expect("fields");
    let numbers = fields.skip(13).take(2);
    let ticks: u64 = numbers.map(|n| n.parse::<u64>().expect("a number")).sum();
    ticks as f64 * 1e3 / rustix::param::clock_ticks_per_second() as f64
}

fn spawn(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .env(ROLE, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let out = child.stdout.take().expect("a pipe");
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).expect("readable");
    child
}

fn role(dir: &Path) {
    let segments = Segments::open_workload(dir).expect("segments");
    let identity = Identity::of_self("worker");
    let registration = register(&segments, &identity, &LaunchLimits::default()).expect("a slot");
    for gpu in 0..DEVICES {
        let _ = registration.add_device([gpu; 16], gpu, "Made-up GPU", 141 << 30, DEVICE_SIM);
    }
    take_turns(&registration);
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Adds this process's part of a full ring.
fn take_turns(registration: &Registration) {
    let Some(entry) = registration.entry(0) else {
        return;
    };
    for _ in 0..EVENT_RING / PROCESSES {
        let now = shm_layout::clock::now();
        let _ = registration.lock(entry).try_acquire(now);
        let _ = registration.lock(entry).release(Reason::Slice, now);
    }
}
