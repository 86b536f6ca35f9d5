//! Launches: a kernel is a duration.
//!
//! A kernel named `spin_us_N` runs for N microseconds; `gpushare_spin` and `spin_ns` run for as many
//! nanoseconds as their first argument says; any other runs for a time that grows with its grid.

use std::ffi::c_void;
use std::sync::Arc;

use gpushare_abi::errors::{
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUerror, CUresult,
};
use gpushare_abi::types::{
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END,
    CUDA_LAUNCH_PARAMS, CUfunction, CUhostFn, CUlaunchConfig, CUoccupancyB2DSize, CUstream,
    CUstreamCallback,
};

use crate::c::{In, Out};
use crate::context::current;
use crate::driver::driver;
use crate::faces::faces;
use crate::handles::lock;
use crate::module::{self, Function};
use crate::stream::{self, DefaultStream};
use crate::task::{Callback, Host, Task};

/// Threads a block may have.
const BLOCK_LIMIT: u64 = 1024;
/// Shared memory a block may ask for.
const SHARED_LIMIT: u32 = 227 << 10;
/// Blocks a multiprocessor holds at once.
const RESIDENT: u64 = 2;

/// A grid of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared: u32,
}

impl Shape {
    /// As a driver checks it.
    pub fn check(&self) -> CUresult {
        let threads: u64 = self.block.iter().map(|n| u64::from(*n)).product();
        let limits = [1024, 1024, 64];
        let fits = self
            .block
            .iter()
            .zip(limits)
            .all(|(n, limit)| *n > 0 && *n <= limit);
        let grid = self.grid[0] > 0
            && self.grid[0] <= 0x7fff_ffff
            && self.grid[1..].iter().all(|n| *n > 0 && *n <= 65535);
        if !fits || !grid || threads > BLOCK_LIMIT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if self.shared > SHARED_LIMIT {
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        Ok(())
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }
}

/// A kernel's arguments, packed: as many bytes as are known.
pub fn arguments(
    function: &Function,
    parameters: In<u64>,
    extra: In<usize>,
) -> Result<Vec<u8>, CUerror> {
    if !extra.is_null() {
        return packed(extra);
    }
    let sizes = match &function.entry.parameters {
        Some(sizes) => sizes.clone(),
        // Of an opaque kernel only the spinning ones' argument is known.
        None if reads_duration(&function.entry.name) => vec![8],
        None => Vec::new(),
    };
    if parameters.is_null() {
        return if sizes.is_empty() {
            Ok(Vec::new())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        };
    }
    let mut bytes = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        bytes.resize(bytes.len().next_multiple_of(module::align(*size)), 0);
        let argument = parameters.at(index)?;
        if argument == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        bytes.extend(crate::c::read_bytes(argument, *size));
    }
    Ok(bytes)
}

