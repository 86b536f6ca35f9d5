//! A device as a sample shows it: the lock's numbers with NVML's.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use shm_layout::{DEVICE_MIG, DEVICE_SIM, DeviceView};

use super::nvml::Figures;

/// One GPU or MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSample {
    /// `GPU-…` or `MIG-…`, as NVML writes it.
    pub uuid: String,
    /// What the segment says. Name, memory and flags are NVML's where it knows the device.
    pub view: DeviceView,
    /// Memory in use by NVML's count, driver overhead included.
    pub used_bytes: Option<u64>,
    /// What else NVML says.
    pub nvml: Figures,
}

impl Deref for DeviceSample {
    type Target = DeviceView;

    fn deref(&self) -> &DeviceView {
        &self.view
    }
}

impl DerefMut for DeviceSample {
    fn deref_mut(&mut self) -> &mut DeviceView {
        &mut self.view
    }
}

impl DeviceSample {
    /// The name without the vendor's prefix, as short as a header wants it.
    pub fn short_name(&self) -> &str {
        self.name.strip_prefix("NVIDIA ").unwrap_or(&self.name)
    }

    /// Is it the simulator's?
    pub fn is_sim(&self) -> bool {
        self.flags & DEVICE_SIM != 0
    }

    /// Is it a MIG instance?
    pub fn is_mig(&self) -> bool {
        self.flags & DEVICE_MIG != 0
    }
}
