//! A forecast of a device's shares: how the lock would divide the device among processes that go on as they did.
//!
//! The lock's own arithmetic decides (`order`, `stats`). A process is assumed to come back as long after its work as it did, and its
//! work to take as long as it took. That holds for turns, in which a process has the device alone, and not where processes submit
//! beside each other. Gangs and evictions are left out.

use super::{
    order::{self, KEPT_NS, LONG_GAP_NS, OVERTIME_NS, Standing},
    stats,
};
use crate::value::{LockPolicy, Order, PolicyKind, Share};
use gpushare_settings::policy::TurnLimit;

/// Work of a process, and the time until it comes back with more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Device time of the work, in nanoseconds; [`Burst::ENDLESS`] if it never ended.
    pub work_ns: u64,
    /// Time from its end until the process wants the device again, in nanoseconds.
    pub gap_ns: u64,
}

impl Burst {
    /// The work of a process that always wants the device.
    pub const ENDLESS: u64 = u64::MAX;
}

/// The use that a process makes of the device.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// Its share.
    pub share: Share,
    /// Its work, which repeats; empty for a process that does not want the device.
    pub bursts: Vec<Burst>,
    /// Device time of the launches that make a turn, under a policy that counts them.
    pub counted_ns: Option<u64>,
    /// Device time of one kernel, which no end of a turn interrupts; 0 if it is not known.
    pub kernel_ns: u64,
    /// Device time between two synchronisations, each of which may end a turn; 0 if it is not known.
    pub step_ns: u64,
}

/// The foreseen time of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foreseen {
    /// Share of the time in which it would hold the device, 0 to 1.
    pub held: f64,
    /// Share of the time in which it would wait, 0 to 1.
    pub waited: f64,
    /// Its turns: when each begins and ends, in nanoseconds.
    pub turns: Vec<[u64; 2]>,
    /// Its waits, likewise.
    pub waits: Vec<[u64; 2]>,
}

/// Foresees `span_ns` of a device. A hand-off between processes takes `handoff_ns`. Returns `None` for a policy without turns.
pub fn forecast(
    policy: &LockPolicy,
    demands: &[Demand],
    handoff_ns: u64,
    span_ns: u64,
) -> Option<Vec<Foreseen>> {
    policy.kind.has_turns().then(|| {
        let mut device = Device::new(policy, demands, handoff_ns, span_ns);
        device.run();
        device.foreseen()
    })
}

/// The activity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Without work until this time.
    Away(u64),
    /// Waiting since this time.
    Waits(u64),
    Holds,
}

struct Process<'d> {
    demand: &'d Demand,
    does: Does,
    /// Position of the present burst, and the rest of its work.
    burst: usize,
    left_ns: u64,
    /// The rest of the present kernel and of the present step.
    kernel_left_ns: u64,
    step_left_ns: u64,
    standing: Standing,
    cap_until: u64,
    /// Time of the end of the last turn, and the unused part of it.
    released_ns: u64,
    slack: u64,
    foreseen: Foreseen,
}

impl<'d> Process<'d> {
    fn new(demand: &'d Demand) -> Self {
        let first = demand.bursts.first();
        Self {
            demand,
            does: Does::Away(first.map_or(u64::MAX, |_| START_NS)),
            burst: 0,
            left_ns: first.map_or(0, |burst| burst.work_ns),
            kernel_left_ns: demand.kernel_ns,
            step_left_ns: demand.step_ns,
            standing: Standing {
                weight: demand.share.weight,
                priority: demand.share.priority,
                ..Standing::default()
            },
            cap_until: START_NS,
            released_ns: 0,
            slack: 0,
            foreseen: Foreseen::default(),
        }
    }

    /// Returns true if it waits and may have the device.
    fn takes_part(&self, now_ns: u64) -> bool {
        let capped = self.demand.share.cap.is_some() && self.cap_until > now_ns;
        matches!(self.does, Does::Waits(_)) && !self.demand.share.paused && !capped
    }

    fn cap_left(&self, since_ns: u64, now_ns: u64) -> u64 {
        self.demand.share.cap.map_or(u64::MAX, |cap| {
            stats::cap_left(self.cap_until, cap, since_ns, now_ns - since_ns, now_ns)
        })
    }

    fn gap_ns(&self) -> u64 {
        self.demand.bursts[self.burst].gap_ns
    }