/// The arguments of an `extra` list.
fn packed(extra: In<usize>) -> Result<Vec<u8>, CUerror> {
    let (mut buffer, mut size) = (0, 0);
    for pair in 0..4 {
        let key = extra.at(2 * pair)?;
        if key == CU_LAUNCH_PARAM_END {
            break;
        }
        let value = extra.at(2 * pair + 1)?;
        match key {
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = value,
            CU_LAUNCH_PARAM_BUFFER_SIZE => size = In(value as *const usize).get()?,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
    if buffer == 0 && size > 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(crate::c::read_bytes(
        buffer as u64,
        if size > 4096 { 4096 } else { size },
    ))
}

fn reads_duration(name: &str) -> bool {
    matches!(name, "gpushare_spin" | "spin_ns")
}

/// How long a kernel runs on a device of speed 1, in nanoseconds.
pub fn duration(name: &str, arguments: &[u8], shape: Shape) -> u64 {
    if let Some(microseconds) = name
        .strip_prefix("spin_us_")
        .and_then(|n| n.parse::<u64>().ok())
    {
        return microseconds.saturating_mul(1000);
    }
    if reads_duration(name)
        && let Some(first) = arguments.get(..8).and_then(|bytes| bytes.try_into().ok())
    {
        return u64::from_le_bytes(first);
    }
    // A few microseconds, and more for each wave of blocks.
    const LAUNCH: u64 = 2_000;
    const WAVE: u64 = 1_000;
    const LONGEST: u64 = 1_000_000;
    LAUNCH
        + (shape.blocks() / (132 * RESIDENT))
            .saturating_mul(WAVE)
            .min(LONGEST)
}

/// A kernel with all it needs to run, now or in a graph.
#[derive(Debug)]
pub struct Launch {
    /// How long it runs on a device of speed 1, in nanoseconds.
    pub ns: u64,
    /// The kernel.
    pub function: Arc<Function>,
    /// Its grid.
    pub shape: Shape,
    /// Its arguments, packed; each where an argument of its size belongs.
    pub arguments: Vec<u8>,
    /// Where each argument is, for a graph node's parameters.
    pointers: Vec<u64>,
}

impl Launch {
    fn new(function: &Arc<Function>, shape: Shape, arguments: Vec<u8>) -> Arc<Self> {
        let ns = duration(&function.entry.name, &arguments, shape);
        let sizes = function.entry.parameters.iter().flatten();
        let mut at = 0;
        let offsets = sizes.map(|size| {
            let start = usize::next_multiple_of(at, module::align(*size));
            at = start + size;
            start
        });
        let pointers = offsets
            .map(|start| arguments.as_ptr() as u64 + start as u64)
            .collect();
        Arc::new(Self {
            ns,
            function: Arc::clone(function),
            shape,
            arguments,
            pointers,
        })
    }

    /// Where a graph node tells its arguments to be: our copies.
    pub fn pointers(&self) -> *mut *mut c_void {
        if self.pointers.is_empty() {
            std::ptr::null_mut()
        } else {
            self.pointers.as_ptr().cast_mut().cast()
        }
    }
}

/// A kernel launch, checked.
pub fn prepare(
    function: &Arc<Function>,
    shape: Shape,
    parameters: In<u64>,
    extra: In<usize>,
) -> Result<Arc<Launch>, CUerror> {
    shape.check()?;
    if !parameters.is_null() && !extra.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let arguments = arguments(function, parameters, extra)?;
    Ok(Launch::new(function, shape, arguments))
}

fn launch(
    default: DefaultStream,
    handle: CUfunction,
    shape: Shape,
    stream: CUstream,
    parameters: In<u64>,
    extra: In<usize>,
) -> CUresult {
    current()?;
    let function = module::function(handle)?;
    let launch = prepare(&function, shape, parameters, extra)?;
    stream::by_handle(default, stream)?.issue(Task::Kernel(launch))
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
    current()?;
    let function = module::function(handle)?;
    let old = lock(&function.legacy).clone();
    let shape = Shape {
        grid: [grid[0], grid[1], 1],
        block: old.block,
        shared: 0,
    };
    shape.check()?;
    let launch = Launch::new(&function, shape, old.arguments);
    stream::by_handle(default, stream)?.issue(Task::Kernel(launch))
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
    current()?;
    module::function(handle)?;
    if block <= 0 || block as u64 > BLOCK_LIMIT {
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

faces! {
    "cuLaunchKernel" 4000 cuLaunchKernel (function: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, parameters: In<u64>, extra: In<usize>) / cuLaunchKernel_ptsz 7000 |default| {
        let shape = Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared };
        launch(default, function, shape, stream, parameters, extra)
    }
    "cuLaunchKernelEx" 11060 cuLaunchKernelEx (config: In<CUlaunchConfig>, function: CUfunction, parameters: In<u64>, extra: In<usize>) / cuLaunchKernelEx_ptsz 11060 |default| {
        current()?;
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
        stream::by_handle(default, stream)?.issue(Task::Host(Host { function, data: data as u64 }))
    }
    "cuStreamAddCallback" 5000 cuStreamAddCallback (stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32) / cuStreamAddCallback_ptsz 7000 |default| {
        current()?;
        let callback = callback.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let target = stream::by_handle(default, stream)?;
        crate::capture::forbid_on(&target)?;
        target.issue(Task::Callback(Callback { function: callback, stream: stream as u64, data: data as u64 }))
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
        out.set(SHARED_LIMIT as usize / blocks.max(1) as usize)
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Shape = Shape {
        grid: [1, 1, 1],
        block: [32, 1, 1],
        shared: 0,
    };

    #[test]
    fn a_kernels_duration_is_in_its_name_or_its_first_argument() {
        assert_eq!(duration("spin_us_250", &[], ONE), 250_000);
        assert_eq!(
            duration("gpushare_spin", &5_000_000u64.to_le_bytes(), ONE),
            5_000_000
        );
        assert_eq!(
            duration("gpushare_spin", &[1], ONE),
            duration("other", &[], ONE)
        );
        let wide = Shape {
            grid: [1 << 20, 1, 1],
            ..ONE
        };
        assert!(duration("other", &[], wide) > duration("other", &[], ONE));
        assert_eq!(
            duration("spin_us_99999999999999999999", &[], ONE),
            duration("x", &[], ONE)
        );
    }

    #[test]
    fn shapes_are_checked_as_a_driver_checks_them() {
        assert_eq!(ONE.check(), Ok(()));
        for bad in [
            Shape {
                grid: [0, 1, 1],
                ..ONE
            },
            Shape {
                grid: [1, 65536, 1],
                ..ONE
            },
            Shape {
                block: [0, 1, 1],
                ..ONE
            },
            Shape {
                block: [1024, 2, 1],
                ..ONE
            },
            Shape {
                block: [1, 1, 65],
                ..ONE
            },
        ] {
            assert_eq!(bad.check(), Err(CUDA_ERROR_INVALID_VALUE));
        }
    }
}
