//! Who a process is.

/// Who a process is, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Identity {
    /// Its pid in its own namespace.
    #[cfg_attr(feature = "serde", serde(rename = "ns_pid"))]
    pub pid: u32,
    /// Its pid namespace's inode.
    pub pid_ns: u64,
    /// Its time namespace's inode.
    pub time_ns: u64,
    /// Its start time in clock ticks (`/proc/self/stat`, field 22).
    pub start_time: u64,
    /// Its user; where a broker vouches for it and it is in a user namespace that a user made, that user.
    pub uid: u32,
    /// Its executable.
    pub exe: String,
    /// Its cgroup.
    pub cgroup: String,
    /// Its name from `gpushare run --name`.
    pub label: String,
}

/// What the broker of a machine knows of a process beyond that, from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Vouched {
    /// Its pid on the host.
    pub pid: u32,
    /// Its group.
    pub gid: u32,
    /// Its start time as the host has it.
    pub start_time: u64,
    /// Its container; empty for none.
    pub container: String,
    /// Its Slurm job; empty for none.
    pub job: String,
}
