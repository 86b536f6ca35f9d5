//! Hooks for synchronous copies. They are counted and are points at which a turn may end. They need no lock, because
//! the driver orders them behind submitted work.

use super::{memory::array, stream};
use gpushare_abi::{
    Amount, In,
    errors::CUresult,
    types::{
        CU_MEMCPY_OPERAND_TYPE_ARRAY, CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D,
        CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v1, CUarray,
    },
};
use shm_layout::clock;

use crate::{
    eviction,
    hooks::Real,
    managed_process::{self, ManagedProcess},
    sys::caller_state::Errno,
    thread::{self, add},
};

/// A description of a copy of several dimensions.
pub trait Region: Copy {
    /// Returns the bytes that the copy moves.
    fn bytes(self) -> usize;
}

fn product(sides: [usize; 3]) -> usize {
    sides.into_iter().fold(1, usize::saturating_mul)
}

impl Region for CUDA_MEMCPY2D {
    fn bytes(self) -> usize {
        product([self.WidthInBytes, self.Height, 1])
    }
}

impl Region for CUDA_MEMCPY2D_v1 {
    fn bytes(self) -> usize {
        product([self.WidthInBytes as usize, self.Height as usize, 1])
    }
}

impl Region for CUDA_MEMCPY3D {
    fn bytes(self) -> usize {
        product([self.WidthInBytes, self.Height, self.Depth])
    }
}

impl Region for CUDA_MEMCPY3D_v1 {
    fn bytes(self) -> usize {
        let sides = [self.WidthInBytes, self.Height, self.Depth];
        product(sides.map(|side| side as usize))
    }
}

impl Region for CUDA_MEMCPY3D_PEER {
    fn bytes(self) -> usize {
        product([self.WidthInBytes, self.Height, self.Depth])
    }
}

impl Region for CUDA_MEMCPY3D_BATCH_OP {
    /// Returns the bytes. The sides are in elements of the array, or in bytes if no side is an array.
    fn bytes(self) -> usize {
        let array = [self.src, self.dst]
            .into_iter()
            .find(|end| end.type_ == CU_MEMCPY_OPERAND_TYPE_ARRAY);
        let element = array.map_or(1, |end| element_bytes(end.at[0] as CUarray));
        product([self.width, self.height, self.depth]).saturating_mul(element)
    }
}

/// Returns the bytes of an array's element. It enters a call, because the driver may be queried only inside one and a
/// submission is not yet inside.
fn element_bytes(array: CUarray) -> usize {
    let _errno = Errno::keep();
    eviction::enter().map_or(1, |_inside| array::element_bytes(array))
}

/// Forwards a copy and counts its bytes.
pub fn bytes(real: Real<'_, impl FnOnce() -> CUresult>, bytes: impl Amount) -> CUresult {
    real.moves(bytes.wide());
    let began = stream::begin_wait();
    real.call()?;
    if let Some(device) = managed_process::current().and_then(ManagedProcess::current_device) {
        let tally = thread::attached().tally(device.ordinal);
        add(&tally.copies, 1);
        add(&tally.copy_bytes, bytes.wide());
        stream::release_point(began);
    }
    Ok(())
}

/// Forwards a copy to the host's memory, with which an application takes a result: it ends a step, as a wait does.
pub fn to_host(real: Real<'_, impl FnOnce() -> CUresult>, amount: impl Amount) -> CUresult {
    let began = clock::now();
    bytes(real, amount)?;
    if let Some(process) = managed_process::current()
        && let Some(device) = process.current_device()
    {
        stream::end_step(process, device, began);
    }
    Ok(())
}

/// Forwards a copy of a region and counts its bytes.
pub fn region(real: Real<'_, impl FnOnce() -> CUresult>, copy: In<impl Region>) -> CUresult {
    bytes(real, copy.get().map_or(0, Region::bytes))
}