    fn next_burst(&mut self) {
        self.burst = (self.burst + 1) % self.demand.bursts.len();
        self.left_ns = self.demand.bursts[self.burst].work_ns;
        (self.kernel_left_ns, self.step_left_ns) = (self.demand.kernel_ns, self.demand.step_ns);
    }

    /// Does a part of its work.
    fn work(&mut self, ns: u64) {
        if self.left_ns != Burst::ENDLESS {
            self.left_ns = self.left_ns.saturating_sub(ns);
        }
        self.step_left_ns = self.step_left_ns.saturating_sub(ns);
        let kernel_ns = self.demand.kernel_ns;
        if kernel_ns > 0 {
            let into_ns = (kernel_ns - self.kernel_left_ns + ns) % kernel_ns;
            self.kernel_left_ns = kernel_ns - into_ns;
        }
    }

    /// Returns the time until the present kernel ends, if one runs.
    fn kernel_rest_ns(&self) -> u64 {
        match self.demand.kernel_ns {
            0 => 0,
            kernel_ns => (self.kernel_left_ns % kernel_ns).min(self.left_ns),
        }
    }

    /// Returns the time until it synchronises within its burst. The end of the burst is no further synchronisation.
    fn until_step_ns(&self) -> u64 {
        match self.demand.step_ns {
            0 => u64::MAX,
            step_ns if self.left_ns.saturating_sub(self.step_left_ns) < step_ns / 2 => u64::MAX,
            _ => self.step_left_ns,
        }
    }

    /// Returns true if it synchronises now.
    fn synchronises(&mut self) -> bool {
        let now = self.until_step_ns() == 0;
        if now {
            self.step_left_ns = self.demand.step_ns;
        }
        now
    }
}

/// The time at which a forecast begins. It is not zero, because credits reach back.
const START_NS: u64 = 10_000_000_000;

/// A turn under way.
struct Turn {
    holder: usize,
    since_ns: u64,
    /// Under a policy that counts launches: the time at which the count is full.
    full_ns: u64,
}

/// Reason for the end of a turn.
enum End {
    /// The holder has no work for this time.
    Done(u64),
    /// Another process deserves the device, or the cap requires a pause.
    Over,
}

struct Device<'d> {
    policy: &'d LockPolicy,
    handoff_ns: u64,
    now_ns: u64,
    end_ns: u64,
    floor: u64,
    processes: Vec<Process<'d>>,
}

impl<'d> Device<'d> {
    fn new(policy: &'d LockPolicy, demands: &'d [Demand], handoff_ns: u64, span_ns: u64) -> Self {
        Self {
            policy,
            handoff_ns,
            now_ns: START_NS,
            end_ns: START_NS + span_ns,
            floor: 0,
            processes: demands.iter().map(Process::new).collect(),
        }
    }

    fn run(&mut self) {
        let mut handed = false;
        while self.now_ns < self.end_ns {
            self.arrivals(None);
            let Some(next) = self.best() else {
                handed = false;
                self.now_ns = self.next_chance();
                continue;
            };
            if handed {
                self.now_ns += self.handoff_ns;
            }
            let turn = self.begin(next);
            let end = self.hold(&turn);
            self.release(&turn, &end);
            handed = true;
        }
    }

    /// Queues the processes that are back.
    fn arrivals(&mut self, turn: Option<&Turn>) {
        for at in 0..self.processes.len() {
            if let Does::Away(until) = self.processes[at].does
                && until <= self.now_ns
            {
                self.open_account(at, turn);
                self.processes[at].does = Does::Waits(until);
            }
        }
    }

    /// Sets the virtual time and the cap with which a process joins.
    fn open_account(&mut self, at: usize, turn: Option<&Turn>) {
        let waiting = self
            .processes
            .iter()
            .filter(|one| one.takes_part(self.now_ns));
        let waiting = waiting.map(|one| one.standing.vtime);
        let holding = turn.map(|turn| {
            let held_ns = self.now_ns - turn.since_ns;
            self.processes[turn.holder].standing.vtime_after(held_ns)
        });
        let least = waiting.chain(holding).min().unwrap_or(self.floor);
        let now_ns = self.now_ns;
        let process = &mut self.processes[at];
        let floor = order::opening(least, now_ns - process.released_ns, process.slack);
        process.standing.vtime = process.standing.vtime.max(floor);
        process.cap_until = process.cap_until.max(now_ns - stats::IDLE_CREDIT_NS);
    }

