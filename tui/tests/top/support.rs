//! A synthetic machine for the dashboard's tests: two H200, six processes that take turns on the first, one without the
//! library.

use gpushare_sample::nvml::Figures;
use gpushare_sample::{
    DeviceSample, DeviceView, EventLine, GroupView, Histogram, Holding, Identity, LockPolicy,
    LockState, Nvml, Origin, PolicyKind, ProcessSample, ProcessState, ProcessView, Reason, Sample,
    Segment, Share, SlotId, Snapshot, Source, TraceState, TraceView, What,
};
use gpushare_top::palette::{Depth, Palette};
use gpushare_top::state::State;
use gpushare_top::view::{self, Look};
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use shm_layout::QuotaValue;

const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const START: u64 = 50_000 * S;
const LENGTH: u64 = 24 * S + 350 * MS;

/// Name, user, used and quota in tenths of GiB, weight.
const CAST: [(&str, &str, u64, Option<u64>, u32); 6] = [
    ("train-7b", "mlops", 409, Some(480), 200),
    ("vllm-worker", "alice", 302, Some(400), 100),
    ("notebook-bob", "bob", 119, Some(120), 100),
    ("embed-svc", "carol", 63, Some(80), 100),
    ("ci-job-3312", "ci", 21, None, 10),
    ("notebook-dave", "dave", 6, Some(80), 100),
];

/// The sequence of turns, repeated: process and milliseconds.
const TURNS: [(usize, u64); 5] = [(0, 2100), (1, 1400), (3, 1100), (2, 750), (4, 400)];

fn slot(index: usize) -> SlotId {
    SlotId {
        index: index as u16,
        epoch: 7,
    }
}

/// Returns the holder at a time of the story, the start of its turn, and the end.
fn holder(at: u64) -> (usize, u64, u64) {
    let round: u64 = TURNS.iter().map(|(_, ms)| ms * MS).sum();
    let into = (at - START) % round;
    let mut from = at - into;
    for (process, ms) in TURNS {
        let to = from + ms * MS;
        if at < to {
            return (process, from, to);
        }
        from = to;
    }
    unreachable!("the turns fill the round")
}

/// Returns how long a process has held the lock since the beginning.
fn held(process: usize, now: u64) -> u64 {
    let (mut at, mut sum) = (START, 0);
    while at < now {
        let (holder, _, until) = holder(at);
        if holder == process {
            sum += until.min(now) - at;
        }
        at = until;
    }
    sum
}

/// Returns when a process that does not hold the lock now released it last.
fn waiting_since(process: usize, now: u64) -> u64 {
    let (mut at, mut last) = (START, START);
    while at <= now {
        let (holder, _, until) = holder(at);
        if holder == process && until <= now {
            last = until;
        }
        at = until;
    }
    last
}

fn event(seq: u64, time_ns: u64, process: usize, what: What) -> EventLine {
    EventLine {
        seq,
        time_ns,
        slot: Some(slot(process)),
        pid: Some(pid(process)),
        name: CAST[process].0.into(),
        gpu: Some(0),
        what,
    }
}

fn pid(process: usize) -> u32 {
    [41822, 41849, 41876, 41903, 41930, 41984][process]
}

/// Returns all events in `from..to`.
fn events(from: u64, to: u64) -> Vec<EventLine> {
    let mut events = Vec::new();
    let mut at = START;
    while at < to {
        let (process, since, until) = holder(at);
        let waited = 3 * S + 860 * MS;
        events.push(event(0, since, process, What::Hold { waited_ns: waited }));
        let released = What::Release {
            reason: Reason::Slice,
            held_ns: until - since,
        };
        events.push(event(0, until, process, released));
        events.push(event(0, until, process, What::Wait));
        at = until;
    }
    for second in [3, 4, 12, 20, 24] {
        let denial = What::Denial {
            asked_bytes: GIB / 2,
            quota_bytes: 12 * GIB,
            call: Some(gpushare_abi::call_code("cuMemAlloc_v2")),
        };
        events.push(event(0, START + second * S + 100 * MS, 2, denial));
    }
    events.push(event(0, START + 9 * S, 0, What::Edit { generation: 813 }));
    events.sort_by_key(|event| event.time_ns);
    for (seq, event) in (0..).zip(&mut events) {
        event.seq = seq;
    }
    events.retain(|event| (from..to).contains(&event.time_ns));
    events
}

