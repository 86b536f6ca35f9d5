//! Load, temperature, power and clocks of a device. Only the load is true; the other figures are derived from it.

use gpushare_sim::scenario::{FASTEST_PCIE, Slowdown};

use crate::answer::{
    ARGUMENT_VERSION_MISMATCH, Fault, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_SUPPORTED,
    NvmlReturn,
};
use crate::board::Board;
use crate::c::{Handle, Out, Temperature, Utilization, version_1};

const POWER_LIMIT_MW: u32 = 350_000;
const IDLE_POWER_MW: u32 = 60_000;
/// Clocks when idle and when busy, in MHz: graphics, multiprocessors, memory, video.
const CLOCKS_MHZ: [(u32, u32); 4] = [(345, 1980), (345, 1980), (2619, 2619), (765, 1545)];

/// Returns how much of the last second the engine was busy, in percent; for a GPU in MIG mode, its busiest instance.
fn load(device: Handle) -> Result<u32, Fault> {
    let board = Board::of(device)?;
    let gpu = board.whole_gpu()?;
    let loads = gpu.units().map(|unit| board.view.load_percent(unit));
    Ok(loads.max().unwrap_or(0))
}

/// `nvmlDeviceGetUtilizationRates`; not supported in MIG mode, as on a real GPU.
pub(crate) fn utilization(device: Handle, rates: Out<Utilization>) -> NvmlReturn {
    let gpu = load(device)?;
    Board::of(device)?.whole_gpu()?.unit.ok_or(NOT_SUPPORTED)?;
    rates.set(Utilization {
        gpu,
        memory: gpu / 2,
    })
}

/// Reports an idle encoder or decoder.
pub(crate) fn codec(device: Handle, percent: Out<u32>, period_us: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    percent.set(0)?;
    period_us.set(167_000)
}

/// Reports 34 °C when idle, up to 74 °C when busy.
pub(crate) fn temperature(device: Handle, sensor: u32, celsius: Out<u32>) -> NvmlReturn {
    celsius.set(self::celsius(device, sensor)?)
}

/// Reports the temperature through the newer struct, which holds the sensor and the result.
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

/// Reports the reason for reduced clocks: idle, the scenario's reason, or none.
pub(crate) fn clocks_event_reasons(device: Handle, reasons: Out<u64>) -> NvmlReturn {
    const GPU_IDLE: u64 = 1;
    const SW_POWER_CAP: u64 = 4;
    const HW_SLOWDOWN: u64 = 8;
    const HW_THERMAL_SLOWDOWN: u64 = 0x40;
    const HW_POWER_BRAKE_SLOWDOWN: u64 = 0x80;
    reasons.set(match (load(device)?, slowed_by(device)?) {
        (0, _) => GPU_IDLE,
        (_, None) => 0,
        (_, Some(Slowdown::PowerCap)) => SW_POWER_CAP,
        (_, Some(Slowdown::Heat)) => HW_SLOWDOWN | HW_THERMAL_SLOWDOWN,
        (_, Some(Slowdown::PowerBrake)) => HW_SLOWDOWN | HW_POWER_BRAKE_SLOWDOWN,
        (_, Some(Slowdown::Hardware)) => HW_SLOWDOWN,
    })
}

fn slowed_by(device: Handle) -> Result<Option<Slowdown>, Fault> {
    Ok(Board::of(device)?.whole_gpu()?.slowed_by)
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
    megahertz.set(match (load(device)?, slowed_by(device)?) {
        (0, _) => rest,
        (_, None) => work,
        // Half way between rest and work.
        (_, Some(_)) => (rest + work) / 2,
    })
}

pub(crate) fn max_clock(device: Handle, domain: u32, megahertz: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    megahertz.set(clocks(domain)?.1)
}

fn clocks(domain: u32) -> Result<(u32, u32), Fault> {
    let found = CLOCKS_MHZ.get(domain as usize);
    found.copied().ok_or(INVALID_ARGUMENT)
}

/// The performance states when busy and when idle.
const STATES: [u32; 2] = [0, 8];

/// Reports P0 when busy, P8 when idle.
pub(crate) fn performance_state(device: Handle, state: Out<u32>) -> NvmlReturn {
    let [busy, idle] = STATES;
    state.set(if load(device)? > 0 { busy } else { idle })
}

/// Fills the caller's array of so many bytes with both states.
pub(crate) fn performance_states(device: Handle, states: Out<u32>, bytes: u32) -> NvmlReturn {
    const NO_STATE: u32 = 32;
    Board::of(device)?.whole_gpu()?;
    let room = bytes / size_of::<u32>() as u32;
    let mut filled = vec![NO_STATE; room as usize];
    let known = filled.get_mut(..STATES.len()).ok_or(INSUFFICIENT_SIZE)?;
    known.copy_from_slice(&STATES);
    states.fill_all(room, &filled)
}

/// Reports the only clock of a performance state as its least and most.
pub(crate) fn clocks_of_state(
    device: Handle,
    domain: u32,
    state: u32,
    least: Out<u32>,
    most: Out<u32>,
) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    let (rest, work) = clocks(domain)?;
    let place = STATES.iter().position(|known| *known == state);
    let clock = [work, rest][place.ok_or(INVALID_ARGUMENT)?];
    least.set(clock)?;
    most.set(clock)
}

/// Traffic on the bus at full load in KB/s: sent and received by the device.
const PCIE_KB: [u32; 2] = [2_000_000, 6_000_000];

/// Reports the slowest link when idle, as a real GPU does.
pub(crate) fn pcie_generation(device: Handle, generation: Out<u32>) -> NvmlReturn {
    let (under_load, _) = Board::of(device)?.whole_gpu()?.pcie;
    generation.set(if load(device)? > 0 { under_load } else { 1 })
}

pub(crate) fn max_pcie_generation(device: Handle, generation: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    generation.set(FASTEST_PCIE.0)
}

pub(crate) fn pcie_width(device: Handle, lanes: Out<u32>) -> NvmlReturn {
    lanes.set(Board::of(device)?.whole_gpu()?.pcie.1)
}

pub(crate) fn max_pcie_width(device: Handle, lanes: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    lanes.set(FASTEST_PCIE.1)
}

/// Reports the traffic sent (0) or received (1) in KB/s, derived from the load.
pub(crate) fn pcie_throughput(device: Handle, counter: u32, kilobytes: Out<u32>) -> NvmlReturn {
    let most = PCIE_KB.get(counter as usize).ok_or(INVALID_ARGUMENT)?;
    kilobytes.set(most / 100 * load(device)?)
}

pub(crate) fn persistence(device: Handle, on: Out<u32>) -> NvmlReturn {
    Board::of(device)?.whole_gpu()?;
    on.set(1)
}

/// Reports the default mode: any number of processes.
pub(crate) fn compute_mode(device: Handle, mode: Out<u32>) -> NvmlReturn {
    Board::of(device)?;
    mode.set(0)
}
