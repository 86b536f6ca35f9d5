//! The identity of a process.

/// The identity of a process, as the process reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Identity {
    /// Pid in the process's own namespace.
    #[cfg_attr(feature = "serde", serde(rename = "ns_pid"))]
    pub pid: u32,
    /// Inode of the pid namespace.
    pub pid_ns: u64,
    /// Inode of the time namespace.
    pub time_ns: u64,
    /// Start time in clock ticks (`/proc/self/stat`, field 22).
    pub start_time: u64,
    /// User id. Where a broker vouches for it and the process is in a user namespace that a user made, the id of that user.
    pub uid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Path of the cgroup.
    pub cgroup: String,
    /// Name from `gpushare run --name`.
    pub label: String,
}

/// Facts that a machine's broker learns about a process from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Vouched {
    /// Pid on the host.
    pub pid: u32,
    /// Group id.
    pub gid: u32,
    /// Start time as the host counts it.
    pub start_time: u64,
    /// Container; empty for none.
    pub container: String,
    /// Slurm job; empty for none.
    pub job: String,
}
