//! Cost of the dashboard on a synthetic machine: `cargo bench -p gpushare --bench cost`.
//!
//! The machine has 64 processes on 8 devices, four samples a second, and every frame is drawn at 120×40. The bench measures our
//! own work, each time with cold caches: reading a segment with that many processes, processing the sample, and drawing it.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rustix::time::{ClockId, clock_gettime};
use shm_layout::{
    DEVICE_SIM, Identity, KeeperMark, LaunchLimits, Reason, Registration, Segments, register,
};

use gpushare_observe::metrics::{Figures, Format};
use gpushare_observe::source::Source as _;
use gpushare_observe::source::live::Live;
use gpushare_sample::{
    DeviceSample, EventLine, Holding, LockState, Nvml, PolicyKind, ProcessSample, ProcessState,
    Sample, SlotId, Snapshot, What,
};
use gpushare_top::palette::{Depth, Palette};
use gpushare_top::state::State;
use gpushare_top::view::{self, Look};

const PROCESSES: u16 = 64;
const DEVICES: usize = 8;
const SAMPLES: u64 = 240;
const HZ: u64 = 4;
/// Number of hand-offs per device and second.
const TURNS: u64 = 100;
const NVML: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "stage") {
        let dir = arguments.get(at + 1).map(Path::new);
        return stage(dir.ok_or_else(|| anyhow::anyhow!("stage wants a directory"))?);
    }
    let out = &mut std::io::stdout().lock();
    let mut state = State::default();
    let look = Look {
        palette: Palette::new(Depth::True, false, false),
        zone: TimeZone::UTC,
    };
    let mut terminal = Terminal::new(TestBackend::new(120, 40))?;
    let dir = tempfile::tempdir()?;
    let stage = Stage::new(dir.path())?;
    let mut live = Live::new(dir.path(), false);
    let mut other = vec![0; 16 << 20];
    let (mut looked, mut update, mut draw) = (0.0, 0.0, 0.0);
    for turn in 0..SAMPLES {
        (0..TURNS / HZ).for_each(|at| stage.hand_over(turn * TURNS / HZ + at));
        stage.heartbeat();
        cool(&mut other);
        let start = cpu_us();
        live.reuse(state.newest());
        let sample = live.look()?;
        let seen = cpu_us();
        state.update(sample);
        let taken = cpu_us();
        terminal.draw(|frame| view::draw(frame.buffer_mut(), &state, &look))?;
        looked += seen - start;
        update += taken - seen;
        draw += cpu_us() - taken;
    }
    let metrics = [DEVICES, 1].map(metrics);
    let each = |all: f64| all / SAMPLES as f64;
    let share = (each(looked) + each(update) + each(draw)) * HZ as f64 / 1e6 * 100.0;
    writeln!(
        out,
        "{PROCESSES} processes on {DEVICES} devices, {HZ} samples a second, 120x40"
    )?;
    writeln!(out, "look    {:7.0} us a sample", each(looked))?;
    writeln!(out, "update  {:7.0} us a sample", each(update))?;
    writeln!(out, "draw    {:7.0} us a frame", each(draw))?;
    for (devices, (us, bytes, series)) in [DEVICES, 1].into_iter().zip(metrics) {
        writeln!(
            out,
            "metrics {us:7.0} us a page of {series} series, {bytes} bytes: each process on {devices} devices"
        )?;
    }
    writeln!(out, "core    {share:7.2} %")?;
    memory(out, "")?;
    // The time of the driver's own library is additional.
    let dir = tempfile::tempdir()?;
    let mut live = Live::new(dir.path(), true);
    live.settle(NVML);
    match live.look()?.nvml {
        Nvml::Ready(version) => memory(out, &format!(" with NVML {version}")),
        _ => Ok(()),
    }
}

/// Measures a page of metrics: its time, bytes and series, for processes on this number of devices.
fn metrics(devices: usize) -> (f64, usize, usize) {
    let mut figures = Figures::default();
    let (mut us, mut page) = (0.0, String::new());
    for tick in 0..SAMPLES {
        let mut sample = sample(tick);
        for (at, process) in sample.processes.iter_mut().enumerate() {
            process.devices.rotate_left(at % DEVICES);
            process.devices.truncate(devices);
        }
        figures.take(sample);
        let start = cpu_us();
        page = figures.page(Format::Text);
        us += cpu_us() - start;
    }
    let series = page.lines().filter(|line| !line.starts_with('#')).count();
    (us / SAMPLES as f64, page.len(), series)
}

/// A synthetic machine: every process uses all devices.
struct Stage(Vec<(KeeperMark, Registration)>);

impl Stage {
    fn new(dir: &Path) -> Result<Self> {
        let segments = Segments::open_workload(dir)?;
        let mut registrations = Vec::new();
        for index in 0..PROCESSES {
            let identity = Identity::of_self(&format!("worker-{index}"));
            let registration = register(&segments, &identity, &LaunchLimits::default())?;
            for gpu in 0..DEVICES as u8 {
                let _ =
                    registration.add_device([gpu; 16], gpu, "Made-up GPU", 141 << 30, DEVICE_SIM);
            }
            registrations.push((registration.attach_keeper()?, registration));
        }
        Ok(Self(registrations))
    }

