//! The free of memory from any allocation call.

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::CUdeviceptr,
};

use crate::{
    driver::Driver,
    memory::{
        external, graph_memory,
        heap::{self, Block, Kind},
        pool::{self, share},
    },
    work::Work,
};

/// Returns the block that the free calls accept by this address.
pub fn freeable(address: CUdeviceptr) -> Result<Block, CUerror> {
    let block = heap::find(address).filter(|block| block.base == address);
    let block = block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let ours = match block.kind {
        Kind::Ordered(_) | Kind::Graph | Kind::Device | Kind::Managed => true,
        Kind::Imported => share::imported_from(address).is_some() || external::is_buffer(address),
        _ => false,
    };
    if ours {
        Ok(block)
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Frees it now.
pub fn now(address: CUdeviceptr) -> CUresult {
    match freeable(address)?.kind {
        Kind::Ordered(_) => pool::free(address),
        Kind::Graph => graph_memory::free(address),
        Kind::Imported if external::is_buffer(address) => external::close(address),
        Kind::Imported => share::close(address),
        kind @ (Kind::Device | Kind::Managed) => heap::free(address, kind).map(|_| ()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Frees an allocation, in stream order.
#[derive(Clone, Copy, Debug)]
pub struct Free(pub CUdeviceptr);

impl Work for Free {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        // The application may have freed it twice; a stream has no one to return an error to.
        let _ = now(self.0);
        ready
    }
}
