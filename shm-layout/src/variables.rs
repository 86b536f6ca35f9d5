//! stub
/// Other tools' variables that are honoured, by [`Source::Alias`](crate::Source::Alias) index.
pub const ALIASES: [&str; 10] = [
    "WRAPPER_MAX_MEMORY",
    "CUDA_OVERRIDE_KERNEL_N_SYNC",
    "CUDA_OVERRIDE_MAX_SYNC_MS",
    "CUDA_OVERRIDE_ALWAYS_LOCK",
    "CUDA_OVERRIDE_SYNC_LOCK_SKIPS",
    "ALNAIR_VGPU_COMPUTE_PERCENTILE",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_MEM_LIMIT",
    "PFLOG",
];
