//! A process as a sample shows it: its identity, and its holding on each device.

use std::borrow::{Borrow, BorrowMut};
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use shm_layout::row::About;
use shm_layout::trace::TraceView;
use shm_layout::{
    CounterView, Liveness, LockState, Phase, ProcessDeviceView, ProcessView, SlotId, Source,
};

use super::host::Threads;
use super::nvml;
use gpushare_base::text::cgroups;

/// A process that uses a GPU: a managed process has a slot; an unmanaged process is only seen by NVML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSample {
    /// The contents of its slot. An unmanaged process has only its identity, from `/proc`, and the devices.
    pub view: ProcessView<Holding>,
    /// The pid on this host, if it can be found.
    pub pid: Option<u32>,
    /// The name of its user, or the number.
    pub user: String,
    /// The short name of its container.
    pub container: Option<String>,
    /// The state of the process.
    pub state: ProcessState,
    /// Its threads on the host's processors.
    pub threads: Threads,
    /// The segment directory of an unmanaged process that runs with the library.
    pub elsewhere: Option<String>,
}

impl Deref for ProcessSample {
    type Target = ProcessView<Holding>;

    fn deref(&self) -> &Self::Target {
        &self.view
    }
}

impl DerefMut for ProcessSample {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.view
    }
}

impl Borrow<ProcessView<Holding>> for ProcessSample {
    fn borrow(&self) -> &ProcessView<Holding> {
        &self.view
    }
}

impl BorrowMut<ProcessView<Holding>> for ProcessSample {
    fn borrow_mut(&mut self) -> &mut ProcessView<Holding> {
        &mut self.view
    }
}

/// The suffix that the kernel writes after the directory of a deleted segment.
pub const DELETED: &str = " (deleted)";

/// The state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// Holds the lock of a device.
    Hold,
    /// Waits for the lock of a device.
    Wait,
    /// Held back from submitting, under `overlap`.
    Back,
    /// Submits beside others, under `overlap`, or works without a policy in force.
    Active,
    /// None of the above.
    #[default]
    Idle,
    /// Waits for memory for an allocation.
    Memwait,
    /// Paused by an operator.
    Paused,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Exists, but its keeper thread writes no heartbeat.
    Stuck,
    /// Exited; its slot is not released yet.
    Gone,
    /// Has lost its context, or its memory while it was evicted. No GPU call of it succeeds any more.
    Lost,
    /// Memory on its way to the host.
    Evicting,
    /// Memory on the host.
    Evicted,
    /// Memory on the host, waiting for room on the device.
    Returning,
    /// Memory on its way back to the devices.
    Restoring,
    /// A slot that the machine's broker gave to no process: another program wrote it.
    Forged,
    /// Seen by NVML, but without a slot.
    Unmanaged,
    /// NVIDIA's MPS server, which runs the kernels of its clients.
    Server,
}

/// A process whose last submission is younger than this is at work. Its keeper thread counts a few times a second.
const WORKS_NS: u64 = 2_000_000_000;

/// A keeper thread without a heartbeat for this long is stuck.
pub const STUCK_NS: u64 = 5_000_000_000;

impl ProcessState {
    /// Returns the state of the process in a slot. `stopped` comes from the kernel: the process's own entry is older
    /// than the stop.
    pub fn of(view: &ProcessView<Holding>, now_ns: u64, stopped: bool) -> Self {
        let any = |state| view.devices.iter().any(|h| h.lock.state == state);
        let silent = now_ns.saturating_sub(view.heartbeat_ns) > STUCK_NS;
        match view.alive {
            _ if view.forged && view.vouched.is_none() => ProcessState::Forged,
            Liveness::Dead => ProcessState::Gone,
            _ if stopped => ProcessState::Stopped,
            Liveness::Live if silent && view.heartbeat_ns > 0 => ProcessState::Stuck,
            _ if view.devices.iter().any(|h| h.loss.is_some()) => ProcessState::Lost,
            _ if let Some(state) = Self::away(view.residence.phase) => state,
            _ if view.share.paused => ProcessState::Paused,
            _ if view.devices.iter().any(|h| h.memory_wait.is_some()) => ProcessState::Memwait,
            _ if any(LockState::Hold) => ProcessState::Hold,
            _ if any(LockState::Wait) => ProcessState::Wait,
            _ if any(LockState::Back) => ProcessState::Back,
            _ if any(LockState::Active) => ProcessState::Active,
            _ if view.devices.iter().any(|h| h.works(now_ns)) => ProcessState::Active,
            _ => ProcessState::Idle,
        }
    }

