//! The settings that a process asked for at its launch.

use crate::policy::LockPolicy;
use crate::table::{SettingValues, Sources};
use crate::value::{DEVICES_PER_PROCESS, Source};

/// A memory limit named at launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// No value was given.
    #[default]
    Unset,
    /// A number of bytes.
    Bytes(u64),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
    /// Explicitly unlimited.
    None,
}

/// A job that runs as several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gang {
    /// Name that the user gave the job.
    Named(String),
    /// Name from the launcher's variables, which may have the same values in another container.
    Found(String),
    /// Group whose members one session of a shell, a unit or a container started. A server with its workers has no launcher
    /// that names the job, and a team's group also has jobs that do not wait for each other.
    Group(String),
}

/// Everything a process's launch environment asks for.
#[derive(Clone, Debug, Default)]
pub struct LaunchLimits {
    /// Memory, by the process's own device ordinal.
    pub memory: [MemoryLimit; DEVICES_PER_PROCESS],
    /// Source of the memory quota.
    pub memory_source: Source,
    /// The settings of the table.
    pub settings: SettingValues,
    /// The source of each.
    pub sources: Sources,
    /// Source of weight, priority or cap.
    pub share_source: Source,
    /// The group to join.
    pub group: Option<String>,
    /// The job whose processes have their turns together: see `environment::job`.
    pub gang: Option<Gang>,
    /// The lock policy for this process's devices, where the operator sets none.
    pub policy: Option<LockPolicy>,
    /// Source of the policy.
    pub policy_source: Source,
    /// A variable had a bad value: shown as source `invalid`.
    pub invalid: bool,
}

impl LaunchLimits {
    /// Returns true if the launch asks for any limit.
    pub fn asks(&self) -> bool {
        let amount = |limit: &MemoryLimit| !matches!(limit, MemoryLimit::Unset | MemoryLimit::None);
        self.memory.iter().any(amount)
            || self.settings.cap.is_some()
            || self.settings.reserve.is_some()
            || self.group.is_some()
    }
}
