//! The footprint of a process: the device memory that a restore needs. Also the reason for a refused eviction.

use shm_layout::Why;

use crate::managed_process::Device;

/// The reason for a refusal, and the driver's error code or 0.
pub type Refusal = (Why, u16);

/// The memory of a process on one device.
#[derive(Clone, Copy)]
pub struct Footprint<'g> {
    /// The device.
    pub device: &'g Device,
    /// Bytes of allocations, according to the ledger.
    pub used: u64,
    /// Bytes for contexts and modules, as reported by NVML. If NVML does not list the process (in a container), the
    /// bytes that no account contains, at most those of one context.
    pub besides: u64,
    /// Bytes that must be free beyond both for a restore.
    pub margin: u64,
}

impl Footprint<'_> {
    /// Returns the bytes of the device that a restore fills.
    pub fn bytes(&self) -> u64 {
        self.used.saturating_add(self.besides)
    }

    /// Returns what must fit on the device for both.
    pub fn and(self, other: Self) -> Self {
        Self {
            used: self.used.saturating_add(other.used),
            besides: self.besides.saturating_add(other.besides),
            margin: self.margin.saturating_add(other.margin),
            ..self
        }
    }
}
