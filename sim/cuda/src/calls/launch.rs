//! The calls that launch kernels, and those on how many fit.

use std::{ffi::c_void, sync::Arc};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_HANDLE,
        CUDA_ERROR_INVALID_VALUE, CUerror, CUresult,
    },
    types::{
        CUDA_LAUNCH_PARAMS, CUfunction, CUhostFn, CUlaunchConfig, CUoccupancyB2DSize, CUstream,
        CUstreamCallback,
    },
};

use crate::{
    c::{In, Out},
    capture,
    code::module::{self, SHARED_LIMIT},
    context::{self, current},
    driver::driver,
    faces::{DefaultStream, faces},
    graph::node::Node,
    handles::lock,
    launch::{BLOCK_LIMIT, Launch, RESIDENT, Shape, prepare},
    submit,
    work::{Callback, Host},
};

faces! {
    "cuLaunchKernel" 4000 cuLaunchKernel (function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, parameters: In<u64>, extra: In<usize>) / cuLaunchKernel_ptsz 7000 |default| {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        launch(default, function, shape, stream, parameters, extra)
    }
    "cuLaunchKernelEx" 11060 cuLaunchKernelEx (config: In<CUlaunchConfig>, function: CUfunction, parameters: In<u64>, extra: In<usize>) / cuLaunchKernelEx_ptsz 11060 |default| {
        let c = config.get()?;
        let shape = Shape {
            grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
            block: [c.blockDimX, c.blockDimY, c.blockDimZ],
            shared: c.sharedMemBytes,
        };
        launch(default, function, shape, c.hStream, parameters, extra)
    }
    "cuLaunchCooperativeKernel" 9000 cuLaunchCooperativeKernel (function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, parameters: In<u64>) / cuLaunchCooperativeKernel_ptsz 9000 |default| {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        cooperative(shape)?;
        launch(default, function, shape, stream, parameters, In(std::ptr::null()))
    }
    "cuLaunchCooperativeKernelMultiDevice" 9000 cuLaunchCooperativeKernelMultiDevice (list: In<CUDA_LAUNCH_PARAMS>, count: u32, flags: u32) {
        current()?;
        if count == 0 || flags > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for one in list.all(count as usize)? {
            let shape = Shape {
                grid: [one.gridDimX, one.gridDimY, one.gridDimZ],
                block: [one.blockDimX, one.blockDimY, one.blockDimZ],
                shared: one.sharedMemBytes,
            };
            cooperative(shape)?;
            let parameters = In(one.kernelParams.cast_const().cast());
            launch(DefaultStream::Legacy, one.function, shape, one.hStream, parameters, In(std::ptr::null()))?;
        }
        Ok(())
    }
    "cuLaunch" 2000 cuLaunch (function: CUfunction) {
        legacy(DefaultStream::Legacy, function, [1, 1], std::ptr::null_mut())
    }
    "cuLaunchGrid" 2000 cuLaunchGrid (function: CUfunction, width: i32, height: i32) {
        legacy(DefaultStream::Legacy, function, [width as u32, height as u32], std::ptr::null_mut())
    }
    "cuLaunchGridAsync" 2000 cuLaunchGridAsync (function: CUfunction, width: i32, height: i32, stream: CUstream) {
        legacy(DefaultStream::Legacy, function, [width as u32, height as u32], stream)
    }
    "cuFuncSetBlockShape" 2000 cuFuncSetBlockShape (function: CUfunction, x: i32, y: i32, z: i32) {
        let function = module::function(function)?;
        lock(&function.legacy).block = [x as u32, y as u32, z as u32];
        Ok(())
    }
    "cuFuncSetSharedSize" 2000 cuFuncSetSharedSize (function: CUfunction, bytes: u32) {
        let _ = bytes;
        module::function(function).map(|_| ())
    }
    "cuParamSetSize" 2000 cuParamSetSize (function: CUfunction, bytes: u32) {
        let function = module::function(function)?;
        lock(&function.legacy).arguments.resize(bytes.min(4096) as usize, 0);
        Ok(())
    }
    "cuParamSeti" 2000 cuParamSeti (function: CUfunction, offset: i32, value: u32) {
        set_argument(function, offset, &value.to_le_bytes())
    }
    "cuParamSetf" 2000 cuParamSetf (function: CUfunction, offset: i32, value: f32) {
        set_argument(function, offset, &value.to_le_bytes())
    }
    "cuParamSetv" 2000 cuParamSetv (function: CUfunction, offset: i32, value: In<u8>, bytes: u32) {
        set_argument(function, offset, &value.all(bytes.min(4096) as usize)?)
    }
    "cuLaunchHostFunc" 10000 cuLaunchHostFunc (stream: CUstream, function: CUhostFn, data: *mut c_void) / cuLaunchHostFunc_ptsz 10000 |default| {
        current()?;
        let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let host = Host { function, data: data as u64 };
        submit::submit(&context::stream(default, stream)?, Node::Host(host))
    }
    "cuStreamAddCallback" 5000 cuStreamAddCallback (stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32) / cuStreamAddCallback_ptsz 7000 |default| {
        current()?;
        let callback = callback.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let target = context::stream(default, stream)?;
        capture::forbid_on(&target)?;
        submit::queue(&target, Arc::new(Callback { function: callback, stream: stream as u64, data: data as u64 }))
    }
    "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 cuOccupancyMaxActiveBlocksPerMultiprocessor (out: Out<i32>, function: CUfunction, block: i32, shared: usize) {
        out.set(occupancy(function, block, shared)?)
    }
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags (out: Out<i32>, function: CUfunction, block: i32, shared: usize, flags: u32) {
        let _ = flags;
        out.set(occupancy(function, block, shared)?)
    }
    "cuOccupancyMaxPotentialBlockSize" 6050 cuOccupancyMaxPotentialBlockSize (grid: Out<i32>, block: Out<i32>, function: CUfunction, by_size: CUoccupancyB2DSize, shared: usize, limit: i32) {
        let _ = (by_size, shared);
        potential(grid, block, function, limit)
    }
    "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000 cuOccupancyMaxPotentialBlockSizeWithFlags (grid: Out<i32>, block: Out<i32>, function: CUfunction, by_size: CUoccupancyB2DSize, shared: usize, limit: i32, flags: u32) {
        let _ = (by_size, shared, flags);
        potential(grid, block, function, limit)
    }
    "cuOccupancyAvailableDynamicSMemPerBlock" 10020 cuOccupancyAvailableDynamicSMemPerBlock (out: Out<usize>, function: CUfunction, blocks: i32, block: i32) {
        occupancy(function, block, 0)?;
        let most = module::function(function)?.dynamic_limit() as usize;
        out.set(most.min(SHARED_LIMIT as usize / blocks.max(1) as usize))
    }
    "cuOccupancyMaxPotentialClusterSize" 11070 cuOccupancyMaxPotentialClusterSize (out: Out<i32>, function: CUfunction, config: In<CUlaunchConfig>) {
        module::function(function)?;
        config.get()?;
        out.set(8)
    }
    "cuOccupancyMaxActiveClusters" 11070 cuOccupancyMaxActiveClusters (out: Out<i32>, function: CUfunction, config: In<CUlaunchConfig>) {
        module::function(function)?;
        config.get()?;
        out.set(16)
    }
}

