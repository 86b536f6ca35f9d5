//! A made-up machine for the dashboard's tests: two H200, six processes that take turns on the first, one without shim.

use gpushare_tui::sample::{
    DeviceSample, EventLine, GroupSample, Holding, LockPolicy, LockState, Nvml, Order, Origin,
    PolicyKind, ProcessSample, ProcessState, Reason, Sample, Segment, SlotId, TraceState,
    TraceView, What,
};
use gpushare_tui::top::palette::{Depth, Palette};
use gpushare_tui::top::state::State;
use gpushare_tui::top::view::Look;
use jiff::tz::TimeZone;

const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
/// When the story begins.
const START: u64 = 50_000 * S;
/// How long it goes on.
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

/// Who holds when, over and over: process and milliseconds.
const TURNS: [(usize, u64); 5] = [(0, 2100), (1, 1400), (3, 1100), (2, 750), (4, 400)];

fn slot(index: usize) -> SlotId {
    SlotId {
        index: index as u16,
        epoch: 7,
    }
}

/// The holder at a moment of the story, since when, and until when.
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

/// How long a process has held the lock since the beginning.
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

/// When a process that does not hold now gave the lock up last.
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

/// Everything that happened in `from..to`.
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
    events.push(EventLine {
        slot: None,
        gpu: None,
        ..event(0, START + 9 * S, 0, What::Edit { generation: 813 })
    });
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
    let mut holding = Holding {
        gpu: 0,
        entry: Some(0),
        ordinal: Some(0),
        used_bytes: used * GIB / 10,
        peak_bytes: (used + 30) * GIB / 10,
        nvml_bytes: Some(used * GIB / 10 + 400 * (1 << 20)),
        util_percent: Some([39, 25, 14, 18, 2, 0][process]),
        quota_bytes: quota.map(|quota| quota * GIB / 10),
        quota_source: if quota.is_some() { "launch" } else { "default" }.into(),
        denials: if process == 2 { 7 } else { 0 },
        launches: [18_400, 6_100, 210, 940, 77, 3][process] * (now / S),
        copies: 3200,
        syncs: 120,
        ..Holding::default()
    };
    let lock = &mut holding.lock;
    lock.rule = PolicyKind::Timeslice(2 * S);
    lock.rule_source = "operator".into();
    (lock.state, lock.since_ns) = match process {
        5 => (LockState::Idle, 0),
        one if one == holds => (LockState::Hold, since),
        one => (LockState::Wait, waiting_since(one, now)),
    };
    if process != 5 {
        lock.acquisitions = 14;
        lock.hold_hist[24] = 8;
        lock.hold_hist[25] = 6;
        lock.wait_hist[23] = 1;
        lock.wait_hist[26] = 13;
        lock.ends = vec![(Reason::Slice, 10), (Reason::Sync, 3), (Reason::Idle, 1)];
        // Whoever does not hold waits for who does.
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

fn processes(now: u64) -> Vec<ProcessSample> {
    let managed = (0..CAST.len()).map(|process| {
        let (name, user, _, _, weight) = CAST[process];
        let holding = holding(process, now);
        ProcessSample {
            slot: Some(slot(process)),
            pid: Some(pid(process)),
            ns_pid: pid(process),
            start_time: 1000,
            uid: Some(1000),
            user: user.into(),
            label: name.into(),
            exe: "/usr/bin/python3".into(),
            container: (process == 1).then(|| "9f3c9f3c9f3c".into()),
            group: (process < 2).then(|| "prod".into()),
            state: match holding.lock.state {
                LockState::Hold => ProcessState::Hold,
                LockState::Wait => ProcessState::Wait,
                _ => ProcessState::Idle,
            },
            weight,
            registered_ns: START - 19_000 * S,
            heartbeat_ns: now,
            acknowledged: 813,
            devices: vec![holding],
            ..ProcessSample::default()
        }
    });
    let stranger = ProcessSample {
        pid: Some(41957),
        ns_pid: 41957,
        uid: Some(0),
        user: "root".into(),
        exe: "/opt/tool/bin/render".into(),
        state: ProcessState::Unmanaged,
        devices: vec![Holding {
            gpu: 0,
            used_bytes: 12 * GIB / 10,
            nvml_bytes: Some(12 * GIB / 10),
            ..Holding::default()
        }],
        ..ProcessSample::default()
    };
    managed.chain([stranger]).collect()
}

fn devices(now: u64) -> Vec<DeviceSample> {
    let (process, since, _) = holder(now);
    let first = DeviceSample {
        uuid: "GPU-8f1c2d3e-0000-4000-8000-000000000001".into(),
        name: "NVIDIA H200".into(),
        segment_index: Some(0),
        total_bytes: 141 * GIB,
        used_bytes: Some(95 * GIB),
        util_percent: Some(70 + (now / (250 * MS) * 7 % 30) as u32),
        mem_util_percent: Some(41),
        power_mw: Some(512_000),
        power_limit_mw: Some(700_000),
        temperature_c: Some(71),
        clock_mhz: Some(1830),
        pstate: Some(0),
        owner: Some(slot(process)),
        owner_since_ns: since,
        waiters: (0..5).filter(|other| *other != process).map(slot).collect(),
        policy: LockPolicy {
            kind: PolicyKind::Timeslice(2 * S),
            order: Order::Fair,
            idle_ns: 5 * MS,
            max_hold_ns: 10 * S,
            grace_ns: 200 * MS,
            sync_skips: 0,
        },
        policy_source: "operator".into(),
        handoffs: (now - START) / S,
        last_handoff_ns: 21_000,
        takeovers: 1,
        handoff_hist: std::array::from_fn(|at| {
            [3, 40, 12, 1].get(at.wrapping_sub(8)).copied().unwrap_or(0)
        }),
        ..DeviceSample::default()
    };
    let second = DeviceSample {
        uuid: "GPU-8f1c2d3e-0000-4000-8000-000000000002".into(),
        used_bytes: Some(GIB / 2),
        util_percent: Some(3),
        temperature_c: Some(34),
        segment_index: None,
        owner: None,
        waiters: Vec::new(),
        policy: LockPolicy::default(),
        policy_source: String::new(),
        ..first.clone()
    };
    vec![first, second]
}

/// The machine at a moment, with what happened since `from`.
pub fn sample(from: u64, now: u64) -> Sample {
    Sample {
        time_ns: now,
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
        generation: 813,
        devices: devices(now),
        processes: processes(now),
        groups: vec![GroupSample {
            name: "prod".into(),
            defined: true,
            quota: "100GiB".into(),
            quota_bytes: vec![Some(100 * GIB), Some(100 * GIB)],
            members: 2,
            used_bytes: vec![71 * GIB, 0],
            ..GroupSample::default()
        }],
        events: events(from, now),
        ..Sample::default()
    }
}

/// The samples of the whole story, four a second.
pub fn story() -> impl Iterator<Item = Sample> {
    let step = 250 * MS;
    (0..=(LENGTH - 350 * MS) / step).map(move |tick| {
        let now = START + tick * step + 350 * MS;
        sample(if tick == 0 { START } else { now - step }, now)
    })
}

/// The dashboard at the end of the story.
pub fn state() -> State {
    let mut state = State::default();
    story().for_each(|sample| state.update(sample));
    state
}

/// What part of the shown time anybody held the first device.
pub fn held_together(state: &State) -> f32 {
    let data = state.data();
    let holds = data.on(0).into_iter().map(|who| data.spent(who, 0).hold);
    holds.sum()
}

/// How everything looks in tests: no colours, the clock in UTC.
pub fn look(ascii: bool) -> Look {
    Look {
        palette: Palette::new(Depth::Mono, false, ascii),
        zone: TimeZone::UTC,
    }
}

/// A process's trace: where it stands, what the operator asked for, and what was written.
pub fn traced(state: TraceState, wanted: Option<u32>, records: u64, logs: bool) -> TraceView {
    let mut trace = TraceView {
        wanted,
        ..TraceView::default()
    };
    (trace.progress.state, trace.progress.records) = (state, records);
    trace.progress.logs = logs;
    trace
}
