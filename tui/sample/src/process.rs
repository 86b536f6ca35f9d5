//! A process as a sample shows it: who it is, and what it holds on each device.

use std::borrow::{Borrow, BorrowMut};
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use shm_layout::trace::TraceView;
use shm_layout::{Liveness, LockState, Phase, PolicyKind, ProcessDeviceView, ProcessView, SlotId};

use super::nvml;
use gpushare_base::text::cgroups;

/// A process that uses a GPU: a managed one has a slot; an unmanaged one is only seen by NVML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSample {
    /// What its slot says. Of an unmanaged one it has the identity, from `/proc`, and the devices.
    pub view: ProcessView<Holding>,
    /// Its pid on this host, as far as we can find it.
    pub pid: Option<u32>,
    /// Its user's name, or the number.
    pub user: String,
    /// Its container, short.
    pub container: Option<String>,
    /// What it is doing.
    pub state: ProcessState,
    /// Of an unmanaged one that runs with the library all the same: the directory of its segments.
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

/// Behind the directory of segments whose files have no name any more, as the kernel writes it.
pub const DELETED: &str = " (deleted)";

/// What a process is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// Holds a device's lock.
    Hold,
    /// Waits for one.
    Wait,
    /// Held back from submitting, under `overlap`.
    Back,
    /// Submits beside others, under `overlap`, or works where no policy is in force.
    Active,
    /// Neither.
    #[default]
    Idle,
    /// An allocation of it waits for memory.
    Memwait,
    /// Paused by an operator.
    Paused,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Its keeper shows no sign of life, though the process exists.
    Stuck,
    /// Gone, not yet cleaned up.
    Gone,
    /// Its context is lost, or its memory while it was evicted: nothing works in it any more.
    Lost,
    /// Its memory leaves its devices.
    Evicting,
    /// Its memory is on the host.
    Evicted,
    /// The same, and it waits for room to come back.
    Returning,
    /// Its memory comes back.
    Restoring,
    /// A slot that the machine's broker gave to no process: another program wrote it.
    Forged,
    /// NVML sees it, no shim does.
    Unmanaged,
    /// NVIDIA's MPS server, which runs the kernels of its clients.
    Server,
}

/// Who submitted work this short a time ago is at work. Its keeper counts a few times a second.
const WORKS_NS: u64 = 2_000_000_000;

/// A keeper that has not ticked for this long is stuck.
pub const STUCK_NS: u64 = 5_000_000_000;

impl ProcessState {
    /// What the process in a slot is doing. `stopped` is the kernel's word: what the process last said of itself is
    /// from before it was stopped.
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

    /// Where its memory is not on its devices, that is what it is doing.
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

    /// Whether its memory is not on its devices.
    pub fn is_away(self) -> bool {
        matches!(
            self,
            ProcessState::Evicting
                | ProcessState::Evicted
                | ProcessState::Returning
                | ProcessState::Restoring
        )
    }

    /// The word in tables and JSON.
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

/// What one process holds and did on one device. As it is written here it lies in memory: each sample looks through hundreds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Holding {
    /// Position of the device in [`Snapshot::devices`](super::Snapshot::devices).
    pub gpu: usize,
    /// What NVML says.
    pub nvml: nvml::Process,
    /// What its slot says. Of an unmanaged process it has the memory in use, by NVML's count.
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
    /// Kernels and graphs launched.
    pub fn launches(&self) -> u64 {
        self.counters.launches.saturating_add(self.counters.graphs)
    }

    /// Whether MPS runs its kernels, by the driver or by NVML; `None` where neither says.
    pub fn mps(&self) -> Option<bool> {
        self.view.mps.or(self.nvml.mps.then_some(true))
    }

    /// Did anything ever happen there? A program sees every device and mostly uses one. A pause concerns all of them and is no use.
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

