//! A device's context and the objects in it, as guards. Each frees its object on drop and keeps its context alive until then.

#![allow(unsafe_code, reason = "with driver.rs, the C edge of the crate")]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use gpushare_abi::errors::CUDA_ERROR_INVALID_VALUE;
use gpushare_abi::types::{
    CU_STREAM_NON_BLOCKING, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream,
};

use crate::driver::{Cuda, Device, Functions, Primary, call};
use crate::error::Error;

/// Name of the kernel; the simulator has it too.
pub const SPIN_KERNEL: &CStr = c"gpushare_spin";
/// Name of a kernel that writes to the address in its argument. The simulator derives the error from the name.
const FAULT_KERNEL: &CStr = c"fault_700";
/// An address at which no program has memory.
const FORBIDDEN: u64 = 8;
const SPIN_PTX: &str = concat!(include_str!("spin.ptx"), "\0");

/// A device's primary context, current on the thread that retained it and bound to that thread.
#[derive(Clone)]
pub struct Context {
    primary: Rc<Primary>,
}

impl Cuda {
    /// Retains the device's primary context and makes it current on this thread.
    pub fn context(&self, ordinal: u32) -> Result<Context, Error> {
        let primary = self.retain(ordinal)?;
        Ok(Context { primary })
    }
}

impl Context {
    /// Returns the driver's description of its device.
    pub fn device(&self) -> Result<Device, Error> {
        self.primary.cuda.device(self.primary.ordinal)
    }

    fn functions(&self) -> &Functions {
        self.primary.functions()
    }

    /// Returns free and total bytes, as the driver reports them to this process.
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both targets are live locals.
        unsafe { call!(self.functions(), cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free as u64, total as u64))
    }

    /// Waits until the device has completed all work of this context.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: no arguments.
        unsafe { call!(self.functions(), cuCtxSynchronize()) }
    }

    /// Allocates device memory.
    ///
    /// # Errors
    ///
    /// [`Error::is_out_of_memory`] when the device is full or the quota is spent.
    pub fn alloc(&self, bytes: u64) -> Result<Buffer, Error> {
        let mut address = 0;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the target is a live local.
        unsafe { call!(self.functions(), cuMemAlloc_v2(&mut address, size)) }?;
        Ok(Buffer {
            context: self.clone(),
            address,
            bytes,
        })
    }

    /// Creates a stream that does not wait for the default stream.
    pub fn stream(&self) -> Result<Stream, Error> {
        let mut stream = ptr::null_mut();
        // SAFETY: the target is a live local.
        unsafe {
            call!(
                self.functions(),
                cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING)
            )
        }?;
        Ok(Stream {
            context: self.clone(),
            stream,
        })
    }

    /// Creates an event.
    pub fn event(&self) -> Result<Event, Error> {
        let mut event = ptr::null_mut();
        // SAFETY: the target is a live local.
        unsafe { call!(self.functions(), cuEventCreate(&mut event, 0)) }?;
        Ok(Event {
            context: self.clone(),
            event,
        })
    }

    /// Loads the kernel that spins for a given time.
    pub fn spin_kernel(&self) -> Result<SpinKernel, Error> {
        let mut module = ptr::null_mut();
        let image = SPIN_PTX.as_ptr().cast();
        // SAFETY: the image is text that ends in a zero byte.
        unsafe { call!(self.functions(), cuModuleLoadData(&mut module, image)) }?;
        let mut kernel = SpinKernel {
            context: self.clone(),
            module,
            function: ptr::null_mut(),
            fault: ptr::null_mut(),
        };
        for (name, function) in [
            (SPIN_KERNEL, &mut kernel.function),
            (FAULT_KERNEL, &mut kernel.fault),
        ] {
            // SAFETY: the module was loaded just now and the name ends in a zero byte.
            unsafe {
                call!(
                    self.functions(),
                    cuModuleGetFunction(function, module, name.as_ptr())
                )
            }?;
        }
        Ok(kernel)
    }
}

/// Device memory, freed on drop.
pub struct Buffer {
    context: Context,
    address: CUdeviceptr,
    bytes: u64,
}

