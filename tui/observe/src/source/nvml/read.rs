//! A round of NVML calls. A value that a device does not support is `None`; a call that fails is left out.

use std::collections::HashMap;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device as Handle, EventSet, Nvml as Library};

use super::kernel_log::KernelLog;
use super::xids::{By, Pci, Xid, Xids};
use super::{Device, Figures, Look, Process};
use gpushare_sample::Nvml;
use gpushare_sample::nvml::Slowdown;

/// Maximum number of NVLinks of a device.
const MOST_NVLINKS: u32 = 18;

/// Calls NVML, and keeps the time up to which each device's utilisation samples were read.
pub(super) struct Reader<'n> {
    library: &'n Library,
    seen_us: HashMap<String, u64>,
    /// The place and the links of each device.
    fixed: HashMap<String, Fixed>,
    /// The errors of each device.
    errors: HashMap<String, Errors<'n>>,
    /// The traffic and the errors are read too.
    tells_all: bool,
    /// The kernel's log; `None` where it cannot be read.
    log: Option<KernelLog>,
    /// The errors that it reported in this round.
    logged: Vec<(Pci, Xid)>,
    /// The names of the devices of each card by its number, without figures. NVML tells nothing of a card that has fallen off the bus.
    named: HashMap<u32, Vec<Device>>,
    /// The last measured PCIe traffic of each device.
    traffic: HashMap<String, Traffic>,
    /// The device whose traffic is measured next.
    turn: usize,
}

/// Figures of a device that do not change. They are read once, because they take many calls.
#[derive(Clone, Copy)]
struct Fixed {
    /// The place of the card.
    card: Option<Pci>,
    nvlinks: Option<u32>,
    pcie_generation: Option<u32>,
    pcie_width: Option<u32>,
}

impl Fixed {
    fn of(handle: &Handle<'_>) -> Self {
        let up = (0..MOST_NVLINKS).map_while(|link| handle.link_wrapper_for(link).is_active().ok());
        let up: u32 = up.map(u32::from).sum();
        let place = |device: &Handle<'_>| device.pci_info().ok();
        // An instance has no place of its own.
        let pci = place(handle).or_else(|| place(&handle.mig_parent_device().ok()?));
        Self {
            card: pci.and_then(|pci| Pci::parse(&pci.bus_id)),
            nvlinks: (up > 0).then_some(up),
            pcie_generation: handle.max_pcie_link_gen().ok(),
            pcie_width: handle.max_pcie_link_width().ok(),
        }
    }
}

/// The errors of one device.
struct Errors<'n> {
    /// The driver's events; `None` where it reports none to a program.
    events: Option<EventSet<'n>>,
    xids: Xids,
}

impl<'n> Errors<'n> {
    fn of(library: &'n Library, handle: &Handle<'n>) -> Self {
        let events = library.create_event_set().ok();
        let registers = |events| handle.register_events(EventTypes::CRITICAL_XID_ERROR, events);
        Self {
            events: events.and_then(|events| registers(events).ok()),
            xids: Xids::default(),
        }
    }

    /// Takes the events that came since the last call. It does not wait.
    fn take_events(&mut self) {
        // A device whose errors do not end must not keep this thread.
        const MOST: usize = 100;
        for _ in 0..MOST {
            let event = self.events.as_ref().map(|events| events.wait(0));
            let Some(Ok(event)) = event else {
                return;
            };
            let number = match event.event_data {
                Some(XidError::Value(number)) => Some(number),
                _ => None,
            };
            let unix_ms = jiff::Timestamp::now().as_millisecond();
            self.xids.add(
                By::Nvml,
                Xid {
                    number,
                    unix_ms,
                    pid: None,
                    name: None,
                },
            );
        }
    }
}

/// Bytes sent and received per second.
type Traffic = [Option<u64>; 2];

impl<'n> Reader<'n> {
    /// Reads NVML, without the traffic and the errors.
    pub(super) fn new(library: &'n Library) -> Self {
        Self {
            library,
            seen_us: HashMap::new(),
            fixed: HashMap::new(),
            errors: HashMap::new(),
            tells_all: false,
            log: None,
            logged: Vec::new(),
            named: HashMap::new(),
            traffic: HashMap::new(),
            turn: 0,
        }
    }

    /// Reads the traffic and the errors too, those in the kernel's log where it can be read.
    pub(super) fn tell_all(&mut self, log: Option<KernelLog>) {
        (self.tells_all, self.log) = (true, log);
    }

    pub(super) fn look(&mut self) -> Look {
        let version = self.library.sys_driver_version();
        let count = match self.library.device_count() {
            Ok(count) => count,
            Err(error) => {
                return super::missing(format!("NVML does not list the devices: {error}"));
            }
        };
        let library = self.library;
        let card = |index| library.device_by_index(index).map(instances_or_whole);
        let cards: Vec<_> = (0..count).map(card).collect();
        let now_ms = jiff::Timestamp::now().as_millisecond();
        self.logged = self
            .log
            .as_mut()
            .map_or_else(Vec::new, |log| log.take(now_ms));
        if self.tells_all {
            let answering: Vec<_> = cards.iter().flatten().flatten().collect();
            self.count_traffic(&answering);
        }
        let (mut devices, mut warnings) = (Vec::new(), Vec::new());
        for (index, card) in (0..count).zip(&cards) {
            let handles = card.as_deref().unwrap_or_default();
            let answers = handles.iter().filter_map(|(is_instance, handle)| {
                self.device(is_instance.then_some(index), handle)
            });
            let mut of_card: Vec<_> = answers.collect();
            match of_card.is_empty() {
                true => of_card = self.without_their_card(index),
                false => self.keep_names(index, &of_card),
            }
            if of_card.is_empty() {
                // A card that is lost may still have a handle, and no name.
                let nameless = handles.first().and_then(|(_, handle)| handle.uuid().err());
                let error = card.as_ref().err().or(nameless.as_ref());
                warnings.extend(error.and_then(|error| silence(index, error)));
            }
            devices.append(&mut of_card);
        }
        Look {
            state: Nvml::Ready(version.unwrap_or_else(|_| "unknown".into())),
            devices,
            warnings,
        }
    }

