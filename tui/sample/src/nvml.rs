//! NVML's figures about a device and the processes on it, and the device of a sample, which has them beside the lock's. `None`
//! means that the device or the driver does not report a value.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use shm_layout::{DEVICE_MIG, DEVICE_SIM, DeviceView};

use super::keys::{Keys, object};

/// A device as NVML reports it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Device {
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// The product name.
    pub name: String,
    /// Total memory.
    pub total_bytes: u64,
    /// Memory in use, including the driver's own.
    pub used_bytes: Option<u64>,
    /// Utilisation, temperature and clocks.
    pub figures: Figures,
    /// The processes on the device.
    pub processes: Vec<Process>,
}

object! {
    /// The utilisation, temperature and clocks of a device.
    #[derive(Default, Eq, serde::Deserialize)]
    #[serde(default)]
    pub Figures {
        util_percent: Option<u32>, "Share of time with a kernel running.";
        mem_util_percent: Option<u32>, "Share of time the memory was read or written.";
        power_mw: Option<u32>, "Power drawn.";
        power_limit_mw: Option<u32>, "Power limit.";
        temperature_c: Option<u32>, "Temperature.";
        clock_mhz: Option<u32>, "Clock of the multiprocessors.";
        mig_parent: Option<u32>, "Of a MIG instance: the number of the GPU that it is a part of, as NVML counts." => Silent;
        pstate: Option<u8>, "Performance state, 0 is fastest.";
        pcie_generation: Option<u32>, "Generation of its PCIe link as it runs now; an idle link runs slower.";
        pcie_width: Option<u32>, "Lanes of that link in use.";
        pcie_max_generation: Option<u32>, "The highest generation that the device and its slot can run.";
        pcie_max_width: Option<u32>, "The most lanes that they can use.";
        pcie_sent_bytes_per_s: Option<u64>, "Bytes that it sends over PCIe in a second.";
        pcie_received_bytes_per_s: Option<u64>, "Bytes that it receives over PCIe in a second.";
        nvlinks: Option<u32>, "NVLinks that are up; null where it has none.";
        slowed_by: Option<Slowdown>, "What keeps the clocks low: nothing, power_cap, heat, power_brake or hardware." => State;
        xids: Option<u64>, "Errors (Xid) that the driver reported since this program looks, or as far back as the kernel's log goes where this user may read it; null where neither reports any." => Counter;
        xid: Option<u64>, "The driver's number of the newest of them." => Silent;
        xid_unix_ms: Option<i64>, "When it came." => Silent;
        xid_pid: Option<u32>, "The process that it names; null where the kernel's log cannot be read, or it names none." => Silent;
        xid_name: Option<String>, "The name of that process." => Silent;
    }
}

/// The reason for low clocks; of several, the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slowdown {
    /// No reason, or only a lack of work.
    Nothing,
    /// The power limit of the device is reached.
    PowerCap,
    /// The device is too hot.
    Heat,
    /// The machine's power supply demands it.
    PowerBrake,
    /// The hardware does not report the reason.
    Hardware,
}

impl Keys for Slowdown {
    fn word(&self) -> Option<Cow<'_, str>> {
        Some(self.key().into())
    }
}

impl Slowdown {
    /// Returns the word in JSON.
    fn key(self) -> &'static str {
        match self {
            Slowdown::Nothing => "nothing",
            Slowdown::PowerCap => "power_cap",
            Slowdown::Heat => "heat",
            Slowdown::PowerBrake => "power_brake",
            Slowdown::Hardware => "hardware",
        }
    }

    /// Returns the warning on the screen, if the reason deserves one.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Slowdown::Nothing => None,
            Slowdown::PowerCap => Some("slowed by its power limit"),
            Slowdown::Heat => Some("slowed by heat"),
            Slowdown::PowerBrake => Some("slowed by the power supply"),
            Slowdown::Hardware => Some("slowed by the hardware"),
        }
    }
}

/// A process on a device as NVML reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The pid, as seen from the driver's pid namespace.
    pub pid: u32,
    /// Memory in use, including the context.
    pub bytes: Option<u64>,
    /// Share of the compute time. For clients of MPS the driver reports the sum for their server.
    pub util_percent: Option<u32>,
    /// Set if the process is a client of MPS.
    pub mps: bool,
}

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
