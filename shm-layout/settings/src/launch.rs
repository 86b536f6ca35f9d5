//! What a process asked for at its launch.

use crate::table::{SettingValues, Sources};
use crate::value::{DEVICES_PER_PROCESS, LockPolicy, Source};

/// A memory limit named at launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Nothing was said.
    #[default]
    Unset,
    /// So many bytes.
    Bytes(u64),
    /// A share of the device's memory, 1 to 100.
    Percent(u8),
    /// Explicitly unlimited.
    None,
}

/// A job that runs as several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gang {
    /// As the person who started it calls it.
    Named(String),
    /// As its launcher does, by variables that may have the same values in another container.
    Found(String),
    /// What one session of a shell, a unit or a container started as members of this group: a server with its workers has no
    /// launcher that says so, and the group of a team also has jobs that do not wait for each other.
    Group(String),
}

/// Everything a process's launch environment asks for.
#[derive(Clone, Debug, Default)]
pub struct LaunchLimits {
    /// Memory, by the process's own device ordinal.
    pub memory: [MemoryLimit; DEVICES_PER_PROCESS],
    /// Who said so.
    pub memory_source: Source,
    /// The settings of the table.
    pub settings: SettingValues,
    /// The source of each.
    pub sources: Sources,
    /// Who set weight, priority or cap.
    pub share_source: Source,
    /// The group to join.
    pub group: Option<String>,
    /// What names the job whose processes have their turns together: see `environment::job`.
    pub gang: Option<Gang>,
    /// The lock policy for this process's devices, where the operator sets none.
    pub policy: Option<LockPolicy>,
    /// Who set it.
    pub policy_source: Source,
    /// A variable had a bad value: shown as source `invalid`.
    pub invalid: bool,
}

impl LaunchLimits {
    /// Whether the process is to be held to something.
    pub fn asks(&self) -> bool {
        let amount = |limit: &MemoryLimit| !matches!(limit, MemoryLimit::Unset | MemoryLimit::None);
        self.memory.iter().any(amount) || self.settings.cap.is_some() || self.group.is_some()
    }
}