fn holding(process: usize, now: u64) -> Holding {
    let (_, _, used, quota, _) = CAST[process];
    let (holds, since, _) = holder(now);
    let mut holding = Holding::default();
    holding.view.used = used * GIB / 10;
    holding.peak = (used + 30) * GIB / 10;
    holding.nvml.bytes = Some(used * GIB / 10 + 400 * (1 << 20));
    holding.nvml.util_percent = Some([39, 25, 14, 18, 2, 0][process]);
    holding.quota.bytes = quota.map(|quota| quota * GIB / 10);
    holding.quota.source = if quota.is_some() {
        Source::LaunchEnv
    } else {
        Source::Default
    };
    holding.counters.denials = if process == 2 { 7 } else { 0 };
    holding.counters.launches = [18_400, 6_100, 210, 940, 77, 3][process] * (now / S);
    holding.counters.copies = 3200;
    holding.counters.syncs = 120;
    holding.counters.allocations = 912;
    holding.counters.frees = 845;
    holding.counters.denied_bytes = holding.counters.denials << 30;
    holding.counters.imported_bytes = 512 << 20;
    holding.counters.captured = 40;
    holding.counters.copy_bytes = 9 << 30;
    holding.counters.gate_misses = 18;
    holding.counters.last_submit_ns = now - S / 5;
    holding.policy.0.kind = PolicyKind::Timeslice(2 * S);
    holding.policy.1 = Source::Operator;
    let lock = &mut holding.lock;
    (lock.state, lock.since_ns) = match process {
        5 => (LockState::Idle, 0),
        one if one == holds => (LockState::Hold, since),
        one => (LockState::Wait, waiting_since(one, now)),
    };
    if process != 5 {
        lock.acquisitions = 14;
        lock.holds.add(1_500_000_000, 8);
        lock.holds.add(2_100_000_000, 6);
        lock.waits.add(800_000_000, 1);
        lock.waits.add(5_300_000_000, 13);
        for (reason, count) in [(Reason::Slice, 10), (Reason::Sync, 3), (Reason::Idle, 1)] {
            lock.releases[reason as usize] = count;
        }
        // Every process that does not hold the lock waits for the holder.
        lock.waited_for = (0..5)
            .filter(|other| *other != process)
            .map(|other| (slot(other), held(other, now)))
            .filter(|(_, ns)| *ns > 0)
            .collect();
        lock.waited_for
            .sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        lock.waited_ns = lock.waited_for.iter().map(|(_, ns)| ns).sum();
    }
    holding
}

fn identity(pid: u32, uid: u32, exe: &str) -> Identity {
    Identity {
        pid,
        uid,
        exe: exe.into(),
        ..Identity::default()
    }
}

fn processes(now: u64) -> Vec<ProcessSample> {
    let managed = (0..CAST.len()).map(|process| {
        let (name, user, _, _, weight) = CAST[process];
        let holding = holding(process, now);
        ProcessSample {
            pid: Some(pid(process)),
            user: user.into(),
            container: (process == 1).then(|| "9f3c9f3c9f3c".into()),
            state: match holding.lock.state {
                LockState::Hold => ProcessState::Hold,
                LockState::Wait => ProcessState::Wait,
                _ => ProcessState::Idle,
            },
            view: ProcessView {
                slot: slot(process),
                identity: Identity {
                    label: name.into(),
                    start_time: 1000,
                    ..identity(pid(process), 1000, "/usr/bin/python3")
                },
                share: Share {
                    weight,
                    ..Share::default()
                },
                group: (process < 2).then(|| "prod".into()),
                registered_ns: START - 19_000 * S,
                heartbeat_ns: now,
                acked: 813,
                devices: vec![holding],
                ..ProcessView::default()
            },
            ..ProcessSample::default()
        }
    });
    let mut holding = Holding::default();
    holding.view.used = 12 * GIB / 10;
    holding.nvml.bytes = Some(12 * GIB / 10);
    let stranger = ProcessSample {
        pid: Some(41957),
        user: "root".into(),
        state: ProcessState::Unmanaged,
        view: ProcessView {
            identity: identity(41957, 0, "/opt/tool/bin/render"),
            devices: vec![holding],
            ..ProcessView::default()
        },
        ..ProcessSample::default()
    };
    managed.chain([stranger]).collect()
}

fn handoff_times() -> Histogram {
    let mut times = Histogram::default();
    for (us, count) in [(20, 3), (40, 40), (90, 12), (140, 1)] {
        times.add(us * 1_000, count);
    }
    times
}