    /// Returns the state of a process whose memory is not on its devices.
    fn away(phase: Phase) -> Option<Self> {
        Some(match phase {
            Phase::Resident => return None,
            Phase::Evicting => ProcessState::Evicting,
            Phase::Evicted => ProcessState::Evicted,
            Phase::Returning => ProcessState::Returning,
            Phase::Restoring => ProcessState::Restoring,
            Phase::Lost => ProcessState::Lost,
        })
    }

    /// Reports whether the memory of the process is not on its devices.
    pub fn is_away(self) -> bool {
        matches!(
            self,
            ProcessState::Evicting
                | ProcessState::Evicted
                | ProcessState::Returning
                | ProcessState::Restoring
        )
    }

    /// Returns the word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            ProcessState::Hold => "hold",
            ProcessState::Wait => "wait",
            ProcessState::Back => "back",
            ProcessState::Active => "active",
            ProcessState::Idle => "idle",
            ProcessState::Memwait => "memwait",
            ProcessState::Paused => "paused",
            ProcessState::Stopped => "stopped",
            ProcessState::Stuck => "stuck",
            ProcessState::Gone => "gone",
            ProcessState::Lost => "lost",
            ProcessState::Evicting => "evicting",
            ProcessState::Evicted => "evicted",
            ProcessState::Returning => "returning",
            ProcessState::Restoring => "restoring",
            ProcessState::Forged => "forged",
            ProcessState::Unmanaged => "unmanaged",
            ProcessState::Server => "server",
        }
    }
}

/// The holding of one process on one device. The fields are in the order in which they lie in memory, because each
/// sample reads hundreds of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Holding {
    /// Position of the device in [`Snapshot::devices`](super::Snapshot::devices).
    pub gpu: usize,
    /// NVML's figures.
    pub nvml: nvml::Process,
    /// The contents of the slot. For an unmanaged process it has only the memory in use, by NVML's count.
    pub view: ProcessDeviceView,
}

impl Deref for Holding {
    type Target = ProcessDeviceView;

    fn deref(&self) -> &ProcessDeviceView {
        &self.view
    }
}

impl DerefMut for Holding {
    fn deref_mut(&mut self) -> &mut ProcessDeviceView {
        &mut self.view
    }
}

impl Borrow<ProcessDeviceView> for Holding {
    fn borrow(&self) -> &ProcessDeviceView {
        &self.view
    }
}

impl BorrowMut<ProcessDeviceView> for Holding {
    fn borrow_mut(&mut self) -> &mut ProcessDeviceView {
        &mut self.view
    }
}

impl Holding {
    /// Returns the number of kernels and graphs launched.
    pub fn launches(&self) -> u64 {
        self.counters.launches.saturating_add(self.counters.graphs)
    }

    /// Reports whether MPS runs the process's kernels, from the driver or NVML; `None` if neither reports it.
    pub fn mps(&self) -> Option<bool> {
        self.view.mps.or(self.nvml.mps.then_some(true))
    }

    /// Reports whether the process ever used the device. A program sees every device and mostly uses one. A pause
    /// applies to all devices and does not count as use.
    pub fn is_used(&self) -> bool {
        self.used > 0
            || self.peak > 0
            || self.nvml.pid > 0
            || self.launches() > 0
            || self.counters.denials > 0
            || self.lock.acquisitions > 0
            || self.lock.waited_ns > 0
            || !matches!(self.lock.state, LockState::Idle | LockState::Paused)
            || self.memory_wait.is_some()
            || self.loss.is_some()
    }