fn launch(
    default: DefaultStream,
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    parameters: In<u64>,
    extra: In<usize>,
) -> CUresult {
    let stream = context::stream(default, stream)?;
    let function = module::function(handle)?;
    context::by_handle(stream.context as _)?.load_code(function.handle)?;
    let launch = prepare(&function, shape, parameters, extra)?;
    submit::submit(&stream, Node::Kernel(launch))
}

fn cooperative(shape: Shape) -> CUresult {
    let device = current()?.device;
    let multiprocessors = u64::from(driver()?.device(device)?.multiprocessors);
    shape.check()?;
    if shape.blocks() > multiprocessors * RESIDENT {
        return Err(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

fn legacy(
    default: DefaultStream,
    handle: CUfunction,
    grid: [u32; 2],
    stream: CUstream,
) -> CUresult {
    let context = current()?;
    let function = module::function(handle)?;
    context.load_code(function.handle)?;
    let old = lock(&function.legacy).clone();
    let shape = Shape {
        grid: [grid[0], grid[1], 1],
        block: old.block,
        shared: 0,
    };
    shape.check()?;
    let launch = Launch::new(&function, shape, old.arguments);
    submit::submit(&context::stream(default, stream)?, Node::Kernel(launch))
}

fn set_argument(handle: CUfunction, offset: i32, bytes: &[u8]) -> CUresult {
    let function = module::function(handle)?;
    let start = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let end = start + bytes.len();
    if end > 4096 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut legacy = lock(&function.legacy);
    if legacy.arguments.len() < end {
        legacy.arguments.resize(end, 0);
    }
    legacy.arguments[start..end].copy_from_slice(bytes);
    Ok(())
}

fn occupancy(handle: CUfunction, block: i32, shared: usize) -> Result<i32, CUerror> {
    current()?.load_code(module::function(handle)?.handle)?;
    if block == 0 {
        // This is the error of a driver (580.159.04).
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if block < 0 || block as u64 > BLOCK_LIMIT {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let by_shared = (SHARED_LIMIT as usize / shared.max(1024)) as i32;
    Ok((2048 / block).min(32).min(by_shared))
}

fn potential(grid: Out<i32>, block: Out<i32>, handle: CUfunction, limit: i32) -> CUresult {
    let context = current()?;
    module::function(handle)?;
    let threads = if limit > 0 { limit.min(1024) } else { 1024 };
    grid.set(driver()?.device(context.device)?.multiprocessors as i32 * (2048 / threads.max(1)))?;
    block.set(threads)
}
