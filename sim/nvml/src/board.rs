//! Device handles: the GPU or MIG instance behind a handle, its names and its place in the machine.

use std::sync::Arc;

use crate::answer::{
    ARGUMENT_VERSION_MISMATCH, Fault, GPU_IS_LOST, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED,
    NvmlReturn,
};
use crate::c::{Handle, InText, Out, OutText, PciInfo, PciInfoExt, version_1};
use crate::session;
use crate::view::{Gpu, Instance, View};

/// The Xid of a card that the machine does not find any more. NVML answers nothing about it from then on.
const OFF_THE_BUS: u32 = 79;

/// The GPU or MIG instance behind a handle, in the open world.
pub(crate) struct Board {
    pub(crate) view: Arc<View>,
    gpu: usize,
    instance: Option<usize>,
}

impl Board {
    /// Finds the device behind a handle.
    pub(crate) fn of(handle: Handle) -> Result<Self, Fault> {
        let view = session::view()?;
        let gpu = (handle.0 >> 8).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let instance = (handle.0 & 0xff).checked_sub(1);
        let described = view.gpus().get(gpu).ok_or(INVALID_ARGUMENT)?;
        if instance.is_some_and(|instance| instance >= described.instances.len()) {
            return Err(INVALID_ARGUMENT);
        }
        if described
            .units()
            .any(|unit| view.xids(unit).1 == OFF_THE_BUS)
        {
            return Err(GPU_IS_LOST);
        }
        Ok(Self {
            view,
            gpu,
            instance,
        })
    }

    /// Returns the GPU; for an instance, the GPU that it belongs to.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.view.gpus()[self.gpu]
    }

    /// Returns the GPU, or `NOT_SUPPORTED` for an instance: for properties that instances do not have.
    pub(crate) fn whole_gpu(&self) -> Result<&Gpu, Fault> {
        match self.instance {
            None => Ok(self.gpu()),
            Some(_) => Err(NOT_SUPPORTED),
        }
    }

    /// Returns the MIG instance, if the device is one.
    pub(crate) fn instance(&self) -> Option<&Instance> {
        self.gpu().instances.get(self.instance?)
    }

    pub(crate) fn gpu_handle(&self) -> Handle {
        handle(self.gpu, None)
    }

    pub(crate) fn instance_handle(&self, instance: usize) -> Handle {
        handle(self.gpu, Some(instance))
    }

    /// Returns the GPU instance id; ids begin at 1.
    pub(crate) fn instance_id(&self) -> Option<u32> {
        self.instance.map(|instance| instance as u32 + 1)
    }

    fn uuid(&self) -> &str {
        match self.instance() {
            Some(instance) => &instance.uuid,
            None => &self.gpu().uuid,
        }
    }
}

fn handle(gpu: usize, instance: Option<usize>) -> Handle {
    Handle((gpu + 1) << 8 | instance.map_or(0, |instance| instance + 1))
}

/// Returns the number of GPUs; instances do not count.
pub(crate) fn count(count: Out<u32>) -> NvmlReturn {
    count.set(session::view()?.gpus().len() as u32)
}

pub(crate) fn by_index(index: u32, device: Out<Handle>) -> NvmlReturn {
    let index = index as usize;
    if index >= session::view()?.gpus().len() {
        return Err(INVALID_ARGUMENT);
    }
    device.set(handle(index, None))
}

/// Finds a device by its UUID. NVML also accepts a GPU's UUID without the prefix, as CUDA shows it.
pub(crate) fn by_uuid(uuid: InText, device: Out<Handle>) -> NvmlReturn {
    let uuid = uuid.get()?;
    let view = session::view()?;
    for (gpu, described) in view.gpus().iter().enumerate() {
        if described.uuid == uuid || described.uuid.strip_prefix("GPU-") == Some(&uuid) {
            return device.set(handle(gpu, None));
        }
        let mut instances = described.instances.iter();
        if let Some(instance) = instances.position(|instance| instance.uuid == uuid) {
            return device.set(handle(gpu, Some(instance)));
        }
    }
    Err(NOT_FOUND)
}

pub(crate) fn by_pci_bus_id(bus_id: InText, device: Out<Handle>) -> NvmlReturn {
    let bus_id = bus_id.get()?.to_ascii_uppercase();
    let view = session::view()?;
    // NVML accepts the domain with four digits and with eight.
    let gpu = view.gpus().iter().position(|gpu| {
        let own = pci_bus_id(gpu);
        own == bus_id || own[4..] == bus_id
    });
    device.set(handle(gpu.ok_or(NOT_FOUND)?, None))
}

pub(crate) fn index(device: Handle, index: Out<u32>) -> NvmlReturn {
    let board = Board::of(device)?;
    index.set(board.instance.unwrap_or(board.gpu) as u32)
}

pub(crate) fn minor_number(device: Handle, minor: Out<u32>) -> NvmlReturn {
    let board = Board::of(device)?;
    board.whole_gpu()?;
    minor.set(board.gpu as u32)
}

pub(crate) fn name(device: Handle, name: OutText, room: u32) -> NvmlReturn {
    let board = Board::of(device)?;
    let of_instance = board.instance().map(|instance| &instance.name);
    name.set(room, of_instance.unwrap_or(&board.gpu().name))
}

pub(crate) fn uuid(device: Handle, uuid: OutText, room: u32) -> NvmlReturn {
    uuid.set(room, Board::of(device)?.uuid())
}