    /// Reports whether the process works without a lock that would show it, as under policy `off`.
    pub fn works(&self, now_ns: u64) -> bool {
        let last = self.counters.last_submit_ns;
        let lately = last > 0 && now_ns.saturating_sub(last) < WORKS_NS;
        !self.policy.0.kind.is_gated() && self.lock.state == LockState::Idle && lately
    }

    /// Returns the number of copies and memsets.
    pub fn copies(&self) -> u64 {
        self.counters.copies.saturating_add(self.counters.memsets)
    }
}

impl ProcessSample {
    /// Returns the bytes of the process on one of its devices and evicted from it.
    pub fn own_bytes(&self, holding: &Holding) -> u64 {
        match self.residence.phase {
            // Returning memory is charged before it is there, and counts as evicted until all of it is.
            Phase::Restoring => holding.used.max(holding.evicted),
            _ => holding.used.saturating_add(holding.evicted),
        }
    }

    /// Returns the bytes of the process that are not on its devices.
    pub fn evicted_bytes(&self) -> u64 {
        let evicted = self.devices.iter().map(|h| h.evicted);
        evicted.fold(0, u64::saturating_add)
    }

    /// Returns the figures about the evictions of the process, which are the same on each device that they concern; `None` if it was
    /// never evicted.
    pub fn evictions(&self) -> Option<&CounterView> {
        let counters = self.devices.iter().map(|h| &h.view.counters);
        counters
            .max_by_key(|counters| counters.evictions)
            .filter(|counters| counters.evictions > 0)
    }

    /// Returns for how long the memory of the process has been moved, in nanoseconds, with the move under way.
    pub fn moving_ns(&self, now_ns: u64) -> u64 {
        let moved = self.evictions().map_or(0, |counters| counters.moving_ns);
        let residence = &self.residence;
        let under_way = match residence.phase {
            Phase::Evicting | Phase::Restoring => now_ns.saturating_sub(residence.since_ns),
            _ => 0,
        };
        moved.saturating_add(under_way)
    }

    /// Returns how long calls waited for evicted memory: median, 99th percentile and longest of the last waits, in nanoseconds; `None`
    /// if none did.
    pub fn wakes(&self) -> Option<[u64; 3]> {
        let counters = self.evictions()?;
        let wakes = [
            counters.wake_p50_ns,
            counters.wake_p99_ns,
            counters.wake_max_ns,
        ];
        (counters.wake_max_ns > 0).then_some(wakes)
    }