fn devices(now: u64) -> Vec<DeviceSample> {
    let (process, since, _) = holder(now);
    let view = DeviceView {
        name: "NVIDIA H200".into(),
        total_bytes: 141 * GIB,
        owner: Some(slot(process)),
        owner_since_ns: since,
        waiters: (0..5).filter(|other| *other != process).map(slot).collect(),
        policy: (
            LockPolicy {
                kind: PolicyKind::Timeslice(2 * S),
                ..LockPolicy::default()
            },
            Source::Operator,
        ),
        handoffs: (now - START) / S,
        last_handoff_ns: 21_000,
        takeovers: 1,
        handoff_times: handoff_times(),
        ..DeviceView::default()
    };
    let nvml = Figures {
        util_percent: Some(70 + (now / (250 * MS) * 7 % 30) as u32),
        mem_util_percent: Some(41),
        power_mw: Some(512_000),
        power_limit_mw: Some(700_000),
        temperature_c: Some(71),
        clock_mhz: Some(1830),
        pstate: Some(0),
        ..Figures::default()
    };
    let second = DeviceSample {
        uuid: "GPU-8f1c2d3e-0000-4000-8000-000000000002".into(),
        used_bytes: Some(GIB / 2),
        view: DeviceView {
            index: u8::MAX,
            owner: None,
            waiters: Vec::new(),
            policy: Default::default(),
            ..view.clone()
        },
        nvml: Figures {
            util_percent: Some(3),
            temperature_c: Some(34),
            ..nvml.clone()
        },
    };
    let first = DeviceSample {
        uuid: "GPU-8f1c2d3e-0000-4000-8000-000000000001".into(),
        used_bytes: Some(95 * GIB),
        view,
        nvml,
    };
    vec![first, second]
}

/// Returns the machine at a time, with the events since `from`.
pub fn sample(from: u64, now: u64) -> Sample {
    Sample {
        snapshot: Snapshot {
            time_ns: now,
            generation: 813,
            devices: devices(now),
            processes: processes(now),
            groups: vec![GroupView {
                name: "prod".into(),
                members: vec![slot(0), slot(1)],
                defined: true,
                memory: QuotaValue::Bytes(100 * GIB),
                ..GroupView::default()
            }],
            ..Snapshot::default()
        },
        // 14:31:17 on some day, UTC.
        unix_ms: 1_763_649_077_950 - ((START + LENGTH - now) / MS) as i64,
        host: "gpu01".into(),
        origin: Origin::Live,
        segment: Segment {
            dir: "/dev/shm/gpushare-0".into(),
            abi: Some(1),
            waiting: None,
        },
        nvml: Nvml::Ready("570.00".into()),
        events: events(from, now),
        ..Sample::default()
    }
}

/// Returns the samples of the whole story, four a second.
pub fn story() -> impl Iterator<Item = Sample> {
    let step = 250 * MS;
    (0..=(LENGTH - 350 * MS) / step).map(move |tick| {
        let now = START + tick * step + 350 * MS;
        sample(if tick == 0 { START } else { now - step }, now)
    })
}

/// Returns the dashboard at the end of the story.
pub fn state() -> State {
    let mut state = State::default();
    story().for_each(|sample| state.update(sample));
    state
}

/// Returns the share of the displayed time in which the first device had a holder.
pub fn held_together(state: &State) -> f32 {
    let data = state.data();
    let holds = data.on(0).into_iter().map(|who| data.spent(who, 0).hold);
    holds.sum()
}

/// Returns the look of tests: no colours, the clock in UTC.
pub fn look(ascii: bool) -> Look {
    look_with(Palette::new(Depth::Mono, false, ascii))
}

/// Returns the look of tests with all colours.
pub fn coloured() -> Look {
    look_with(Palette::new(Depth::True, false, false))
}

pub fn look_with(palette: Palette) -> Look {
    Look {
        palette,
        zone: TimeZone::UTC,
    }
}

/// Returns the names of the listed processes.
pub fn names(state: &State) -> Vec<&str> {
    state.rows().iter().map(|row| row.process.name()).collect()
}

/// Draws the screen at a size.
pub fn frame(state: &State, width: u16, height: u16, ascii: bool) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = look(ascii);
    terminal
        .draw(|frame| view::draw(frame.buffer_mut(), state, &look))
        .unwrap();
    terminal.backend().clone()
}

/// Returns the trace of a process: its state, the operator's setting, and the number of records.
pub fn traced(state: TraceState, wanted: Option<u32>, records: u64, logs: bool) -> TraceView {
    let mut trace = TraceView {
        wanted,
        ..TraceView::default()
    };
    (trace.progress.state, trace.progress.records) = (state, records);
    trace.progress.logs = logs;
    trace
}
