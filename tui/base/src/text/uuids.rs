//! Device UUIDs as people and `CUDA_VISIBLE_DEVICES` write them: `GPU-…` and `MIG-…`.

pub use shm_layout::{format_uuid as format, parse_uuid as parse};
