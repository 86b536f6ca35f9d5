//! Copies by the shim between a device and the host.
#![allow(unsafe_code, reason = "asks the driver")]

use std::ffi::c_void;

use gpushare_abi::{
    Out,
    errors::{
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        CUDA_ERROR_INVALID_CONTEXT, CUerror, CUresult,
    },
    types::{CUdeviceptr, CUfunction, CUstream},
};

use crate::{driver::call, driver_query::context};

/// A stream of the shim's own in a context.
pub struct Lane {
    context: usize,
    stream: CUstream,
}

/// Runs `work` with a context current. Returns an error if the context cannot be made current.
pub fn within<T>(context: usize, work: impl FnOnce() -> Result<T, CUerror>) -> Result<T, CUerror> {
    let mut result = Err(CUDA_ERROR_INVALID_CONTEXT);
    context::with_current(context, || result = work());
    result
}

impl Lane {
    /// Creates a stream in a context.
    pub fn make(context: usize) -> Result<Self, CUerror> {
        const NON_BLOCKING: u32 = 1;
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        within(context, || unsafe {
            call::cuStreamCreate(Out::to(&mut stream), NON_BLOCKING)
        })?;
        Ok(Self { context, stream })
    }

    /// Returns the stream's context.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Starts a copy from the device to the host. Copies run in order.
    pub fn out(&self, to: u64, from: CUdeviceptr, bytes: u64) -> CUresult {
        // SAFETY: the host memory belongs to the caller and has the stated length; the driver checks the device's.
        within(self.context, || unsafe {
            call::cuMemcpyDtoHAsync_v2(to as *mut c_void, from, bytes as usize, self.stream)
        })
    }

    /// Starts a copy from the host to the device. Copies run in order.
    pub fn back(&self, to: CUdeviceptr, from: u64, bytes: u64) -> CUresult {
        // SAFETY: the host memory belongs to the caller and has the stated length; the driver checks the device's.
        within(self.context, || unsafe {
            call::cuMemcpyHtoDAsync_v2(to, from as *const c_void, bytes as usize, self.stream)
        })
    }

    /// Starts to fill device memory with zeros. Runs in order with the copies.
    pub fn zero(&self, to: CUdeviceptr, bytes: u64) -> CUresult {
        // SAFETY: the driver checks the device's memory.
        within(self.context, || unsafe {
            call::cuMemsetD8Async(to, 0, bytes as usize, self.stream)
        })
    }

    /// Starts a kernel with this many blocks and threads in each. Runs in order with the copies.
    pub fn launch(
        &self,
        function: usize,
        (blocks, threads): (u32, u32),
        parameters: &mut [*mut c_void],
    ) -> CUresult {
        let (function, none) = (function as CUfunction, std::ptr::null_mut());
        let parameters = parameters.as_mut_ptr();
        // SAFETY: the function is of a module of the context; the caller passes the parameters that it declares.
        within(self.context, || unsafe {
            call::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                self.stream,
                parameters,
                none,
            )
        })
    }

    /// Waits until all copies are done.
    pub fn wait(&self) -> CUresult {
        // SAFETY: the stream is the shim's own.
        within(self.context, || unsafe {
            call::cuStreamSynchronize(self.stream)
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // SAFETY: the stream is the shim's own and is destroyed only here.
        let _ = within(self.context, || unsafe {
            call::cuStreamDestroy_v2(self.stream)
        });
    }
}

/// Unpins host memory that no copy uses. Succeeds if it is not pinned.
pub fn unpin(context: usize, start: u64) -> CUresult {
    // SAFETY: the memory is the shim's own.
    let unpinned = within(context, || unsafe {
        call::cuMemHostUnregister(start as *mut c_void)
    });
    match unpinned {
        Err(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) => Ok(()),
        other => other,
    }
}

/// Pins host memory for all contexts.
pub fn pin(context: usize, start: u64, bytes: u64) -> CUresult {
    const PORTABLE: u32 = 1;
    // SAFETY: the memory is the shim's own and exists until it is unpinned.
    let pinned = within(context, || unsafe {
        call::cuMemHostRegister_v2(start as *mut c_void, bytes as usize, PORTABLE)
    });
    match pinned {
        Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) => Ok(()),
        other => other,
    }
}
