//! A device as a sample shows it: the lock's figures with NVML's.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use shm_layout::{DEVICE_MIG, DEVICE_SIM, DeviceView};

use super::nvml::Figures;

/// A GPU or MIG instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSample {
    /// `GPU-…` or `MIG-…`, as NVML writes it.
    pub uuid: String,
    /// The segment's view. Name, memory and flags are NVML's if NVML lists the device.
    pub view: DeviceView,
    /// Memory in use by NVML's count, including the driver's own.
    pub used_bytes: Option<u64>,
    /// Other figures from NVML.
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
    /// Returns the name without the vendor's prefix, short enough for a header.
    pub fn short_name(&self) -> &str {
        self.name.strip_prefix("NVIDIA ").unwrap_or(&self.name)
    }

    /// Reports whether the device belongs to the simulator.
    pub fn is_sim(&self) -> bool {
        self.flags & DEVICE_SIM != 0
    }

    /// Reports whether the device is a MIG instance.
    pub fn is_mig(&self) -> bool {
        self.flags & DEVICE_MIG != 0
    }
}
