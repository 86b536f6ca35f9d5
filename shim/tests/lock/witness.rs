//! The simulated device's own log as evidence: between a process's acquisition and its release it has no kernel of another
//! process, and a turn is as long as the policy says.

use std::collections::BTreeMap;

use gpushare_sim::{World, timeline};
use gpushare_testbed::{Testbed, Watched, eventually};
use shm_layout::{EventKind, Reason, Segments, SlotId, clock, snapshot};

use crate::stage::{PATIENCE, events, last_line};

/// Rounding of start times in the engine's log, in nanoseconds.
const GRAIN_NS: u64 = 16;

/// A hold from the event ring, on the simulator's clock.
#[derive(Debug)]
struct Hold {
    pid: u32,
    from: u64,
    to: u64,
    /// True if it was ended with work still running: later kernels of this process are no evidence.
    forced: bool,
}

fn holds(segments: &Segments, pids: &BTreeMap<SlotId, u32>, to_sim_clock: u64) -> Vec<Hold> {
    let mut open: BTreeMap<SlotId, u64> = BTreeMap::new();
    let mut holds = Vec::new();
    for event in events(segments) {
        let slot = SlotId {
            index: event.slot,
            epoch: event.epoch,
        };
        let time = event.time_ns - to_sim_clock;
        let forced = match event.kind {
            EventKind::Hold => {
                open.insert(slot, time);
                continue;
            }
            EventKind::Release(reason) => reason == Reason::Forced,
            EventKind::Forced | EventKind::Takeover => true,
            _ => continue,
        };
        if let (Some(from), Some(pid)) = (open.remove(&slot), pids.get(&slot)) {
            let (pid, to) = (*pid, time);
            holds.push(Hold {
                pid,
                from,
                to,
                forced,
            });
        }
    }
    holds
}

/// The result of two busy programs: the device's log and their holds, on one clock.
struct Seen {
    log: Vec<timeline::Ran>,
    holds: Vec<Hold>,
    violations: u64,
}

/// Runs two programs that submit this many kernels at a time.
fn run_two(policy: &str, kernel_us: &str, burst: &str) -> Seen {
    let testbed = Testbed::with_scenario("one-gpu");
    let start = || {
        let words = ["--kernel-us", kernel_us, "--burst", burst, "--seconds", "2"];
        Watched::spawn(testbed.workload(&words).env("GPUSHARE_POLICY", policy))
    };
    let programs = [start(), start()];
    let mut pids = BTreeMap::new();
    eventually("both programs are on the device", PATIENCE, || {
        let Ok(segments) = Segments::open_viewer(testbed.dir()) else {
            return false;
        };
        for process in snapshot(&segments, clock::now()).processes {
            pids.insert(process.slot, process.identity.pid);
        }
        programs
            .iter()
            .all(|program| pids.values().any(|pid| *pid == program.pid()))
    });
    programs.into_iter().for_each(|one| drop(last_line(one)));

    let segments = Segments::open_viewer(testbed.dir()).expect("our own segments");
    let world = World::open_named(testbed.world(), None).expect("our own world");
    let log = timeline::log(&world, 0);
    // The clocks differ by the time for which the machine was suspended. The smallest of many differences is the one without an
    // interruption.
    let looks = (0..1000).map(|_| {
        let sim = gpushare_sim::clock::now();
        clock::now() - sim
    });
    let holds = holds(&segments, &pids, looks.min().unwrap_or(0));
    Seen {
        log,
        holds,
        violations: snapshot(&segments, clock::now()).violations,
    }
}

/// Runs two busy programs with kernels of 600 us, sixteen at a time. `most` is the maximum number of kernels in a turn.
fn only_the_holders_kernels_run(policy: &str, most: Option<usize>) {
    let Seen {
        log,
        holds,
        violations,
    } = run_two(policy, "600", "16");
    let forced = holds.iter().filter(|hold| hold.forced).count();
    let mut own = 0;
    for ran in &log {
        let latest = holds
            .iter()
            .rfind(|hold| hold.pid == ran.pid && hold.from <= ran.end);
        if latest.is_some_and(|hold| hold.forced) {
            continue;
        }
        for hold in &holds {
            if ran.start + GRAIN_NS >= hold.to || ran.end <= hold.from {
                continue;
            }
            own += usize::from(hold.pid == ran.pid);
            assert_eq!(hold.pid, ran.pid, "{policy}: {ran:?} ran within {hold:?}");
        }
    }
    let mut lengths: Vec<_> = log
        .chunk_by(|one, next| one.pid == next.pid)
        .map(<[_]>::len)
        .collect();
    let runs = lengths.len();
    lengths.sort_unstable();
    let common = lengths[runs / 2];
    eprintln!(
        "{policy}: {} kernels in {runs} runs of {common}, {} holds, {forced} of them forced",
        log.len(),
        holds.len()
    );
    // A busy machine lengthens some turns: a process that was charged for time without the device is compensated.
    assert!(most.is_none_or(|most| common <= most), "{policy}: {common}");
    assert!(
        own > log.len() / 2,
        "{policy}: the log and the ring agree on {own}"
    );
    assert!(runs > 4, "{policy}: {runs} runs of kernels");
    // A run of kernels belongs to one hold or to several; a forced hold may leave a run behind.
    assert!(
        runs <= holds.len() + forced,
        "{policy}: {runs} runs in {holds:?}"
    );
    assert_eq!(violations, 0);
}

#[test]
fn the_devices_log_shows_only_the_holders_kernels_under_a_time_slice() {
    only_the_holders_kernels_run("timeslice=5ms overlap=0", None);
}

/// Returns how many kernels each hold left behind, apart from forced holds. The policy allows ten.
fn left_behind() -> Vec<usize> {
    // A keeper that is slightly late still finds queued work.
    let Seen { log, holds, .. } = run_two("timeslice=20ms overlap=5ms", "500", "80");
    let tails = holds.iter().filter(|hold| !hold.forced).map(|hold| {
        let next = holds.iter().filter(|next| next.pid == hold.pid);
        let next = next.map(|next| next.from).filter(|from| *from >= hold.to);
        let next = next.min().unwrap_or(hold.to);
        let late = |ran: &&timeline::Ran| ran.pid == hold.pid && ran.end > hold.to + GRAIN_NS;
        log.iter()
            .filter(late)
            .filter(|ran| ran.end <= next)
            .count()
    });
    let mut tails: Vec<usize> = tails.collect();
    eprintln!("kernels left behind by each hold: {tails:?}");
    tails.sort_unstable();
    tails
}

#[test]
fn the_next_one_begins_while_a_little_of_the_last_ones_work_still_runs() {
    // Without the overlap no hold leaves kernels behind. On a busy machine a single run may show few.
    let some = (0..4).any(|_| {
        let tails = left_behind();
        let common = tails[tails.len() * 3 / 4];
        assert!(common <= 20, "5 ms is ten of them, not {common}");
        tails.iter().filter(|tail| **tail > 0).count() > 4
    });
    assert!(some, "hardly a hold left work behind, four times");
}

#[test]
fn the_devices_log_shows_only_the_holders_kernels_under_a_count_of_launches() {
    only_the_holders_kernels_run("launches=3", Some(3));
}

#[test]
fn the_devices_log_shows_only_the_holders_kernels_when_every_call_is_a_turn() {
    only_the_holders_kernels_run("always", Some(1));
}
