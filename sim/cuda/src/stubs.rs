//! Stubs of the driver's functions that the simulator does not implement: each returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! They exist because clients look all names up and some refuse to start when one is missing.

use gpushare_abi::errors::{CUDA_ERROR_NOT_SUPPORTED, CUresult};

use crate::faces::{Address, Face};

macro_rules! stubs {
    ($($base:literal $since:literal $symbol:ident $($per_thread:ident)?;)*) => {
        $(
            #[doc = concat!("The driver's `", stringify!($symbol), "`: not supported.")]
            #[allow(unsafe_code, non_snake_case, reason = "an export of the driver's own name")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $symbol() -> CUresult {
                Err(CUDA_ERROR_NOT_SUPPORTED)
            }
        )*

        /// All of them.
        pub const FACES: &[Face] = &[$(Face {
            base: $base,
            since: $since,
            symbol: stringify!($symbol),
            per_thread: stubs!(@per_thread $($per_thread)?),
            address: Address($symbol as *const ()),
        }),*];
    };
    (@per_thread) => { false };
    (@per_thread per_thread) => { true };
}

stubs! {
    "cuArray3DCreate" 2000 cuArray3DCreate;
    "cuArray3DGetDescriptor" 2000 cuArray3DGetDescriptor;
    "cuArrayCreate" 2000 cuArrayCreate;
    "cuArrayGetDescriptor" 2000 cuArrayGetDescriptor;
    "cuCoredumpGetAttribute" 12010 cuCoredumpGetAttribute;
    "cuCoredumpGetAttributeGlobal" 12010 cuCoredumpGetAttributeGlobal;
    "cuCoredumpSetAttribute" 12010 cuCoredumpSetAttribute;
    "cuCoredumpSetAttributeGlobal" 12010 cuCoredumpSetAttributeGlobal;
    "cuDestroyExternalSemaphore" 10000 cuDestroyExternalSemaphore;
    "cuDeviceGetHostAtomicCapabilities" 13000 cuDeviceGetHostAtomicCapabilities;
    "cuDeviceGetP2PAtomicCapabilities" 13000 cuDeviceGetP2PAtomicCapabilities;
    "cuDeviceRegisterAsyncNotification" 12040 cuDeviceRegisterAsyncNotification;
    "cuDeviceTotalMem" 2000 cuDeviceTotalMem;
    "cuDeviceUnregisterAsyncNotification" 12040 cuDeviceUnregisterAsyncNotification;
    "cuEGLStreamConsumerAcquireFrame" 7000 cuEGLStreamConsumerAcquireFrame;
    "cuEGLStreamConsumerConnect" 7000 cuEGLStreamConsumerConnect;
    "cuEGLStreamConsumerConnectWithFlags" 8000 cuEGLStreamConsumerConnectWithFlags;
    "cuEGLStreamConsumerDisconnect" 7000 cuEGLStreamConsumerDisconnect;
    "cuEGLStreamConsumerReleaseFrame" 7000 cuEGLStreamConsumerReleaseFrame;
    "cuEGLStreamProducerConnect" 7000 cuEGLStreamProducerConnect;
    "cuEGLStreamProducerDisconnect" 7000 cuEGLStreamProducerDisconnect;
    "cuEGLStreamProducerPresentFrame" 7000 cuEGLStreamProducerPresentFrame;
    "cuEGLStreamProducerReturnFrame" 7000 cuEGLStreamProducerReturnFrame;
    "cuEventCreateFromEGLSync" 9000 cuEventCreateFromEGLSync;
    "cuExternalMemoryGetMappedMipmappedArray" 10000 cuExternalMemoryGetMappedMipmappedArray;
    "cuGLCtxCreate" 2000 cuGLCtxCreate;
    "cuGLCtxCreate" 3020 cuGLCtxCreate_v2;
    "cuGLGetDevices" 4010 cuGLGetDevices;
    "cuGLGetDevices" 6050 cuGLGetDevices_v2;
    "cuGLInit" 2000 cuGLInit;
    "cuGLMapBufferObject" 2000 cuGLMapBufferObject;
    "cuGLMapBufferObjectAsync" 2030 cuGLMapBufferObjectAsync;
    "cuGLMapBufferObjectAsync" 3020 cuGLMapBufferObjectAsync_v2;
    "cuGLMapBufferObjectAsync" 7000 cuGLMapBufferObjectAsync_v2_ptsz per_thread;
    "cuGLMapBufferObject" 3020 cuGLMapBufferObject_v2;
    "cuGLMapBufferObject" 7000 cuGLMapBufferObject_v2_ptds per_thread;
    "cuGLRegisterBufferObject" 2000 cuGLRegisterBufferObject;
    "cuGLSetBufferObjectMapFlags" 2030 cuGLSetBufferObjectMapFlags;
    "cuGLUnmapBufferObject" 2000 cuGLUnmapBufferObject;
    "cuGLUnmapBufferObjectAsync" 2030 cuGLUnmapBufferObjectAsync;
    "cuGLUnregisterBufferObject" 2000 cuGLUnregisterBufferObject;
    "cuGraphicsEGLRegisterImage" 7000 cuGraphicsEGLRegisterImage;
    "cuGraphicsGLRegisterBuffer" 3000 cuGraphicsGLRegisterBuffer;
    "cuGraphicsGLRegisterImage" 3000 cuGraphicsGLRegisterImage;
    "cuGraphicsMapResources" 3000 cuGraphicsMapResources;
    "cuGraphicsMapResources" 7000 cuGraphicsMapResources_ptsz per_thread;
    "cuGraphicsResourceGetMappedEglFrame" 7000 cuGraphicsResourceGetMappedEglFrame;
    "cuGraphicsResourceGetMappedMipmappedArray" 5000 cuGraphicsResourceGetMappedMipmappedArray;
    "cuGraphicsResourceGetMappedPointer" 3000 cuGraphicsResourceGetMappedPointer;
    "cuGraphicsResourceGetMappedPointer" 3020 cuGraphicsResourceGetMappedPointer_v2;
    "cuGraphicsResourceSetMapFlags" 3000 cuGraphicsResourceSetMapFlags;
    "cuGraphicsResourceSetMapFlags" 6050 cuGraphicsResourceSetMapFlags_v2;
    "cuGraphicsSubResourceGetMappedArray" 3000 cuGraphicsSubResourceGetMappedArray;
    "cuGraphicsUnmapResources" 3000 cuGraphicsUnmapResources;
    "cuGraphicsUnmapResources" 7000 cuGraphicsUnmapResources_ptsz per_thread;
    "cuGraphicsUnregisterResource" 3000 cuGraphicsUnregisterResource;
    "cuGraphicsVDPAURegisterOutputSurface" 3010 cuGraphicsVDPAURegisterOutputSurface;
    "cuGraphicsVDPAURegisterVideoSurface" 3010 cuGraphicsVDPAURegisterVideoSurface;
    "cuImportExternalSemaphore" 10000 cuImportExternalSemaphore;
    "cuLogsCurrent" 12090 cuLogsCurrent;
    "cuLogsDumpToFile" 12090 cuLogsDumpToFile;
    "cuLogsDumpToMemory" 12090 cuLogsDumpToMemory;
    "cuLogsRegisterCallback" 12090 cuLogsRegisterCallback;
    "cuLogsUnregisterCallback" 12090 cuLogsUnregisterCallback;
    "cuMemAlloc" 2000 cuMemAlloc;
    "cuMemAllocHost" 2000 cuMemAllocHost;
    "cuMemAllocPitch" 2000 cuMemAllocPitch;
    "cuMemBatchDecompressAsync" 12060 cuMemBatchDecompressAsync;
    "cuMemBatchDecompressAsync" 12060 cuMemBatchDecompressAsync_ptsz per_thread;
    "cuMemFree" 2000 cuMemFree;
    "cuMemGetAddressRange" 2000 cuMemGetAddressRange;
    "cuMemGetHandleForAddressRange" 11070 cuMemGetHandleForAddressRange;
    "cuMemGetInfo" 2000 cuMemGetInfo;
    "cuMemHostGetDevicePointer" 2020 cuMemHostGetDevicePointer;
    "cuMemcpy2D" 2000 cuMemcpy2D;
    "cuMemcpy2DAsync" 2000 cuMemcpy2DAsync;
    "cuMemcpy2DUnaligned" 2000 cuMemcpy2DUnaligned;
    "cuMemcpy3D" 2000 cuMemcpy3D;
    "cuMemcpy3DAsync" 2000 cuMemcpy3DAsync;
    "cuMemcpyAtoA" 2000 cuMemcpyAtoA;
    "cuMemcpyAtoD" 2000 cuMemcpyAtoD;
    "cuMemcpyAtoH" 2000 cuMemcpyAtoH;
    "cuMemcpyAtoHAsync" 2000 cuMemcpyAtoHAsync;
    "cuMemcpyDtoA" 2000 cuMemcpyDtoA;
    "cuMemcpyDtoD" 2000 cuMemcpyDtoD;
    "cuMemcpyDtoDAsync" 3000 cuMemcpyDtoDAsync;
    "cuMemcpyDtoH" 2000 cuMemcpyDtoH;
    "cuMemcpyDtoHAsync" 2000 cuMemcpyDtoHAsync;
    "cuMemcpyHtoA" 2000 cuMemcpyHtoA;
    "cuMemcpyHtoAAsync" 2000 cuMemcpyHtoAAsync;
    "cuMemcpyHtoD" 2000 cuMemcpyHtoD;
    "cuMemcpyHtoDAsync" 2000 cuMemcpyHtoDAsync;
    "cuMemsetD16" 2000 cuMemsetD16;
    "cuMemsetD2D16" 2000 cuMemsetD2D16;
    "cuMemsetD2D32" 2000 cuMemsetD2D32;
    "cuMemsetD2D8" 2000 cuMemsetD2D8;
    "cuMemsetD32" 2000 cuMemsetD32;
    "cuMemsetD8" 2000 cuMemsetD8;
    "cuModuleGetGlobal" 2000 cuModuleGetGlobal;
    "cuModuleGetSurfRef" 3000 cuModuleGetSurfRef;
    "cuModuleGetTexRef" 2000 cuModuleGetTexRef;
    "cuParamSetTexRef" 2000 cuParamSetTexRef;
    "cuSignalExternalSemaphoresAsync" 10000 cuSignalExternalSemaphoresAsync;
    "cuSignalExternalSemaphoresAsync" 10000 cuSignalExternalSemaphoresAsync_ptsz per_thread;
    "cuSurfRefGetArray" 3000 cuSurfRefGetArray;
    "cuSurfRefSetArray" 3000 cuSurfRefSetArray;
    "cuTensorMapEncodeIm2col" 12000 cuTensorMapEncodeIm2col;
    "cuTensorMapEncodeIm2colWide" 12080 cuTensorMapEncodeIm2colWide;
    "cuTensorMapEncodeTiled" 12000 cuTensorMapEncodeTiled;
    "cuTensorMapReplaceAddress" 12000 cuTensorMapReplaceAddress;
    "cuTexRefCreate" 2000 cuTexRefCreate;
    "cuTexRefDestroy" 2000 cuTexRefDestroy;
    "cuTexRefGetAddress" 2000 cuTexRefGetAddress;
    "cuTexRefGetAddressMode" 2000 cuTexRefGetAddressMode;
    "cuTexRefGetAddress" 3020 cuTexRefGetAddress_v2;
    "cuTexRefGetArray" 2000 cuTexRefGetArray;
    "cuTexRefGetBorderColor" 8000 cuTexRefGetBorderColor;
    "cuTexRefGetFilterMode" 2000 cuTexRefGetFilterMode;
    "cuTexRefGetFlags" 2000 cuTexRefGetFlags;
    "cuTexRefGetFormat" 2000 cuTexRefGetFormat;
    "cuTexRefGetMaxAnisotropy" 5000 cuTexRefGetMaxAnisotropy;
    "cuTexRefGetMipmapFilterMode" 5000 cuTexRefGetMipmapFilterMode;
    "cuTexRefGetMipmapLevelBias" 5000 cuTexRefGetMipmapLevelBias;
    "cuTexRefGetMipmapLevelClamp" 5000 cuTexRefGetMipmapLevelClamp;
    "cuTexRefGetMipmappedArray" 5000 cuTexRefGetMipmappedArray;
    "cuTexRefSetAddress" 2000 cuTexRefSetAddress;
    "cuTexRefSetAddress2D" 2020 cuTexRefSetAddress2D;
    "cuTexRefSetAddress2D" 3020 cuTexRefSetAddress2D_v2;
    "cuTexRefSetAddress2D" 4010 cuTexRefSetAddress2D_v3;
    "cuTexRefSetAddressMode" 2000 cuTexRefSetAddressMode;
    "cuTexRefSetAddress" 3020 cuTexRefSetAddress_v2;
    "cuTexRefSetArray" 2000 cuTexRefSetArray;
    "cuTexRefSetBorderColor" 8000 cuTexRefSetBorderColor;
    "cuTexRefSetFilterMode" 2000 cuTexRefSetFilterMode;
    "cuTexRefSetFlags" 2000 cuTexRefSetFlags;
    "cuTexRefSetFormat" 2000 cuTexRefSetFormat;
    "cuTexRefSetMaxAnisotropy" 5000 cuTexRefSetMaxAnisotropy;
    "cuTexRefSetMipmapFilterMode" 5000 cuTexRefSetMipmapFilterMode;
    "cuTexRefSetMipmapLevelBias" 5000 cuTexRefSetMipmapLevelBias;
    "cuTexRefSetMipmapLevelClamp" 5000 cuTexRefSetMipmapLevelClamp;
    "cuTexRefSetMipmappedArray" 5000 cuTexRefSetMipmappedArray;
    "cuVDPAUCtxCreate" 3010 cuVDPAUCtxCreate;
    "cuVDPAUCtxCreate" 3020 cuVDPAUCtxCreate_v2;
    "cuVDPAUGetDevice" 3010 cuVDPAUGetDevice;
    "cuWGLGetDevice" 2020 cuWGLGetDevice;
    "cuWaitExternalSemaphoresAsync" 10000 cuWaitExternalSemaphoresAsync;
    "cuWaitExternalSemaphoresAsync" 10000 cuWaitExternalSemaphoresAsync_ptsz per_thread;
}
