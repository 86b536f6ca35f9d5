//! Copies: between host and device, device and device, and arrays, in one to three dimensions.

use std::{ffi::c_void, time::Duration};

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror},
    types::{
        CU_MEMCPY_OPERAND_TYPE_ARRAY, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE,
        CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D, CUDA_MEMCPY3D,
        CUDA_MEMCPY3D_BATCH_OP, CUarray, CUdeviceptr, CUmemcpy3DOperand, CUmemorytype,
    },
};

use gpushare_sim::link::Direction;

use crate::{
    c::In,
    driver::driver,
    memory::{array, heap, vmm},
    work::{Copy, Side},
};

/// Returns the bytes from the first to the last of a pitched block.
pub fn span(row: usize, pitch: usize, rows: usize) -> Result<u64, CUerror> {
    let before = pitch
        .checked_mul(rows.saturating_sub(1))
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(before.checked_add(row).ok_or(CUDA_ERROR_INVALID_VALUE)? as u64)
}

/// A copy with the properties that decide how it is done.
#[derive(Debug)]
pub struct Plan {
    /// The copy.
    pub copy: Copy,
    /// The source is memory of the host.
    pub from_host: bool,
    /// The destination is memory of the host.
    pub to_host: bool,
    /// Both contexts are named, so neither device need reach the other's memory.
    pub between_peers: bool,
}

impl Plan {
    /// Plans a copy of bytes. Each side must be device memory (`Some(true)`), is host memory (`Some(false)`), or is
    /// recognised by its address.
    pub fn linear(
        to: (u64, Option<bool>),
        from: (u64, Option<bool>),
        bytes: usize,
    ) -> Result<Self, CUerror> {
        let is_host = |(address, device): (u64, Option<bool>)| -> Result<bool, CUerror> {
            if bytes == 0 {
                return Ok(device == Some(false));
            }
            if address == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let host = match device {
                Some(device) => !device,
                None => heap::find(address).is_none() && !vmm::is_reserved(address),
            };
            if !host {
                heap::check(address, bytes as u64)?;
            }
            Ok(host)
        };
        let (to_host, from_host) = (is_host(to)?, is_host(from)?);
        Ok(Self {
            copy: Copy {
                link: link_use(to_host, from_host, bytes as u64)?,
                ..Copy::linear(to.0, from.0, bytes)
            },
            from_host,
            to_host,
            between_peers: false,
        })
    }

    /// Returns the copy, for a graph.
    pub fn into_copy(self) -> Copy {
        self.copy
    }
}

/// Size in bytes below which a copy takes no time on the link.
pub const LONG: u64 = 1 << 20;

/// Returns how a copy uses the link between host and device, according to the scenario.
fn link_use(
    to_host: bool,
    from_host: bool,
    bytes: u64,
) -> Result<Option<(Direction, Duration)>, CUerror> {
    let link = driver()?.member.world().scenario().link;
    let (direction, rate) = match (to_host, from_host) {
        (true, false) => (Direction::Out, link.out.0),
        (false, true) => (Direction::Back, link.back.0),
        _ => return Ok(None),
    };
    let time = || Duration::from_secs_f64(bytes as f64 / rate as f64);
    Ok((rate != 0 && bytes >= LONG).then(|| (direction, time())))
}

