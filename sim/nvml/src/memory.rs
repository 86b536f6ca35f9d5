//! How much memory a device has and has left.

use crate::answer::{ARGUMENT_VERSION_MISMATCH, Fault, NvmlReturn};
use crate::board::Board;
use crate::c::{Handle, Memory, MemoryV2, Out};

/// `nvmlMemory_v2`: the struct's size, and version 2 on top.
const VERSION_2: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;

const BAR1_BYTES: u64 = 256 << 20;

/// Total and used bytes; a GPU in MIG mode has what its instances use.
fn of(device: Handle) -> Result<(u64, u64), Fault> {
    let board = Board::of(device)?;
    board.view.wait_for_a_checkpoint();
    if let Some(instance) = board.instance() {
        return Ok((instance.memory, board.view.used(instance.unit)));
    }
    let gpu = board.gpu();
    let units = gpu.instances.iter().map(|instance| instance.unit);
    let used = units
        .chain(gpu.unit)
        .map(|unit| board.view.used(unit))
        .sum();
    Ok((gpu.memory, used))
}

pub(crate) fn info(device: Handle, memory: Out<Memory>) -> NvmlReturn {
    let (total, used) = of(device)?;
    memory.set(Memory {
        total,
        free: total.saturating_sub(used),
        used,
    })
}

pub(crate) fn info_v2(device: Handle, memory: Out<MemoryV2>) -> NvmlReturn {
    let version = memory.get()?.version;
    if version != VERSION_2 {
        return Err(ARGUMENT_VERSION_MISMATCH);
    }
    let (total, used) = of(device)?;
    memory.set(MemoryV2 {
        version,
        total,
        reserved: 0,
        free: total.saturating_sub(used),
        used,
    })
}

/// The window on the bus: of the usual size, and unused.
pub(crate) fn bar1(device: Handle, memory: Out<Memory>) -> NvmlReturn {
    Board::of(device)?;
    memory.set(Memory {
        total: BAR1_BYTES,
        free: BAR1_BYTES,
        used: 0,
    })
}