    /// Returns the waiter that gets the device next.
    fn best(&self) -> Option<usize> {
        self.ranked().map(|(_, _, at)| at)
    }

    /// Returns the rank of the best waiter, the time since which it waits, and its position.
    fn ranked(&self) -> Option<(i128, u64, usize)> {
        let processes = self.processes.iter().enumerate();
        let waiters = processes.filter(|(_, one)| one.takes_part(self.now_ns));
        let ranks = waiters.map(|(at, one)| {
            let Does::Waits(since_ns) = one.does else {
                unreachable!("a process that takes part waits");
            };
            let rank = one
                .standing
                .of_waiter(self.policy.order, since_ns, self.now_ns);
            (rank, since_ns, at)
        });
        ranks.min()
    }

    /// Returns the next time at which a process may want the free device.
    fn next_chance(&self) -> u64 {
        let times = self.processes.iter().filter_map(|one| match one.does {
            Does::Away(until) => Some(until),
            Does::Waits(_) if !one.demand.share.paused => Some(one.cap_until),
            _ => None,
        });
        let next = times.filter(|time| *time > self.now_ns).min();
        next.map_or(self.end_ns, |next| next.min(self.end_ns))
    }

    fn begin(&mut self, holder: usize) -> Turn {
        let now_ns = self.now_ns;
        let process = &mut self.processes[holder];
        if let Does::Waits(since_ns) = process.does
            && since_ns < now_ns
        {
            process.foreseen.waits.push([since_ns, now_ns]);
        }
        process.does = Does::Holds;
        process.standing.turns += 1;
        Turn {
            holder,
            since_ns: now_ns,
            full_ns: now_ns.saturating_add(self.counted_ns(holder)),
        }
    }

