//! The table of variables. Docs and help come from it; the tests hold each row to what the reader does.

/// Whose variable it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Ours.
    Own,
    /// Another tool's, in the place of ours named here.
    For(&'static str),
}

/// One variable we read.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name; `_n` at the end stands for a device's ordinal.
    pub name: &'static str,
    /// A value one would write.
    pub example: &'static str,
    /// Whose it is.
    pub stands: Stands,
    /// What it does.
    pub about: &'static str,
}

const fn own(name: &'static str, example: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        example,
        stands: Stands::Own,
        about,
    }
}

const fn alias(
    name: &'static str,
    of: &'static str,
    example: &'static str,
    about: &'static str,
) -> Variable {
    Variable {
        name,
        example,
        stands: Stands::For(of),
        about,
    }
}

/// Every variable, ours first.
pub const VARIABLES: &[Variable] = &[
    own(
        "GPUSHARE_MEMORY",
        "0:8GiB,1:50%",
        "memory quota: one amount, or one for each device",
    ),
    own(
        "GPUSHARE_WEIGHT",
        "200",
        "share under order=fair, 1 to 1000 (100)",
    ),
    own(
        "GPUSHARE_PRIORITY",
        "5",
        "rank under order=priority, -20 to 19, higher first (0)",
    ),
    own("GPUSHARE_CAP", "30%", "most of a device's time, 1% to 100%"),
    own(
        "GPUSHARE_GROUP",
        "training",
        "the group whose quota this process shares",
    ),
    own(
        "GPUSHARE_NAME",
        "resnet",
        "the process's name in ps and on the dashboard",
    ),
    own(
        "GPUSHARE_POLICY",
        "timeslice=5ms order=fair",
        "lock policy where the operator sets none",
    ),
    own(
        "GPUSHARE_DIR",
        "/run/gpushare",
        "where the shared segments are",
    ),
    own("GPUSHARE_DISABLE", "1", "step aside altogether"),
    own(
        "GPUSHARE_LOG",
        "info",
        "what we say on stderr: off, warn or info (warn)",
    ),
    own(
        "GPUSHARE_NVML_VIEW",
        "0",
        "leave NVML's memory numbers alone inside the process",
    ),
    own(
        "GPUSHARE_TRACE",
        "262144",
        "a trace from the first call on, with room for so many records; gpushare run --trace sets it",
    ),
    alias(
        "WRAPPER_MAX_MEMORY",
        "GPUSHARE_MEMORY",
        "4217928960",
        "bytes, on every device",
    ),
    alias(
        "CUDA_DEVICE_MEMORY_LIMIT",
        "GPUSHARE_MEMORY",
        "1g",
        "k, m, g or bytes, on every device; 0 is no limit",
    ),
    alias(
        "CUDA_DEVICE_MEMORY_LIMIT_n",
        "GPUSHARE_MEMORY",
        "1024m",
        "the same for the device n",
    ),
    alias(
        "CUDA_MEM_LIMIT",
        "GPUSHARE_MEMORY",
        "1024m",
        "k, m, g or bytes, on every device; 0 is no limit",
    ),
    alias(
        "CUDA_MEM_LIMIT_n",
        "GPUSHARE_MEMORY",
        "1g",
        "the same for the device n",
    ),
    alias(
        "ALNAIR_VGPU_COMPUTE_PERCENTILE",
        "GPUSHARE_CAP",
        "50",
        "per cent; none from 1 to 99 is no limit",
    ),
    alias(
        "CUDA_DEVICE_SM_LIMIT",
        "GPUSHARE_CAP",
        "50",
        "per cent; 0 and 100 are no limit",
    ),
    alias(
        "CUDA_OVERRIDE_KERNEL_N_SYNC",
        "GPUSHARE_POLICY",
        "10",
        "launches=N; 0 is every launch",
    ),
    alias(
        "CUDA_OVERRIDE_MAX_SYNC_MS",
        "GPUSHARE_POLICY",
        "2.5",
        "timeslice, in milliseconds; 0 is none",
    ),
    alias(
        "CUDA_OVERRIDE_ALWAYS_LOCK",
        "GPUSHARE_POLICY",
        "1",
        "always; stands above the two before",
    ),
    alias(
        "CUDA_OVERRIDE_SYNC_LOCK_SKIPS",
        "GPUSHARE_POLICY",
        "1",
        "sync-skips=N",
    ),
    alias(
        "PFLOG",
        "gpushare trace",
        "/tmp",
        "directory for metrics.log and timeline.log: every call's count and times",
    ),
];
