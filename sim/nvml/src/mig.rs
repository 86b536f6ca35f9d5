//! MIG: the mode of a GPU, and the relation between a GPU and its instances.

use crate::answer::{INVALID_ARGUMENT, NOT_FOUND, NvmlReturn};
use crate::board::Board;
use crate::c::{Handle, Out};

/// Reports the current and the pending mode; they are equal, because a scenario does not change.
pub(crate) fn mode(device: Handle, current: Out<u32>, pending: Out<u32>) -> NvmlReturn {
    let board = Board::of(device)?;
    let mode = u32::from(!board.whole_gpu()?.instances.is_empty());
    current.set(mode)?;
    pending.set(mode)
}

pub(crate) fn is_instance(device: Handle, is_instance: Out<u32>) -> NvmlReturn {
    is_instance.set(u32::from(Board::of(device)?.instance().is_some()))
}

pub(crate) fn max_count(device: Handle, count: Out<u32>) -> NvmlReturn {
    count.set(Board::of(device)?.whole_gpu()?.instances.len() as u32)
}

pub(crate) fn by_index(device: Handle, index: u32, instance: Out<Handle>) -> NvmlReturn {
    let board = Board::of(device)?;
    if index as usize >= board.whole_gpu()?.instances.len() {
        return Err(NOT_FOUND);
    }
    instance.set(board.instance_handle(index as usize))
}

pub(crate) fn gpu_of(instance: Handle, device: Out<Handle>) -> NvmlReturn {
    let board = Board::of(instance)?;
    board.instance_id().ok_or(INVALID_ARGUMENT)?;
    device.set(board.gpu_handle())
}

pub(crate) fn gpu_instance_id(instance: Handle, id: Out<u32>) -> NvmlReturn {
    id.set(Board::of(instance)?.instance_id().ok_or(INVALID_ARGUMENT)?)
}

/// Reports compute instance 0, the only one of each GPU instance.
pub(crate) fn compute_instance_id(instance: Handle, id: Out<u32>) -> NvmlReturn {
    Board::of(instance)?.instance_id().ok_or(INVALID_ARGUMENT)?;
    id.set(0)
}