impl Buffer {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies to the start of the buffer. Data that does not fit is refused.
    pub fn write(&self, data: &[u8]) -> Result<(), Error> {
        self.check(data.len())?;
        let source = data.as_ptr().cast();
        // SAFETY: the source is a live slice and the target holds as much, by the check.
        unsafe {
            call!(
                self.context.functions(),
                cuMemcpyHtoD_v2(self.address, source, data.len())
            )
        }
    }

    /// Copies from the start of the buffer. More than its size is refused.
    pub fn read(&self, data: &mut [u8]) -> Result<(), Error> {
        self.check(data.len())?;
        let target = data.as_mut_ptr().cast();
        // SAFETY: the target is a live slice and the source holds as much, by the check.
        unsafe {
            call!(
                self.context.functions(),
                cuMemcpyDtoH_v2(target, self.address, data.len())
            )
        }
    }

    fn check(&self, length: usize) -> Result<(), Error> {
        if length as u64 <= self.bytes {
            return Ok(());
        }
        Err(Error::Call {
            function: "a copy past the end of a buffer",
            error: CUDA_ERROR_INVALID_VALUE,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `Context::alloc`, freed once here.
        let _ = unsafe { (self.context.functions().cuMemFree_v2)(self.address) };
    }
}

/// A stream.
pub struct Stream {
    context: Context,
    stream: CUstream,
}

impl Stream {
    /// Queues the kernel: one block that spins for `time`.
    pub fn launch(&self, kernel: &SpinKernel, time: Duration) -> Result<(), Error> {
        self.launch_wide(kernel, time, 1)
    }

    /// Queues the kernel with this number of blocks.
    pub fn launch_wide(
        &self,
        kernel: &SpinKernel,
        time: Duration,
        blocks: u32,
    ) -> Result<(), Error> {
        let mut nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.launch_function(kernel.function, &mut nanoseconds, blocks)
    }

    /// Queues a kernel that writes to an illegal address, which destroys the context.
    pub fn fault(&self, kernel: &SpinKernel) -> Result<(), Error> {
        self.launch_function(kernel.fault, &mut { FORBIDDEN }, 1)
    }

    fn launch_function(
        &self,
        function: CUfunction,
        parameter: &mut u64,
        blocks: u32,
    ) -> Result<(), Error> {
        let mut parameters = [ptr::from_mut(parameter).cast::<c_void>()];
        let parameters = parameters.as_mut_ptr();
        let (functions, stream) = (self.context.functions(), self.stream);
        // SAFETY: both kernels take one u64, and the driver copies it before it returns.
        unsafe {
            call!(
                functions,
                cuLaunchKernel(
                    function,
                    blocks,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    stream,
                    parameters,
                    ptr::null_mut()
                )
            )
        }
    }

    /// Waits until all work queued so far is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { call!(self.context.functions(), cuStreamSynchronize(self.stream)) }
    }

    /// Records the event behind all work queued so far.
    pub fn record(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: both live as long as their guards.
        unsafe {
            call!(
                self.context.functions(),
                cuEventRecord(event.event, self.stream)
            )
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `Context::stream`, destroyed once here.
        let _ = unsafe { (self.context.functions().cuStreamDestroy_v2)(self.stream) };
    }
}

/// An event.
pub struct Event {
    context: Context,
    event: CUevent,
}

impl Event {
    /// Waits until the device has reached the event.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the event lives as long as `self`.
        unsafe { call!(self.context.functions(), cuEventSynchronize(self.event)) }
    }

    /// Returns the device's time from `start` to this event; both must be reached.
    pub fn since(&self, start: &Self) -> Result<Duration, Error> {
        let mut milliseconds = 0.0;
        let functions = self.context.functions();
        // SAFETY: the target is a live local and both events live as long as their guards.
        unsafe {
            call!(
                functions,
                cuEventElapsedTime(&mut milliseconds, start.event, self.event)
            )
        }?;
        Ok(Duration::try_from_secs_f32(milliseconds / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `Context::event`, destroyed once here.
        let _ = unsafe { (self.context.functions().cuEventDestroy_v2)(self.event) };
    }
}

/// The kernel that spins on the device for a given time.
pub struct SpinKernel {
    context: Context,
    module: CUmodule,
    function: CUfunction,
    fault: CUfunction,
}

impl Drop for SpinKernel {
    fn drop(&mut self) {
        // SAFETY: loaded by `Context::spin_kernel`, unloaded once here.
        let _ = unsafe { (self.context.functions().cuModuleUnload)(self.module) };
    }
}