    /// Does it work without a lock to tell of it? Under policy `off` it has none.
    pub fn works(&self, now_ns: u64) -> bool {
        let last = self.counters.last_submit_ns;
        let lately = last > 0 && now_ns.saturating_sub(last) < WORKS_NS;
        self.policy.0.kind == PolicyKind::Off && self.lock.state == LockState::Idle && lately
    }

    /// Copies and memsets.
    pub fn copies(&self) -> u64 {
        self.counters.copies.saturating_add(self.counters.memsets)
    }
}

impl ProcessSample {
    /// Bytes that are its own and not on its devices.
    pub fn evicted_bytes(&self) -> u64 {
        let evicted = self.devices.iter().map(|h| h.evicted);
        evicted.fold(0, u64::saturating_add)
    }

    /// Until it is evicted, if it stays idle and nothing is in the way.
    pub fn evicts_in_ns(&self, now_ns: u64) -> Option<u64> {
        let after = self.share.evict_after?;
        let resident = self.residence.phase == Phase::Resident && self.residence.why.is_none();
        resident.then(|| {
            self.residence
                .used_ns
                .saturating_add(after)
                .saturating_sub(now_ns)
        })
    }

    /// Its slot; `None` for an unmanaged one.
    pub fn slot(&self) -> Option<SlotId> {
        // The first life of a slot is number 1.
        (self.view.slot.epoch > 0).then_some(self.view.slot)
    }

    /// Does the shim report it?
    pub fn is_managed(&self) -> bool {
        self.slot().is_some()
    }

    /// Is it a program that could run with the shim and does not?
    pub fn is_stranger(&self) -> bool {
        !self.is_managed() && self.state != ProcessState::Server
    }

    /// Its trace, or the logs that its launch asked for; `None` without either.
    pub fn trace(&self) -> Option<TraceView> {
        let trace = self.view.trace;
        (trace.goes_on() || trace.progress.logs).then_some(trace)
    }

    /// Its Slurm job: by the broker's word, if there is one; else by its cgroup, or by the group that gpushare's hooks make of a
    /// job where Slurm makes no cgroups.
    pub fn slurm_job(&self) -> Option<&str> {
        match &self.vouched {
            Some(vouched) => Some(vouched.job.as_str()).filter(|job| !job.is_empty()),
            None => cgroups::job(&self.identity.cgroup).or_else(|| {
                let job = self.view.group.as_deref()?.strip_prefix("slurm-")?;
                job.bytes().all(|byte| byte.is_ascii_digit()).then_some(job)
            }),
        }
    }

    /// Its Slurm job, or its Kubernetes pod as `pod-` and the first digits of its UID.
    pub fn job(&self) -> Option<String> {
        let pod = || {
            // Of a tree that is a user's own the broker says so in the container's name; it is no pod's.
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

    /// What it holds where it did something; what it holds on its first device if it did nothing anywhere yet.
    pub fn uses(&self) -> impl Iterator<Item = &Holding> {
        self.used().map(|(_, holding)| holding)
    }

    /// The same, each with its place in the list.
    pub fn used(&self) -> impl Iterator<Item = (usize, &Holding)> {
        let all = || self.devices.iter().enumerate();
        let used = all().filter(|(_, h)| h.is_used());
        let first = match self.devices.iter().any(Holding::is_used) {
            true => None,
            false => all().next(),
        };
        used.chain(first)
    }

    /// What it holds on device `gpu`.
    pub fn on(&self, gpu: usize) -> Option<&Holding> {
        self.devices.iter().find(|h| h.gpu == gpu)
    }

    /// The name to show: its label, else its container, else its program.
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

    /// The pid to show: the host's, else the one it sees itself.
    pub fn shown_pid(&self) -> u32 {
        self.pid.unwrap_or(self.identity.pid)
    }

    /// As a person would say it: `41849 vllm-worker`. The name is as the process wrote it; a message escapes it.
    pub fn pid_and_name(&self) -> String {
        format!("{} {}", self.shown_pid(), self.name())
    }
}