    /// Returns the time of a full count of launches; the longest time under a policy that counts none.
    fn counted_ns(&self, holder: usize) -> u64 {
        match self.policy.kind.turn_limit() {
            Some(TurnLimit::Calls(_)) => {
                self.processes[holder].demand.counted_ns.unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        }
    }

    /// Lets the holder work until its turn ends.
    fn hold(&mut self, turn: &Turn) -> End {
        let mut full_ns = turn.full_ns;
        let slice_ns = turn.since_ns.saturating_add(self.policy.hold_limit(false));
        let longest_ns = turn.since_ns.saturating_add(self.policy.max_hold_ns);
        loop {
            self.work(turn, full_ns, slice_ns);
            self.arrivals(Some(turn));
            if self.now_ns >= self.end_ns {
                return End::Over;
            }
            let process = &self.processes[turn.holder];
            if process.cap_left(turn.since_ns, self.now_ns) == 0 {
                return End::Over;
            }
            if process.left_ns == 0 {
                let gap_ns = process.gap_ns();
                if !self.keeps(turn, gap_ns) {
                    return End::Done(gap_ns);
                }
                // The gap passes within the turn.
                let process = &mut self.processes[turn.holder];
                process.next_burst();
                process.left_ns = process.left_ns.saturating_add(gap_ns);
            }
            let synchronises = self.processes[turn.holder].synchronises();
            if synchronises && !self.goes_on_in_its_slice(turn, 0) && self.contended(turn, 0) {
                return End::Over;
            }
            let is_over = self.now_ns >= slice_ns && self.contended(turn, 0)
                || self.now_ns >= longest_ns && self.best().is_some();
            if is_over {
                self.drain(turn);
                return End::Over;
            }
            if self.now_ns >= full_ns {
                let counted_ns = self.counted_ns(turn.holder);
                if self.contended(turn, counted_ns) {
                    return End::Over;
                }
                full_ns = self.now_ns.saturating_add(counted_ns.max(1));
            }
        }
    }

    /// Goes on to the next moment at which something changes.
    fn work(&mut self, turn: &Turn, full_ns: u64, slice_ns: u64) {
        let now_ns = self.now_ns;
        let process = &self.processes[turn.holder];
        let cap_ns = process.cap_left(turn.since_ns, now_ns).max(KEPT_NS);
        let waits = self
            .processes
            .iter()
            .any(|one| matches!(one.does, Does::Waits(_)));
        // A holder whose time is over goes on while it deserves that most, which time alone may change.
        let decided_ns = match now_ns < slice_ns {
            true => slice_ns - now_ns,
            false if waits => OVERTIME_NS,
            false => u64::MAX,
        };
        let arrives = self.processes.iter().filter_map(|one| match one.does {
            Does::Away(until) => Some(until.saturating_sub(now_ns)),
            _ => None,
        });
        let step_ns = arrives
            .chain([
                process.left_ns,
                process.until_step_ns(),
                cap_ns,
                decided_ns,
                full_ns.saturating_sub(now_ns),
            ])
            .chain([self.end_ns.saturating_sub(now_ns)])
            .filter(|ns| *ns > 0)
            .min()
            .unwrap_or(OVERTIME_NS);
        self.now_ns = now_ns + step_ns;
        self.processes[turn.holder].work(step_ns);
    }

    /// Returns true if another process deserves the device as much as the holder that goes on for `ahead_ns` more.
    fn contended(&self, turn: &Turn, ahead_ns: u64) -> bool {
        let holder = &self.processes[turn.holder];
        let held_ns = self.now_ns - turn.since_ns;
        let spent = holder.demand.share.paused;
        let order = self.policy.order;
        let mine = holder.standing.of_holder(order, held_ns, ahead_ns, spent);
        self.ranked().is_some_and(|(rank, ..)| rank <= mine)
    }

    /// Returns true if the holder keeps the device between two bursts.
    fn keeps(&self, turn: &Turn, gap_ns: u64) -> bool {
        if self.goes_on_in_its_slice(turn, gap_ns) {
            return true;
        }
        let kept_ns = self.policy.idle_ns.unwrap_or(match gap_ns < LONG_GAP_NS {
            true => LONG_GAP_NS,
            false => KEPT_NS,
        });
        gap_ns < kept_ns && !self.contended(turn, 0)
    }

    /// Returns true if the holder goes on after a synchronisation, whatever others deserve: its slice is not over, and it submits
    /// again soon.
    fn goes_on_in_its_slice(&self, turn: &Turn, gap_ns: u64) -> bool {
        let PolicyKind::Timeslice(slice_ns) = self.policy.kind else {
            return false;
        };
        let held_ns = self.now_ns - turn.since_ns;
        self.policy.order == Order::Fair && gap_ns < LONG_GAP_NS && held_ns < slice_ns
    }

    /// Lets the present kernel end.
    fn drain(&mut self, turn: &Turn) {
        let process = &mut self.processes[turn.holder];
        let rest_ns = process.kernel_rest_ns();
        process.work(rest_ns);
        self.now_ns = (self.now_ns + rest_ns).min(self.end_ns);
    }

    fn release(&mut self, turn: &Turn, end: &End) {
        let now_ns = self.now_ns;
        let held_ns = now_ns - turn.since_ns;
        let process = &mut self.processes[turn.holder];
        process.standing.vtime = process.standing.vtime_after(held_ns);
        process.standing.held_ns += held_ns;
        if let Some(cap) = process.demand.share.cap {
            process.cap_until = stats::cap_debt(process.cap_until, cap, turn.since_ns, held_ns);
        }
        process.released_ns = now_ns;
        process.slack = stats::virtual_ns(held_ns / 2, process.standing.weight);
        process.foreseen.turns.push([turn.since_ns, now_ns]);
        let away_ns = match end {
            End::Done(gap_ns) => {
                process.next_burst();
                *gap_ns
            }
            // The next process is chosen before this one waits again.
            End::Over => 1,
        };
        process.does = Does::Away(now_ns + away_ns);
        let vtime = process.standing.vtime;
        if self.best().is_none() {
            self.floor = self.floor.max(vtime);
        }
    }

    /// Returns what was foreseen, with times since the beginning.
    fn foreseen(self) -> Vec<Foreseen> {
        let end_ns = self.end_ns;
        let span_ns = (end_ns - START_NS).max(1);
        let of = |mut process: Process<'_>| {
            if let Does::Waits(since_ns) = process.does {
                process.foreseen.waits.push([since_ns, end_ns]);
            }
            let mut foreseen = process.foreseen;
            let since_start = |spans: &mut Vec<[u64; 2]>| {
                let times = spans.iter_mut().flatten();
                times.for_each(|ns| *ns = (*ns).min(end_ns).saturating_sub(START_NS));
                let spent: u64 = spans.iter().map(|[from, to]| to - from).sum();
                spent as f64 / span_ns as f64
            };
            foreseen.held = since_start(&mut foreseen.turns);
            foreseen.waited = since_start(&mut foreseen.waits);
            foreseen
        };
        self.processes.into_iter().map(of).collect()
    }
}