    /// Keeps the names of the devices of a card.
    fn keep_names(&mut self, index: u32, devices: &[Device]) {
        let known = self.named.entry(index).or_default();
        let is_known = |device: &Device| known.iter().any(|known| known.uuid == device.uuid);
        if known.len() == devices.len() && devices.iter().all(is_known) {
            return;
        }
        let named = devices.iter().map(|device| Device {
            uuid: device.uuid.clone(),
            name: device.name.clone(),
            total_bytes: device.total_bytes,
            figures: Figures {
                mig_parent: device.figures.mig_parent,
                ..Figures::default()
            },
            ..Device::default()
        });
        *known = named.collect();
    }

    /// Returns what is left of the devices whose card NVML has lost: their names, and their errors.
    fn without_their_card(&mut self, index: u32) -> Vec<Device> {
        let mut devices = self.named.get(&index).cloned().unwrap_or_default();
        for device in &mut devices {
            let card = self.fixed.get(&device.uuid).and_then(|fixed| fixed.card);
            device.figures = Figures {
                mig_parent: device.figures.mig_parent,
                ..xid_figures(self.xids(&device.uuid, None, card))
            };
        }
        devices
    }

    /// Measures the traffic of one device. The driver counts for 20 ms for each answer, so all devices in each round
    /// would delay everything else.
    fn count_traffic(&mut self, handles: &[&(bool, Handle<'_>)]) {
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

    fn device(&mut self, parent: Option<u32>, handle: &Handle<'n>) -> Option<Device> {
        let uuid = handle.uuid().ok()?;
        let memory = handle.memory_info().ok();
        let utilisation = handle.utilization_rates().ok();
        let fixed = self.fixed.get(&uuid).copied();
        let fixed = fixed.unwrap_or_else(|| Fixed::of(handle));
        self.fixed.entry(uuid.clone()).or_insert(fixed);
        let errors = xid_figures(self.xids(&uuid, Some(handle), fixed.card));
        Some(Device {
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
                nvlinks: fixed.nvlinks,
                pcie_max_generation: fixed.pcie_generation,
                pcie_max_width: fixed.pcie_width,
                slowed_by: handle.current_throttle_reasons().ok().map(slowdown),
                ..errors
            },
            processes: self.processes(&uuid, handle),
            uuid,
        })
    }

    /// Returns the errors of a device, with those of this round; `None` where no source reports any. A device without a card has no
    /// handle.
    fn xids(
        &mut self,
        uuid: &str,
        handle: Option<&Handle<'n>>,
        card: Option<Pci>,
    ) -> Option<&Xids> {
        let handle = handle.filter(|_| self.tells_all && !self.errors.contains_key(uuid));
        if let Some(handle) = handle {
            let errors = Errors::of(self.library, handle);
            self.errors.insert(uuid.to_owned(), errors);
        }
        let errors = self.errors.get_mut(uuid)?;
        errors.take_events();
        let own = self.logged.iter().filter(|(place, _)| Some(*place) == card);
        own.for_each(|(_, xid)| errors.xids.add(By::Log, xid.clone()));
        (errors.events.is_some() || self.log.is_some()).then_some(&errors.xids)
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

/// Returns the figures about errors, without the others.
fn xid_figures(xids: Option<&Xids>) -> Figures {
    let newest = xids.and_then(Xids::newest);
    Figures {
        xids: xids.map(|xids| xids.count),
        xid: newest.and_then(|xid| xid.number),
        xid_unix_ms: newest.map(|xid| xid.unix_ms),
        xid_pid: newest.and_then(|xid| xid.pid),
        xid_name: newest.and_then(|xid| xid.name.clone()),
        ..Figures::default()
    }
}

/// Returns the instances of a device under MIG, which runs nothing itself; else the device. Each comes with whether it is an
/// instance.
fn instances_or_whole(device: Handle<'_>) -> Vec<(bool, Handle<'_>)> {
    let slots = match device.mig_mode() {
        Ok(mode) if mode.current == 1 => device.mig_device_count().unwrap_or(0),
        _ => 0,
    };
    let instances: Vec<_> = (0..slots)
        .filter_map(|slot| Some((true, device.mig_device_by_index(slot).ok()?)))
        .collect();
    if instances.is_empty() {
        vec![(false, device)]
    } else {
        instances
    }
}

/// Returns what is wrong with a card of which NVML tells nothing; `None` if it is another job's, which a container or a batch
/// system keeps from this one: NVML counts those as well.
fn silence(index: u32, error: &NvmlError) -> Option<String> {
    (!matches!(error, NvmlError::NoPermission)).then(|| {
        format!(
            "card {index} does not answer: {error}; nvidia-smi -L may say more, and a reset or a reboot may bring it back"
        )
    })
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
    fn a_card_that_belongs_to_another_job_is_not_silent() {
        assert_eq!(silence(3, &NvmlError::NoPermission), None);
        let lost = silence(3, &NvmlError::GpuLost).expect("a warning");
        assert!(lost.starts_with("card 3 does not answer: "), "{lost}");
    }

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
