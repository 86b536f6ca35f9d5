//! How busy, hot and fast a device is. Only the load is true; the rest follows from it, plausibly.

use crate::answer::{
    ARGUMENT_VERSION_MISMATCH, Fault, INVALID_ARGUMENT, NOT_SUPPORTED, NvmlReturn,
};
use crate::board::Board;
use crate::c::{Handle, Out, Temperature, Utilization, version_1};

const POWER_LIMIT_MW: u32 = 350_000;
const IDLE_POWER_MW: u32 = 60_000;
/// Graphics, multiprocessors, memory, video: clocks at rest and at work, in MHz.
const CLOCKS_MHZ: [(u32, u32); 4] = [(345, 1980), (345, 1980), (2619, 2619), (765, 1545)];

/// How much of the last second the engine was busy, in percent; any instance's on a GPU in MIG mode.
fn load(device: Handle) -> Result<u32, Fault> {
    let board = Board::of(device)?;
    let gpu = board.whole_gpu()?;
    let units = gpu.instances.iter().map(|instance| instance.unit);
    let loads = units
        .chain(gpu.unit)
        .map(|unit| board.view.load_percent(unit));
    Ok(loads.max().unwrap_or(0))
}

/// `nvmlDeviceGetUtilizationRates`; not for MIG, as on a real GPU.
pub(crate) fn utilization(device: Handle, rates: Out<Utilization>) -> NvmlReturn {
    let gpu = load(device)?;
    Board::of(device)?.whole_gpu()?.unit.ok_or(NOT_SUPPORTED)?;
    rates.set(Utilization {
        gpu,
        memory: gpu / 2,
    })
}

/// Encoder and decoder: there are none to be busy.
pub(crate) fn codec(device: Handle, percent: Out<u32>, period_us: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    percent.set(0)?;
    period_us.set(167_000)
}

/// 34 °C at rest, 74 °C at work.
pub(crate) fn temperature(device: Handle, sensor: u32, celsius: Out<u32>) -> NvmlReturn {
    celsius.set(self::celsius(device, sensor)?)
}

/// The newer call, with sensor and answer in one struct.
pub(crate) fn temperature_v(device: Handle, temperature: Out<Temperature>) -> NvmlReturn {
    let mut asked = temperature.get()?;
    if asked.version != version_1::<Temperature>() {
        return Err(ARGUMENT_VERSION_MISMATCH);
    }
    asked.celsius = celsius(device, asked.sensor)? as i32;
    temperature.set(asked)
}

fn celsius(device: Handle, sensor: u32) -> Result<u32, Fault> {
    match sensor {
        0 => Ok(34 + load(device)? * 40 / 100),
        _ => Err(INVALID_ARGUMENT),
    }
}

pub(crate) fn power(device: Handle, milliwatts: Out<u32>) -> NvmlReturn {
    milliwatts.set(IDLE_POWER_MW + load(device)? * (POWER_LIMIT_MW - IDLE_POWER_MW) / 125)
}

pub(crate) fn power_limit(device: Handle, milliwatts: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    milliwatts.set(POWER_LIMIT_MW)
}

/// Why the clocks are below their highest: idle, or nothing.
pub(crate) fn clocks_event_reasons(device: Handle, reasons: Out<u64>) -> NvmlReturn {
    const GPU_IDLE: u64 = 1;
    reasons.set(match load(device)? {
        0 => GPU_IDLE,
        _ => 0,
    })
}

pub(crate) fn fan(device: Handle, percent: Out<u32>) -> NvmlReturn {
    percent.set(30 + load(device)? * 40 / 100)
}

pub(crate) fn fan_of(device: Handle, fan: u32, percent: Out<u32>) -> NvmlReturn {
    match fan {
        0 => self::fan(device, percent),
        _ => Err(INVALID_ARGUMENT),
    }
}

pub(crate) fn fans(device: Handle, count: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    count.set(1)
}

pub(crate) fn clock(device: Handle, domain: u32, megahertz: Out<u32>) -> NvmlReturn {
    let (rest, work) = clocks(domain)?;
    megahertz.set(if load(device)? > 0 { work } else { rest })
}

pub(crate) fn max_clock(device: Handle, domain: u32, megahertz: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    megahertz.set(clocks(domain)?.1)
}

fn clocks(domain: u32) -> Result<(u32, u32), Fault> {
    let found = CLOCKS_MHZ.get(domain as usize);
    found.copied().ok_or(INVALID_ARGUMENT)
}

/// P0 at work, P8 at rest.
pub(crate) fn performance_state(device: Handle, state: Out<u32>) -> NvmlReturn {
    state.set(if load(device)? > 0 { 0 } else { 8 })
}

const PCIE_GENERATION: u32 = 5;
/// What goes over the bus in a second at full load: sent by the device, received by it.
const PCIE_KB: [u32; 2] = [2_000_000, 6_000_000];

/// At rest the link runs at its slowest, as a real one does.
pub(crate) fn pcie_generation(device: Handle, generation: Out<u32>) -> NvmlReturn {
    generation.set(if load(device)? > 0 {
        PCIE_GENERATION
    } else {
        1
    })
}

pub(crate) fn max_pcie_generation(device: Handle, generation: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    generation.set(PCIE_GENERATION)
}

pub(crate) fn pcie_width(device: Handle, lanes: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    lanes.set(16)
}

/// What is sent (0) and received (1) in a second, made up from the load as the rest.
pub(crate) fn pcie_throughput(device: Handle, counter: u32, kilobytes: Out<u32>) -> NvmlReturn {
    let most = PCIE_KB.get(counter as usize).ok_or(INVALID_ARGUMENT)?;
    kilobytes.set(most / 100 * load(device)?)
}

pub(crate) fn persistence(device: Handle, on: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    on.set(1)
}

/// Shared: any number of processes.
pub(crate) fn compute_mode(device: Handle, mode: Out<u32>) -> NvmlReturn {
    Board::of(device)?;
    mode.set(0)
}