/// A side of a described copy.
struct Described {
    kind: CUmemorytype,
    host: *const c_void,
    device: CUdeviceptr,
    array: CUarray,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Described {
    /// Returns the side's address, and whether it is host memory.
    fn resolve(&self, width: usize, height: usize, depth: usize) -> Result<(Side, bool), CUerror> {
        let bad = CUDA_ERROR_INVALID_VALUE;
        let end = self.x.checked_add(width).ok_or(bad)?;
        let (base, pitch, slice, host) = match self.kind {
            CU_MEMORYTYPE_ARRAY => {
                let side = array::side(self.array, end, self.y + height, self.z + depth)?;
                (side.address, side.pitch, side.slice, false)
            }
            CU_MEMORYTYPE_HOST | CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => {
                let pitch = if self.pitch == 0 { end } else { self.pitch };
                if pitch < end && height * depth > 1 {
                    return Err(bad);
                }
                let rows = if self.height == 0 {
                    self.y + height
                } else {
                    self.height
                };
                let slice = pitch.checked_mul(rows).ok_or(bad)?;
                let unified = self.kind == CU_MEMORYTYPE_UNIFIED;
                let host = self.kind == CU_MEMORYTYPE_HOST
                    || unified
                        && heap::find(self.device).is_none()
                        && !vmm::is_reserved(self.device);
                let base = if self.kind == CU_MEMORYTYPE_HOST {
                    self.host as u64
                } else {
                    self.device
                };
                if base == 0 {
                    return Err(bad);
                }
                (base, pitch, slice, host)
            }
            _ => return Err(bad),
        };
        let skip = self
            .z
            .checked_mul(slice)
            .zip(self.y.checked_mul(pitch))
            .ok_or(bad)?;
        let skip = skip
            .0
            .checked_add(skip.1)
            .and_then(|skip| skip.checked_add(self.x))
            .ok_or(bad)?;
        let side = Side {
            address: base.checked_add(skip as u64).ok_or(bad)?,
            pitch,
            slice,
        };
        if !host && self.kind != CU_MEMORYTYPE_ARRAY {
            let rest = slice.checked_mul(depth.saturating_sub(1)).ok_or(bad)? as u64;
            heap::check(side.address, rest + span(width, pitch, height)?)?;
        }
        Ok((side, host))
    }
}

/// Checks and resolves a described copy.
fn plan(
    from: &Described,
    to: &Described,
    width: usize,
    height: usize,
    depth: usize,
) -> Result<Plan, CUerror> {
    let nothing = width == 0 || height == 0 || depth == 0;
    let (width, height, depth) = if nothing {
        (0, 0, 0)
    } else {
        (width, height, depth)
    };
    if nothing {
        let copy = Copy::linear(0, 0, 0);
        return Ok(Plan {
            copy,
            from_host: false,
            to_host: false,
            between_peers: false,
        });
    }
    let (from, from_host) = from.resolve(width, height, depth)?;
    let (to, to_host) = to.resolve(width, height, depth)?;
    Ok(Plan {
        copy: Copy {
            from,
            to,
            width,
            height,
            depth,
            staged: None,
            link: None,
        },
        from_host,
        to_host,
        between_peers: false,
    })
}

/// Plans a two-dimensional copy from the application's description.
pub fn plan_2d(description: In<CUDA_MEMCPY2D>) -> Result<Plan, CUerror> {
    let d = description.get()?;
    let from = Described {
        kind: d.srcMemoryType,
        host: d.srcHost,
        device: d.srcDevice,
        array: d.srcArray,
        x: d.srcXInBytes,
        y: d.srcY,
        z: 0,
        pitch: d.srcPitch,
        height: 0,
    };
    let to = Described {
        kind: d.dstMemoryType,
        host: d.dstHost,
        device: d.dstDevice,
        array: d.dstArray,
        x: d.dstXInBytes,
        y: d.dstY,
        z: 0,
        pitch: d.dstPitch,
        height: 0,
    };
    plan(&from, &to, d.WidthInBytes, d.Height, 1)
}

/// Plans a three-dimensional copy from the application's description.
pub fn plan_3d(description: In<CUDA_MEMCPY3D>) -> Result<Plan, CUerror> {
    let d = description.get()?;
    if d.srcLOD != 0 || d.dstLOD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let from = Described {
        kind: d.srcMemoryType,
        host: d.srcHost,
        device: d.srcDevice,
        array: d.srcArray,
        x: d.srcXInBytes,
        y: d.srcY,
        z: d.srcZ,
        pitch: d.srcPitch,
        height: d.srcHeight,
    };
    let to = Described {
        kind: d.dstMemoryType,
        host: d.dstHost,
        device: d.dstDevice,
        array: d.dstArray,
        x: d.dstXInBytes,
        y: d.dstY,
        z: d.dstZ,
        pitch: d.dstPitch,
        height: d.dstHeight,
    };
    plan(&from, &to, d.WidthInBytes, d.Height, d.Depth)
}

/// Plans a copy of a three-dimensional batch: its sides are in elements if an array is involved.
pub fn plan_op(op: &CUDA_MEMCPY3D_BATCH_OP) -> Result<Plan, CUerror> {
    let bad = CUDA_ERROR_INVALID_VALUE;
    if op.width == 0 || op.height == 0 || op.depth == 0 {
        return Err(bad);
    }
    let elements = [&op.src, &op.dst]
        .into_iter()
        .filter(|end| end.type_ == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        .map(|end| array::element(end.at[0] as CUarray))
        .collect::<Result<Vec<_>, CUerror>>()?;
    let element = elements.first().copied().unwrap_or(1);
    if elements.iter().any(|other| *other != element) {
        return Err(bad);
    }
    let wide = |length: usize| length.checked_mul(element).ok_or(bad);
    let describe = |end: &CUmemcpy3DOperand| -> Result<Described, CUerror> {
        let [first, x, y, z] = end.at;
        let is_array = end.type_ == CU_MEMCPY_OPERAND_TYPE_ARRAY;
        let (row, height) = (x as usize, y as usize);
        let of_array = |value: u64| if is_array { value as usize } else { 0 };
        Ok(Described {
            kind: if is_array {
                CU_MEMORYTYPE_ARRAY
            } else {
                CU_MEMORYTYPE_UNIFIED
            },
            host: std::ptr::null(),
            device: first,
            array: first as CUarray,
            x: wide(of_array(x))?,
            y: of_array(y),
            z: of_array(z),
            pitch: if is_array { 0 } else { wide(row)? },
            height: if is_array { 0 } else { height },
        })
    };
    plan(
        &describe(&op.src)?,
        &describe(&op.dst)?,
        wide(op.width)?,
        op.height,
        op.depth,
    )
}

/// An end of a copy from or to an array.
pub enum End {
    /// An array, from this byte on.
    Array(CUarray, usize),
    /// Device memory.
    Device(CUdeviceptr),
    /// Memory of the host.
    Host(*const c_void),
}

impl End {
    fn described(self, bytes: usize) -> Described {
        let empty = Described {
            kind: CU_MEMORYTYPE_HOST,
            host: std::ptr::null(),
            device: 0,
            array: std::ptr::null_mut(),
            x: 0,
            y: 0,
            z: 0,
            pitch: bytes,
            height: 1,
        };
        match self {
            Self::Array(array, x) => Described {
                kind: CU_MEMORYTYPE_ARRAY,
                array,
                x,
                ..empty
            },
            Self::Device(device) => Described {
                kind: CU_MEMORYTYPE_DEVICE,
                device,
                ..empty
            },
            Self::Host(host) => Described { host, ..empty },
        }
    }
}

/// Plans a copy of bytes from or to an array.
pub fn plan_ends(to: End, from: End, bytes: usize) -> Result<Plan, CUerror> {
    plan(&from.described(bytes), &to.described(bytes), bytes, 1, 1)
}
