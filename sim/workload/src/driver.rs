//! The driver's library and its functions; [`Cuda`] is the safe interface.
//!
//! Every guard keeps its context alive and every context keeps the library loaded, so no call uses a freed object.

#![allow(unsafe_code, reason = "with context.rs, the C edge of the crate")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use gpushare_abi::errors::CUresult;
use gpushare_abi::types::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream,
};
use libloading::Library;

use crate::error::Error;

macro_rules! functions {
    ($($name:ident($($argument:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the driver's own names")]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> CUresult,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, Error> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is the driver's documented one for this name.
                        let found = unsafe { library.get(stringify!($name)) };
                        *found.map_err(|_| Error::MissingFunction(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetUuid_v2(*mut [u8; 16], CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuCtxSynchronize();
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamSynchronize(CUstream);
    cuStreamDestroy_v2(CUstream);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuModuleUnload(CUmodule);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
        *mut *mut c_void, *mut *mut c_void
    );
    cuEventCreate(*mut CUevent, c_uint);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);
    cuEventDestroy_v2(CUevent);
}

/// Calls a driver function and names it in the error.
macro_rules! call {
    ($functions:expr, $name:ident($($argument:expr),*)) => {
        ($functions.$name)($($argument),*).map_err(|error| Error::Call { function: stringify!($name), error })
    };
}
pub(crate) use call;

/// A device, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Ordinal in this process.
    pub ordinal: u32,
    /// Bytes of the UUID.
    pub uuid: [u8; 16],
    /// Name of the device.
    pub name: String,
    /// Size of its memory, in bytes.
    pub total_bytes: u64,
}

/// The loaded and initialised driver.
#[derive(Clone)]
pub struct Cuda {
    library: Arc<Loaded>,
}

struct Loaded {
    functions: Functions,
    /// The last field, so that the library is closed after the last use of its functions.
    _library: Library,
}

impl Cuda {
    /// Opens `libcuda.so.1` by the loader's search path and initialises it.
    ///
    /// # Errors
    ///
    /// When there is no driver, or it finds no device.
    pub fn load() -> Result<Self, Error> {
        // SAFETY: a driver library's constructors ask nothing of their caller.
        let opened = unsafe { Library::new("libcuda.so.1") };
        let library = opened.map_err(no_driver)?;
        let loaded = Loaded {
            functions: Functions::find(&library)?,
            _library: library,
        };
        // SAFETY: flags are a plain number.
        unsafe { call!(loaded.functions, cuInit(0)) }?;
        Ok(Self {
            library: Arc::new(loaded),
        })
    }

    /// Returns the driver's CUDA version: 13000 is 13.0.
    pub fn driver_version(&self) -> Result<u32, Error> {
        let mut version = 0;
        // SAFETY: the target is a live local.
        unsafe { call!(self.library.functions, cuDriverGetVersion(&mut version)) }?;
        Ok(version.unsigned_abs())
    }

    /// Returns how many devices this process may use.
    pub fn device_count(&self) -> Result<u32, Error> {
        let mut count = 0;
        // SAFETY: the target is a live local.
        unsafe { call!(self.library.functions, cuDeviceGetCount(&mut count)) }?;
        Ok(count.unsigned_abs())
    }

    /// Returns the driver's description of one device.
    ///
    /// # Errors
    ///
    /// The driver's error; `CUDA_ERROR_INVALID_DEVICE` for an ordinal that does not exist.
    pub fn device(&self, ordinal: u32) -> Result<Device, Error> {
        let functions = &self.library.functions;
        let device = self.handle(ordinal)?;
        let mut name = [0_u8; 256];
        let room = name.len() as c_int;
        // SAFETY: `room` is the live buffer's length.
        unsafe {
            call!(
                functions,
                cuDeviceGetName(name.as_mut_ptr().cast(), room, device)
            )
        }?;
        let mut uuid = [0; 16];
        // SAFETY: the target is a live local of a UUID's size.
        unsafe { call!(functions, cuDeviceGetUuid_v2(&mut uuid, device)) }?;
        let mut total = 0;
        // SAFETY: the target is a live local.
        unsafe { call!(functions, cuDeviceTotalMem_v2(&mut total, device)) }?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(Device {
            ordinal,
            uuid,
            name: name.to_string_lossy().into_owned(),
            total_bytes: total as u64,
        })
    }

    /// Retains the device's primary context and makes it current on this thread.
    pub(crate) fn retain(&self, ordinal: u32) -> Result<Rc<Primary>, Error> {
        let functions = &self.library.functions;
        let device = self.handle(ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: the target is a live local.
        unsafe { call!(functions, cuDevicePrimaryCtxRetain(&mut context, device)) }?;
        let primary = Rc::new(Primary {
            cuda: self.clone(),
            ordinal,
            device,
        });
        // SAFETY: the context was retained just now; `primary` releases it.
        unsafe { call!(functions, cuCtxSetCurrent(context)) }?;
        Ok(primary)
    }

    fn handle(&self, ordinal: u32) -> Result<CUdevice, Error> {
        let mut device = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: the target is a live local.
        unsafe { call!(self.library.functions, cuDeviceGet(&mut device, ordinal)) }?;
        Ok(device)
    }
}

/// A retained primary context; the objects in it keep it.
pub(crate) struct Primary {
    pub(crate) cuda: Cuda,
    pub(crate) ordinal: u32,
    device: CUdevice,
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once by `Cuda::retain`, released once here.
        let _ = unsafe { (self.cuda.library.functions.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

impl Primary {
    pub(crate) fn functions(&self) -> &Functions {
        &self.cuda.library.functions
    }
}

/// Takes the loader's message, which is the source of libloading's error.
fn no_driver(error: libloading::Error) -> Error {
    let reason = match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    };
    Error::NoDriver(reason)
}
