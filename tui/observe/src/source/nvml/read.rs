//! A round of NVML calls. A value that a device does not support is `None`; a call that fails is left out.

use std::collections::HashMap;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device as Handle, Nvml as Library};

use super::{Device, Figures, Look, Process};
use gpushare_sample::Nvml;
use gpushare_sample::nvml::Slowdown;

/// Maximum number of NVLinks of a device.
const MOST_NVLINKS: u32 = 18;

/// Calls NVML, and keeps the time up to which each device's utilisation samples were read.
pub(super) struct Reader<'n> {
    library: &'n Library,
    seen_us: HashMap<String, u64>,
    /// The number of active NVLinks, read once because it takes many calls and does not change.
    nvlinks: HashMap<String, Option<u32>>,
    /// The last measured PCIe traffic of each device.
    traffic: HashMap<String, Traffic>,
    /// The device whose traffic is measured next.
    turn: usize,
}

/// Bytes sent and received per second.
type Traffic = [Option<u64>; 2];

impl<'n> Reader<'n> {
    pub(super) fn new(library: &'n Library) -> Self {
        Self {
            library,
            seen_us: HashMap::new(),
            nvlinks: HashMap::new(),
            traffic: HashMap::new(),
            turn: 0,
        }
    }

    pub(super) fn look(&mut self) -> Look {
        let version = self.library.sys_driver_version();
        let count = match self.library.device_count() {
            Ok(count) => count,
            Err(error) => {
                return super::missing(format!("NVML does not list the devices: {error}"));
            }
        };
        let handles: Vec<_> = (0..count)
            .filter_map(|index| Some((index, self.library.device_by_index(index).ok()?)))
            .flat_map(|(index, device)| instances_or_whole(index, device))
            .collect();
        Look {
            state: Nvml::Ready(version.unwrap_or_else(|_| "unknown".into())),
            devices: {
                self.count_traffic(&handles);
                let all = handles.iter();
                all.map(|(parent, handle)| self.device(*parent, handle))
                    .collect()
            },
        }
    }

