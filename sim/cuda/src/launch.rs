//! Launches: a kernel is a duration.
//!
//! A kernel named `spin_us_N` runs for N microseconds; `gpushare_spin` and `spin_ns` run for as many
//! nanoseconds as their first argument says; any other runs for a time that grows with its grid. One named `fault_N` does
//! something illegal: its context is lost with the driver's error N. The library's own kernel is computed (`chunk_hash`).

mod chunk_hash;

use std::{ffi::c_void, sync::Arc};

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult},
    types::{CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END},
};
use gpushare_sim::{Kernel, clock};

use crate::{
    c::In,
    code::{image::Parameter, module::Function},
    driver::Driver,
    work::Work,
};

/// Threads a block may have.
pub const BLOCK_LIMIT: u64 = 1024;
/// Blocks a multiprocessor holds at once.
pub const RESIDENT: u64 = 2;

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
    /// Checks the shape as a driver does.
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
        Ok(())
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }
}

/// Packs a kernel's arguments: as many bytes as are known.
pub fn arguments(
    function: &Function,
    parameters: In<u64>,
    extra: In<usize>,
) -> Result<Vec<u8>, CUerror> {
    if !extra.is_null() {
        return packed(extra);
    }
    let expected = match &function.entry.parameters {
        Some(known) => known.clone(),
        // Of an opaque kernel only the spinning ones' argument is known.
        None if reads_duration(&function.entry.name) => vec![Parameter { offset: 0, size: 8 }],
        None => Vec::new(),
    };
    if parameters.is_null() {
        return if expected.is_empty() {
            Ok(Vec::new())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        };
    }
    let mut bytes = Vec::new();
    for (index, Parameter { offset, size }) in expected.iter().enumerate() {
        let argument = parameters.at(index)?;
        if argument == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        bytes.resize(*offset, 0);
        bytes.extend(crate::c::read_bytes(argument, *size));
    }
    Ok(bytes)
}

/// Returns the arguments of an `extra` list.
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

/// Returns how long a kernel runs on a device of speed 1, in nanoseconds.
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
    if chunk_hash::is_named(name) {
        return shape.blocks().saturating_mul(chunk_hash::CHUNK_NS);
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

/// Returns the error with which a kernel ends its context.
fn fault(name: &str) -> Option<u32> {
    let code = name.strip_prefix("fault_")?.parse().ok()?;
    gpushare_abi::errors::name_of(code).filter(|_| code != 0)?;
    Some(code)
}

/// A kernel with all it needs to run, now or in a graph.
#[derive(Debug)]
pub struct Launch {
    /// Duration on a device of speed 1, in nanoseconds.
    pub ns: u64,
    /// The kernel.
    pub function: Arc<Function>,
    /// The shape of the launch.
    pub shape: Shape,
    /// The packed arguments, each aligned to its size.
    pub arguments: Vec<u8>,
    /// The address of each argument, for a graph node's parameters.
    pointers: Vec<u64>,
}

impl Launch {
    /// Creates a launch with packed arguments.
    pub fn new(function: &Arc<Function>, shape: Shape, arguments: Vec<u8>) -> Arc<Self> {
        let ns = duration(&function.entry.name, &arguments, shape);
        let known = function.entry.parameters.iter().flatten();
        let at = |parameter: &Parameter| arguments.as_ptr() as u64 + parameter.offset as u64;
        let pointers = known.map(at).collect();
        Arc::new(Self {
            ns,
            function: Arc::clone(function),
            shape,
            arguments,
            pointers,
        })
    }

    /// Returns the addresses of the arguments for a graph node's parameters; they are the simulator's copies.
    pub fn pointers(&self) -> *mut *mut c_void {
        if self.pointers.is_empty() {
            std::ptr::null_mut()
        } else {
            self.pointers.as_ptr().cast_mut().cast()
        }
    }
}

/// Runs the kernel for its duration on the engine.
impl Work for Launch {
    fn run(&self, driver: &Driver, ordinal: i32, ready: u64) -> u64 {
        let Ok(device) = driver.device(ordinal) else {
            return ready;
        };
        if driver.member.fault(device.index) != 0 {
            return ready;
        }
        let kernel = Kernel {
            duration: device.duration(self.ns),
            blocks: self.shape.blocks(),
            ready,
        };
        let ended = driver.member.run(device.index, kernel);
        let name = &self.function.entry.name;
        if let Some(code) = fault(name) {
            driver.member.fail(device.index, code);
        }
        if chunk_hash::is_named(name) {
            if let Err(error) = chunk_hash::run(&self.arguments, self.shape.blocks()) {
                driver.member.fail(device.index, error.code());
            }
            return ended.max(clock::now());
        }
        ended
    }
}

/// Checks a kernel launch and creates it.
pub fn prepare(
    function: &Arc<Function>,
    shape: Shape,
    parameters: In<u64>,
    extra: In<usize>,
) -> Result<Arc<Launch>, CUerror> {
    shape.check()?;
    let asks_too_much = shape.shared > function.dynamic_limit();
    if asks_too_much || (!parameters.is_null() && !extra.is_null()) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let arguments = arguments(function, parameters, extra)?;
    Ok(Launch::new(function, shape, arguments))
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
        for (grid, block) in [
            ([0, 1, 1], ONE.block),
            ([1, 65536, 1], ONE.block),
            (ONE.grid, [0, 1, 1]),
            (ONE.grid, [1024, 2, 1]),
            (ONE.grid, [1, 1, 65]),
        ] {
            let bad = Shape { grid, block, ..ONE };
            assert_eq!(bad.check(), Err(CUDA_ERROR_INVALID_VALUE));
        }
    }
}
