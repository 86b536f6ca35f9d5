//! What a process has on its devices and has to have there again, and how it is said that it is not moved.

use shm_layout::Why;

use crate::managed_process::Device;

/// Why not, and the driver's error code that goes with it.
pub type Refusal = (Why, u16);

/// What a process has on one device.
pub struct Footprint<'g> {
    /// Which.
    pub device: &'g Device,
    /// Bytes of allocations, by our ledger.
    pub used: u64,
    /// Bytes besides, for contexts and modules: as NVML says, or where it does not name the process (in a container) as much of
    /// what is in no account as a context takes.
    pub besides: u64,
    /// Bytes that have to be free beyond both for it to come back.
    pub margin: u64,
}