    /// Measures the traffic of one device. The driver counts for 20 ms for each answer, so all devices in each round
    /// would delay everything else.
    fn count_traffic(&mut self, handles: &[(Option<u32>, Handle<'_>)]) {
        self.turn = (self.turn + 1) % handles.len().max(1);
        let Some((_, handle)) = handles.get(self.turn) else {
            return;
        };
        let Ok(uuid) = handle.uuid() else { return };
        let counted = [PcieUtilCounter::Send, PcieUtilCounter::Receive].map(|way| {
            let kb = handle.pcie_throughput(way).ok()?;
            Some(u64::from(kb) * 1000)
        });
        self.traffic.insert(uuid, counted);
    }

    fn device(&mut self, parent: Option<u32>, handle: &Handle<'_>) -> Device {
        let memory = handle.memory_info().ok();
        let utilisation = handle.utilization_rates().ok();
        let uuid = handle.uuid().unwrap_or_default();
        Device {
            name: handle.name().unwrap_or_default(),
            total_bytes: memory.as_ref().map_or(0, |memory| memory.total),
            used_bytes: memory.map(|memory| memory.used),
            figures: Figures {
                mig_parent: parent,
                util_percent: utilisation.as_ref().map(|u| u.gpu),
                mem_util_percent: utilisation.map(|u| u.memory),
                power_mw: handle.power_usage().ok(),
                power_limit_mw: handle.enforced_power_limit().ok(),
                temperature_c: handle.temperature(TemperatureSensor::Gpu).ok(),
                clock_mhz: handle.clock_info(Clock::SM).ok(),
                pstate: handle
                    .performance_state()
                    .ok()
                    .and_then(|p| u8::try_from(p.as_c()).ok()),
                pcie_generation: handle.current_pcie_link_gen().ok(),
                pcie_width: handle.current_pcie_link_width().ok(),
                pcie_sent_bytes_per_s: self.traffic.get(&uuid).and_then(|both| both[0]),
                pcie_received_bytes_per_s: self.traffic.get(&uuid).and_then(|both| both[1]),
                nvlinks: self.nvlinks(&uuid, handle),
                slowed_by: handle.current_throttle_reasons().ok().map(slowdown),
            },
            processes: self.processes(&uuid, handle),
            uuid,
        }
    }

    fn nvlinks(&mut self, uuid: &str, handle: &Handle<'_>) -> Option<u32> {
        if let Some(known) = self.nvlinks.get(uuid) {
            return *known;
        }
        let links =
            (0..MOST_NVLINKS).map_while(|link| handle.link_wrapper_for(link).is_active().ok());
        let up: u32 = links.map(u32::from).sum();
        let up = (up > 0).then_some(up);
        self.nvlinks.insert(uuid.to_owned(), up);
        up
    }

    fn processes(&mut self, uuid: &str, handle: &Handle<'_>) -> Vec<Process> {
        let compute = handle.running_compute_processes().unwrap_or_default();
        let graphics = handle.running_graphics_processes().unwrap_or_default();
        let mut processes: Vec<Process> = compute.iter().map(process).collect();
        for one in graphics.iter().map(process) {
            if processes.iter().all(|known| known.pid != one.pid) {
                processes.push(one);
            }
        }
        // Clients are in the list above too, except a client whose context is lost.
        for client in handle.mps_running_compute_processes().unwrap_or_default() {
            if let Some(one) = processes.iter_mut().find(|p| p.pid == client.pid) {
                one.mps = true;
            }
        }
        let seen = self.seen_us.entry(uuid.to_owned()).or_default();
        for sample in handle.process_utilization_stats(*seen).unwrap_or_default() {
            *seen = (*seen).max(sample.timestamp);
            if let Some(one) = processes.iter_mut().find(|p| p.pid == sample.pid) {
                one.util_percent = Some(sample.sm_util);
            }
        }
        processes
    }
}

fn slowdown(reasons: ThrottleReasons) -> Slowdown {
    let heat = ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::SW_THERMAL_SLOWDOWN;
    let by_rank = [
        (heat, Slowdown::Heat),
        (
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
            Slowdown::PowerBrake,
        ),
        // Set together with the two above when the driver knows the cause.
        (ThrottleReasons::HW_SLOWDOWN, Slowdown::Hardware),
        (ThrottleReasons::SW_POWER_CAP, Slowdown::PowerCap),
    ];
    let worst = by_rank.iter().find(|(any, _)| reasons.intersects(*any));
    worst.map_or(Slowdown::Nothing, |(_, slowdown)| *slowdown)
}

/// Returns the instances of a device under MIG, which runs nothing itself; else the device. Each comes with the number
/// of its device.
fn instances_or_whole(index: u32, device: Handle<'_>) -> Vec<(Option<u32>, Handle<'_>)> {
    let slots = match device.mig_mode() {
        Ok(mode) if mode.current == 1 => device.mig_device_count().unwrap_or(0),
        _ => 0,
    };
    let instances: Vec<_> = (0..slots)
        .filter_map(|slot| Some((Some(index), device.mig_device_by_index(slot).ok()?)))
        .collect();
    if instances.is_empty() {
        vec![(None, device)]
    } else {
        instances
    }
}

fn process(info: &ProcessInfo) -> Process {
    Process {
        pid: info.pid,
        bytes: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
        util_percent: None,
        mps: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_reason_for_low_clocks_is_told_and_idleness_is_none() {
        use ThrottleReasons as R;
        for (reasons, told) in [
            (R::NONE, Slowdown::Nothing),
            (
                R::GPU_IDLE | R::APPLICATIONS_CLOCKS_SETTING,
                Slowdown::Nothing,
            ),
            (R::SW_POWER_CAP | R::GPU_IDLE, Slowdown::PowerCap),
            (R::SW_POWER_CAP | R::SW_THERMAL_SLOWDOWN, Slowdown::Heat),
            (R::HW_SLOWDOWN | R::HW_THERMAL_SLOWDOWN, Slowdown::Heat),
            (
                R::HW_SLOWDOWN | R::HW_POWER_BRAKE_SLOWDOWN,
                Slowdown::PowerBrake,
            ),
            (R::HW_SLOWDOWN, Slowdown::Hardware),
        ] {
            assert_eq!(slowdown(reasons), told, "{reasons:?}");
        }
    }
}