    /// Hands every device to the next process.
    fn hand_over(&self, turn: u64) {
        for gpu in 0..DEVICES as u8 {
            let of = |turn: u64| &self.0[(turn as usize + usize::from(gpu)) % self.0.len()].1;
            for (registration, begins) in [(of(turn), false), (of(turn + 1), true)] {
                let Some(entry) = registration.entry(gpu) else {
                    continue;
                };
                let now = shm_layout::clock::now();
                match begins {
                    true => drop(registration.lock(entry).try_acquire(now)),
                    false => drop(registration.lock(entry).release(Reason::Slice, now)),
                }
            }
        }
    }

    fn heartbeat(&self) {
        let now = shm_layout::clock::now();
        self.0.iter().for_each(|(_, one)| one.heartbeat(now));
    }
}

/// Keeps a synthetic machine running in `dir` until it is killed, for `beside.py`.
fn stage(dir: &Path) -> Result<()> {
    let stage = Stage::new(dir)?;
    for turn in 0.. {
        stage.hand_over(turn);
        if turn % 10 == 0 {
            stage.heartbeat();
        }
        std::thread::sleep(Duration::from_micros(1_000_000 / TURNS));
    }
    Ok(())
}

/// Evicts our data from the caches, as other programs do between two samples.
fn cool(other: &mut [u8]) {
    for byte in other.iter_mut().step_by(64) {
        *byte = byte.wrapping_add(1);
    }
}

/// Returns the processor time of this thread, which excludes other load on the machine.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Prints the resident memory and its parts: anonymous memory, programs and libraries, segments.
fn memory(out: &mut impl Write, when: &str) -> Result<()> {
    let status = shm_layout::procfs::text("/proc/self/status").unwrap_or_default();
    let mb = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or(0.0) * 1024.0 / 1e6
    };
    writeln!(
        out,
        "memory  {:7.1} MB resident{when}: own {:.1}, files {:.1}, shared {:.1}",
        mb("VmRSS:"),
        mb("RssAnon:"),
        mb("RssFile:"),
        mb("RssShmem:")
    )?;
    Ok(())
}

/// Makes a sample in which each device rotates among its eight busiest processes, 50 ms each.
fn sample(tick: u64) -> Sample {
    let now = 1_000_000_000_000 + tick * 1_000_000_000 / HZ;
    let slot = |index: u16| SlotId { index, epoch: 1 };
    let holder = |gpu: usize, turn: u64| (turn as u16 + gpu as u16 * 8) % PROCESSES;
    let turn = now / 50_000_000;
    let devices = (0..DEVICES).map(|gpu| {
        let mut device = DeviceSample {
            uuid: format!("GPU-00000000-0000-0000-0000-00000000000{gpu}"),
            used_bytes: Some(90 << 30),
            ..DeviceSample::default()
        };
        device.nvml.util_percent = Some(80 + (tick % 20) as u32);
        device.name = "NVIDIA H200".into();
        device.total_bytes = 141 << 30;
        device.owner = Some(slot(holder(gpu, turn)));
        device.owner_since_ns = turn * 50_000_000;
        device.policy.0.kind = PolicyKind::Timeslice(50_000_000);
        device
    });
    let processes = (0..PROCESSES).map(|index| {
        let mut process = ProcessSample {
            pid: Some(40_000 + u32::from(index)),
            user: "alice".into(),
            state: ProcessState::Wait,
            ..ProcessSample::default()
        };
        process.view.slot = slot(index);
        process.identity.label = format!("worker-{index}");
        (process.registered_ns, process.heartbeat_ns) = (1, now);
        process.devices = (0..DEVICES)
            .map(|gpu| holding(index, gpu, now, holder(gpu, turn) == index, tick))
            .collect();
        process
    });
    let turns = (0..5).flat_map(|back| (0..DEVICES).map(move |gpu| (turn - 4 + back, gpu)));
    let events = turns.enumerate().flat_map(|(at, (turn, gpu))| {
        let event = |slot, what| EventLine {
            seq: tick * 1000 + at as u64,
            time_ns: turn * 50_000_000,
            slot: Some(slot),
            gpu: Some(gpu),
            name: "worker".into(),
            what,
            ..EventLine::default()
        };
        [
            event(slot(holder(gpu, turn.saturating_sub(1))), What::Wait),
            event(
                slot(holder(gpu, turn)),
                What::Hold {
                    waited_ns: 350_000_000,
                },
            ),
        ]
    });
    Sample {
        snapshot: Snapshot {
            time_ns: now,
            devices: devices.collect(),
            processes: processes.collect(),
            ..Snapshot::default()
        },
        unix_ms: 1_700_000_000_000 + (tick * 250) as i64,
        host: "gpu01".into(),
        events: events.collect(),
        ..Sample::default()
    }
}

fn holding(index: u16, gpu: usize, now: u64, holds: bool, tick: u64) -> Holding {
    let mut holding = Holding {
        gpu,
        ..Holding::default()
    };
    holding.entry = gpu as u8;
    holding.used = u64::from(index + 1) << 25;
    holding.quota.bytes = Some(2 << 30);
    holding.counters.launches = tick * 100;
    holding.lock.state = if holds {
        LockState::Hold
    } else {
        LockState::Wait
    };
    holding.lock.since_ns = now - 20_000_000;
    holding.lock.waits.add(20_000_000_000, tick as u32);
    holding.lock.waited_ns = tick * 250_000_000;
    holding.lock.waited_for = (0..12)
        .map(|other| {
            (
                SlotId {
                    index: other,
                    epoch: 1,
                },
                tick * 20_000_000,
            )
        })
        .collect();
    holding.lock.holds.add(2_500_000_000, tick as u32);
    holding
}
