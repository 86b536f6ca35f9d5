//! Total, used and free memory of a device.

use crate::answer::{ARGUMENT_VERSION_MISMATCH, Fault, NvmlReturn};
use crate::board::Board;
use crate::c::{Handle, Memory, MemoryV2, Out};

/// The version word of `nvmlMemory_v2`: the struct's size, with version 2 in the high bits.
const VERSION_2: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;

const BAR1_BYTES: u64 = 256 << 20;

/// Returns total and used bytes; a GPU in MIG mode uses the sum of its instances.
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

/// Reports an unused BAR1 window of the usual size.
pub(crate) fn bar1(device: Handle, memory: Out<Memory>) -> NvmlReturn {
    Board::of(device)?;
    memory.set(Memory {
        total: BAR1_BYTES,
        free: BAR1_BYTES,
        used: 0,
    })
}
