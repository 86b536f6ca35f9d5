//! The world in NVML's terms: GPUs with their MIG instances, and the processes on each.
//!
//! The model has *units*, which compute; NVML has GPUs. A GPU in MIG mode is no unit itself: each of its instances is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use gpushare_sim::checkpoint::{self, State};
use gpushare_sim::clock;
use gpushare_sim::scenario::Slowdown;
use gpushare_sim::usage::{self, DeviceUsage, percent};
use gpushare_sim::world::{World, uuid_text};

use crate::answer::{DRIVER_NOT_LOADED, Fault};
use crate::pids::host_pid;

/// Window of utilisation: the last second.
const WINDOW_NS: u64 = 1_000_000_000;

/// Time for which processes that lived are assumed to live, because a monitor queries everything on each device at once.
const BELIEVED_NS: u64 = 20_000_000;

/// Interval between samples of the processes' utilisation.
const SAMPLE_US: u64 = 100_000;

pub(crate) struct View {
    world: World,
    gpus: Vec<Gpu>,
    /// Time of the last removal of dead processes.
    seen_off_ns: AtomicU64,
}

pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) memory: u64,
    pub(crate) compute: (u32, u32),
    pub(crate) pci_bus: u32,
    pub(crate) slowed_by: Option<Slowdown>,
    /// Generation and width of its PCIe link under load.
    pub(crate) pcie: (u32, u32),
    /// The GPU's unit, unless the GPU is in MIG mode.
    pub(crate) unit: Option<usize>,
    /// The instances, in MIG mode.
    pub(crate) instances: Vec<Instance>,
}

pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) memory: u64,
    pub(crate) unit: usize,
}

impl Gpu {
    /// Returns its units: itself, or its instances in MIG mode.
    pub(crate) fn units(&self) -> impl Iterator<Item = usize> {
        let instances = self.instances.iter().map(|instance| instance.unit);
        instances.chain(self.unit)
    }
}

/// The use of one unit by one process.
pub(crate) struct Usage {
    pub(crate) pid: u32,
    pub(crate) bytes: u64,
    pub(crate) busy_percent: u32,
    /// The MPS server of a client.
    pub(crate) server: Option<u32>,
}

impl View {
    pub(crate) fn open() -> Result<Arc<Self>, Fault> {
        let world = World::open().map_err(|error| {
            // The error code does not distinguish a bad scenario from a missing driver.
            gpushare_sim::note::note("simulated NVML", &error);
            DRIVER_NOT_LOADED
        })?;
        if world.scenario().mishaps.no_nvml {
            return Err(DRIVER_NOT_LOADED);
        }
        let gpus = gpus(&world);
        Ok(Arc::new(Self {
            world,
            gpus,
            seen_off_ns: AtomicU64::new(0),
        }))
    }

    pub(crate) fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Waits until this process is restored if it is checkpointed, as the driver's NVML does (580.159.04).
    pub(crate) fn wait_for_a_checkpoint(&self) {
        let own = std::process::id();
        while checkpoint::state(&self.world, own) == Ok(State::Checkpointed) {
            clock::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn driver_version(&self) -> &str {
        &self.world.scenario().driver.version
    }

    pub(crate) fn used(&self, unit: usize) -> u64 {
        self.look(unit).used
    }

    pub(crate) fn load_percent(&self, unit: usize) -> u32 {
        self.look(unit).percent()
    }

    pub(crate) fn usage(&self, unit: usize) -> Vec<Usage> {
        let usage = self.look(unit);
        usage
            .processes
            .iter()
            .map(|process| Usage {
                pid: host_pid(process.pid, process.start_time),
                bytes: process.used,
                busy_percent: percent(process.busy, usage.window),
                server: process.server,
            })
            .collect()
    }

    /// Returns the number of faults of a unit's kernels, and the Xid of the last.
    pub(crate) fn xids(&self, unit: usize) -> (u32, u32) {
        usage::xids(&self.world, unit)
    }

    fn look(&self, unit: usize) -> DeviceUsage {
        let now = clock::now();
        if now.saturating_sub(self.seen_off_ns.load(Relaxed)) >= BELIEVED_NS {
            usage::see_off_the_dead(&self.world);
            self.seen_off_ns.store(now, Relaxed);
        }
        usage::look(&self.world, unit, WINDOW_NS)
    }

    /// Returns the time of the last utilisation sample, in microseconds since 1970.
    pub(crate) fn sampled_us(&self) -> u64 {
        let now = gpushare_sim::clock::since_1970_us();
        now - now % SAMPLE_US
    }
}

fn gpus(world: &World) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for unit in world.devices() {
        if unit.gpu == gpus.len() {
            let described = &world.scenario().devices[unit.gpu];
            gpus.push(Gpu {
                name: described.name.clone(),
                uuid: uuid_text("GPU", &unit.gpu_uuid),
                memory: described.memory.0,
                compute: (unit.compute.major, unit.compute.minor),
                pci_bus: unit.pci_bus(),
                slowed_by: described.slowed_by,
                pcie: (described.pcie_generation, described.pcie_width),
                unit: unit.mig.is_none().then_some(unit.index),
                instances: Vec::new(),
            });
        }
        if unit.mig.is_some() {
            gpus[unit.gpu].instances.push(Instance {
                name: unit.name.clone(),
                uuid: unit.uuid_text(),
                memory: unit.memory,
                unit: unit.index,
            });
        }
    }
    gpus
}