pub(crate) fn compute_capability(device: Handle, major: Out<i32>, minor: Out<i32>) -> NvmlReturn {
    let board = Board::of(device)?;
    let (of_major, of_minor) = board.gpu().compute;
    major.set(of_major as i32)?;
    minor.set(of_minor as i32)
}

pub(crate) fn pci_info(device: Handle, pci: Out<PciInfo>) -> NvmlReturn {
    let board = Board::of(device)?;
    let gpu = board.whole_gpu()?;
    let bus_id = pci_bus_id(gpu);
    let mut info = PciInfo {
        bus_id_legacy: [0; 16],
        domain: 0,
        bus: gpu.pci_bus,
        device: 0,
        device_id: 0x10de,
        subsystem_id: 0,
        bus_id: [0; 32],
    };
    info.bus_id[..bus_id.len()].copy_from_slice(bus_id.as_bytes());
    info.bus_id_legacy[..bus_id.len() - 4].copy_from_slice(&bus_id.as_bytes()[4..]);
    pci.set(info)
}

/// Fills in the newer struct, which adds the class: a 3D controller.
pub(crate) fn pci_info_ext(device: Handle, pci: Out<PciInfoExt>) -> NvmlReturn {
    let board = Board::of(device)?;
    let gpu = board.whole_gpu()?;
    let mut info = pci.get()?;
    if info.version != version_1::<PciInfoExt>() {
        return Err(ARGUMENT_VERSION_MISMATCH);
    }
    let bus_id = pci_bus_id(gpu);
    info = PciInfoExt {
        version: info.version,
        domain: 0,
        bus: gpu.pci_bus,
        device: 0,
        device_id: 0x10de,
        subsystem_id: 0,
        base_class: 3,
        sub_class: 2,
        bus_id: [0; 32],
    };
    info.bus_id[..bus_id.len()].copy_from_slice(bus_id.as_bytes());
    pci.set(info)
}

/// Returns NVML's number for the generation of a compute capability.
pub(crate) fn architecture(device: Handle, architecture: Out<u32>) -> NvmlReturn {
    const UNKNOWN: u32 = u32::MAX;
    let board = Board::of(device)?;
    architecture.set(match board.gpu().compute {
        (3, _) => 2,
        (5, _) => 3,
        (6, _) => 4,
        (7, 5) => 6,
        (7, _) => 5,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        (10.., _) => 10,
        _ => UNKNOWN,
    })
}

/// Reports that whole GPUs support every kind of peer access and GPUs in MIG mode none, as `cuDeviceCanAccessPeer` does.
pub(crate) fn p2p_status(
    device: Handle,
    peer: Handle,
    capability: u32,
    status: Out<u32>,
) -> NvmlReturn {
    const CAPABILITIES: u32 = 5;
    const STATUS_OK: u32 = 0;
    const STATUS_NOT_SUPPORTED: u32 = 5;
    let (one, other) = (Board::of(device)?, Board::of(peer)?);
    one.whole_gpu()?;
    other.whole_gpu()?;
    if capability >= CAPABILITIES || device == peer {
        return Err(INVALID_ARGUMENT);
    }
    let joined = one.gpu().unit.is_some() && other.gpu().unit.is_some();
    status.set(if joined {
        STATUS_OK
    } else {
        STATUS_NOT_SUPPORTED
    })
}

/// Reports an unknown brand.
pub(crate) fn brand(device: Handle, brand: Out<u32>) -> NvmlReturn {
    Board::of(device)?;
    brand.set(0)
}

/// Reports that no virtual machine uses the GPU.
pub(crate) fn virtualization(device: Handle, mode: Out<u32>) -> NvmlReturn {
    Board::of(device)?;
    mode.set(0)
}

/// Reports that no display is connected or in use.
pub(crate) fn display(device: Handle, on: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    on.set(0)
}

/// Reports that all processors are near the GPU.
pub(crate) fn cpu_affinity(device: Handle, words: u32, set: Out<u64>) -> NvmlReturn {
    Board::of(device)?;
    if words == 0 {
        return Err(INVALID_ARGUMENT);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let word = |first: usize| match processors.saturating_sub(first) {
        0 => 0,
        64.. => u64::MAX,
        some => (1 << some) - 1,
    };
    let all: Vec<u64> = (0..processors).step_by(64).map(word).collect();
    set.fill_all(words, &all)
}

/// Reports the processors of a node or a socket: all of them.
pub(crate) fn cpu_affinity_within(
    device: Handle,
    words: u32,
    set: Out<u64>,
    scope: u32,
) -> NvmlReturn {
    check_scope(scope)?;
    cpu_affinity(device, words, set)
}

/// Reports the memory node of the GPU: the first one.
pub(crate) fn memory_affinity(device: Handle, words: u32, set: Out<u64>, scope: u32) -> NvmlReturn {
    check_scope(scope)?;
    Board::of(device)?;
    if words == 0 {
        return Err(INVALID_ARGUMENT);
    }
    set.fill_all(words, &[1])
}

fn check_scope(scope: u32) -> NvmlReturn {
    const SOCKET: u32 = 1;
    if scope > SOCKET {
        return Err(INVALID_ARGUMENT);
    }
    Ok(())
}

fn pci_bus_id(gpu: &Gpu) -> String {
    format!("00000000:{:02X}:00.0", gpu.pci_bus)
}