    /// Returns the time since the last request of the program, or since it registered.
    pub fn unused_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.residence.used_ns)
    }

    /// Returns the time until the process is evicted, if it stays idle and nothing prevents it.
    pub fn evicts_in_ns(&self, now_ns: u64) -> Option<u64> {
        let after = self.share.evict_after.filter(|_| !self.share.pinned)?;
        let resident = self.residence.phase == Phase::Resident && self.residence.why.is_none();
        resident.then(|| {
            self.residence
                .used_ns
                .saturating_add(after)
                .saturating_sub(now_ns)
        })
    }

    /// Returns each setting in force as a person would type it, and its source; none for an unmanaged process.
    pub fn settings(&self) -> Vec<(&'static About, String, Source)> {
        let typed = self.is_managed().then(|| self.share.typed());
        typed.unwrap_or_default()
    }

    /// Returns the slot; `None` for an unmanaged process.
    pub fn slot(&self) -> Option<SlotId> {
        // The first epoch of a slot is 1.
        (self.view.slot.epoch > 0).then_some(self.view.slot)
    }

    /// Reports whether the process has a slot.
    pub fn is_managed(&self) -> bool {
        self.slot().is_some()
    }

    /// Reports whether the process could run with the shim but does not.
    pub fn is_unmanaged(&self) -> bool {
        !self.is_managed() && self.state != ProcessState::Server
    }

    /// Returns the trace, or the logs that its launch asked for; `None` without either.
    pub fn trace(&self) -> Option<TraceView> {
        let trace = self.view.trace;
        (trace.goes_on() || trace.progress.logs).then_some(trace)
    }

    /// Returns the Slurm job: from the broker if it vouches for one, else from the cgroup, or from the group that
    /// gpushare's hooks make for a job where Slurm makes no cgroups.
    pub fn slurm_job(&self) -> Option<&str> {
        match &self.vouched {
            Some(vouched) => Some(vouched.job.as_str()).filter(|job| !job.is_empty()),
            None => cgroups::job(&self.identity.cgroup).or_else(|| {
                let job = self.view.group.as_deref()?.strip_prefix("slurm-")?;
                job.bytes().all(|byte| byte.is_ascii_digit()).then_some(job)
            }),
        }
    }

    /// Returns the Slurm job, or the Kubernetes pod as `pod-` and the first digits of its UID.
    pub fn job(&self) -> Option<String> {
        let pod = || {
            // The broker marks a directory tree owned by a user in the container's name; such a name is no pod's.
            let vouched = self.vouched.as_ref();
            let roots = |container: &str| !container.is_empty() && !container.contains('/');
            vouched
                .is_none_or(|vouched| roots(&vouched.container))
                .then_some(())?;
            let uid = cgroups::pod(&self.identity.cgroup)?;
            Some(format!("pod-{}", uid.get(..8)?))
        };
        self.slurm_job().map(str::to_owned).or_else(pod)
    }

    /// Returns the holdings with activity; without any, the holding on the first device.
    pub fn uses(&self) -> impl Iterator<Item = &Holding> {
        self.used().map(|(_, holding)| holding)
    }

    /// Returns those holdings, each with its position in the list.
    pub fn used(&self) -> impl Iterator<Item = (usize, &Holding)> {
        let all = || self.devices.iter().enumerate();
        let used = all().filter(|(_, h)| h.is_used());
        let first = match self.devices.iter().any(Holding::is_used) {
            true => None,
            false => all().next(),
        };
        used.chain(first)
    }

    /// Returns the holding on device `gpu`.
    pub fn on(&self, gpu: usize) -> Option<&Holding> {
        self.devices.iter().find(|h| h.gpu == gpu)
    }

    /// Returns the name to show: its label, else its container, else its program.
    pub fn name(&self) -> &str {
        if !self.identity.label.is_empty() {
            return &self.identity.label;
        }
        if let Some(container) = &self.container {
            return container;
        }
        match self.identity.exe.rsplit('/').next() {
            Some("") | None => "-",
            Some(file) => file,
        }
    }

    /// Returns the pid to show: the host's, else the one that the process sees itself.
    pub fn shown_pid(&self) -> u32 {
        self.pid.unwrap_or(self.identity.pid)
    }

    /// Returns the pid and name for a message: `41849 vllm-worker`. The name is as the process wrote it; a message
    /// escapes it.
    pub fn pid_and_name(&self) -> String {
        format!("{} {}", self.shown_pid(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_returns_is_not_counted_twice() {
        let mut process = ProcessSample::default();
        let mut holding = Holding::default();
        let mut own_bytes = |phase, used, evicted| {
            process.residence.phase = phase;
            (holding.view.used, holding.view.evicted) = (used, evicted);
            process.own_bytes(&holding)
        };
        assert_eq!(own_bytes(Phase::Resident, 14, 0), 14);
        assert_eq!(own_bytes(Phase::Evicting, 4, 10), 14);
        assert_eq!(own_bytes(Phase::Evicted, 0, 14), 14);
        for arrived in [0, 7, 14] {
            assert_eq!(own_bytes(Phase::Restoring, arrived, 14), 14);
        }
    }
}
