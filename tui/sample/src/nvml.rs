//! What NVML says of a device and of the processes on it. `None`: the device or the driver does not tell.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::keys::{Keys, object};

/// One device by NVML.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Device {
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// The product name.
    pub name: String,
    /// Memory it has.
    pub total_bytes: u64,
    /// Memory in use, driver overhead included.
    pub used_bytes: Option<u64>,
    /// How busy, hot and fast it is.
    pub figures: Figures,
    /// Processes on it.
    pub processes: Vec<Process>,
}

object! {
    /// How busy, hot and fast a device is.
    #[derive(Copy, Default, Eq, serde::Deserialize)]
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
        pcie_sent_bytes_per_s: Option<u64>, "Bytes that it sends over PCIe in a second.";
        pcie_received_bytes_per_s: Option<u64>, "Bytes that it receives over PCIe in a second.";
        nvlinks: Option<u32>, "NVLinks that are up; null where it has none.";
        slowed_by: Option<Slowdown>, "What keeps the clocks low: nothing, power_cap, heat, power_brake or hardware." => State;
    }
}

/// What keeps a device's clocks low, of several the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slowdown {
    /// Nothing, or that there is no work.
    Nothing,
    /// It draws as much power as its limit allows.
    PowerCap,
    /// It is too hot.
    Heat,
    /// The machine's power supply asks for it.
    PowerBrake,
    /// The hardware does not say why.
    Hardware,
}

impl Keys for Slowdown {
    fn word(&self) -> Option<Cow<'_, str>> {
        Some(self.key().into())
    }
}

impl Slowdown {
    /// As JSON has it.
    fn key(self) -> &'static str {
        match self {
            Slowdown::Nothing => "nothing",
            Slowdown::PowerCap => "power_cap",
            Slowdown::Heat => "heat",
            Slowdown::PowerBrake => "power_brake",
            Slowdown::Hardware => "hardware",
        }
    }

    /// As the screen warns of it.
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

/// One process on one device by NVML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its pid, as seen from the driver's pid namespace.
    pub pid: u32,
    /// Bytes it uses, context overhead included.
    pub bytes: Option<u64>,
    /// Its share of the compute time; of MPS's clients together the driver tells it of their server.
    pub util_percent: Option<u32>,
    /// It is a client of MPS.
    pub mps: bool,
}
