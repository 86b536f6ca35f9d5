//! The layout of an array in memory: rows one after the other without gaps, then slices, then mip levels.
//!
//! A height or depth of 0 means that the array has no such dimension. Layers and cube faces are slices too; their
//! number is the same at every mip level. A [`Shape`] admits what the driver admits: formats, channel counts, sides,
//! and combinations of dimensions.
//!
//! ```text
//! level 0: slice 0 [row 0][row 1]… slice 1 … | level 1: … |
//! ```

#[cfg(test)]
mod tests;

use gpushare_abi::{
    errors::{CUDA_ERROR_INVALID_VALUE, CUerror},
    types::{
        CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DEFERRED_MAPPING,
        CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE, channel_bytes,
    },
};

/// The longest side of an array without, with two and with three dimensions.
const LONGEST: [usize; 3] = [131_072, 131_072, 16_384];
/// The tallest two-dimensional array.
const TALLEST: usize = 65_536;
const MOST_LAYERS: usize = 2048;
/// Every `CUDA_ARRAY3D_…` flag.
const FLAGS: u32 = 0x1ff;

/// A checked array descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
    unit: Unit,
}

/// The smallest thing a format stores: `side` × `side` texels in `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    side: usize,
    bytes: usize,
    /// Rows that two rows of texels take: more than two where the colours are planes of their own, below
    /// the first one. Their rows are as long as its rows.
    rows_of_two: usize,
}

impl Unit {
    const fn texel(bytes: usize) -> Option<Self> {
        Self::planes(bytes, 2)
    }

    const fn block(bytes: usize) -> Option<Self> {
        Some(Self {
            side: 4,
            bytes,
            rows_of_two: 2,
        })
    }

    const fn planes(bytes: usize, rows_of_two: usize) -> Option<Self> {
        Some(Self {
            side: 1,
            bytes,
            rows_of_two,
        })
    }
}

/// A mip level (level 0 is the array itself).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Bytes before it.
    pub offset: usize,
    /// Bytes of a row.
    pub row: usize,
    /// Rows of a slice.
    pub rows: usize,
    /// Slices: depth, layers or faces.
    pub slices: usize,
}

impl Level {
    /// Returns the bytes of the level.
    pub fn bytes(&self) -> usize {
        self.row * self.rows * self.slices
    }
}

fn unit(format: u32, channels: u32) -> Option<Unit> {
    if let Some(bytes) = channel_bytes(format) {
        let fixed = match format {
            0xc0 | 0xc3 | 0xc6 | 0xc9 => Some(1),
            0xc1 | 0xc4 | 0xc7 | 0xca => Some(2),
            0xc2 | 0xc5 | 0xc8 | 0xcb => Some(4),
            _ => None,
        };
        let fits = matches!(channels, 1 | 2 | 4) && fixed.is_none_or(|fixed| fixed == channels);
        return Unit::texel(bytes * channels as usize).filter(|_| fits);
    }
    // The formats that an H200's driver (580.159.04) accepts. It accepts video formats only with a flag of theirs.
    let fits = match format {
        0x97 | 0x98 => channels == 1,
        0x99 | 0x9a => channels == 2,
        0x9b | 0x9c => channels == 3,
        0x50 | 0x91..=0x96 | 0x9d | 0x9e => channels == 4,
        _ => true,
    };
    if !fits {
        return None;
    }
    match format {
        // BC1 and BC4 store sixteen texels in 8 bytes, the other block-compressed formats in 16.
        0x91 | 0x92 | 0x97 | 0x98 => Unit::block(8),
        0x93..=0x96 | 0x99..=0x9e => Unit::block(16),
        // Video in planes: a quarter, half or all as many texels of each colour; 8 and 16 bits.
        0xb0 => Unit::planes(1, 3),
        0x9f | 0xa1 => Unit::planes(2, 3),
        0xa2 => Unit::planes(1, 4),
        0xa3 | 0xa4 => Unit::planes(2, 4),
        0xb2 | 0xb4 => Unit::planes(1, 6),
        0xb3 | 0xb5 => Unit::planes(2, 6),
        // Packed video, and 10:10:10:2.
        0xa5 => Unit::texel(2),
        0xa6..=0xa9 | 0x50 => Unit::texel(4),
        0xb1 => Unit::texel(8),
        _ => None,
    }
}

impl Shape {
    /// Checks a one- or two-dimensional descriptor.
    pub fn of(desc: &CUDA_ARRAY_DESCRIPTOR) -> Result<Self, CUerror> {
        Self::of_3d(&CUDA_ARRAY3D_DESCRIPTOR {
            Width: desc.Width,
            Height: desc.Height,
            Depth: 0,
            Format: desc.Format,
            NumChannels: desc.NumChannels,
            Flags: 0,
        })
    }

    /// Checks a descriptor of up to three dimensions, layered or a cubemap.
    pub fn of_3d(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<Self, CUerror> {
        let shape = Self {
            width: desc.Width,
            height: desc.Height,
            depth: desc.Depth,
            format: desc.Format,
            channels: desc.NumChannels,
            flags: desc.Flags,
            unit: unit(desc.Format, desc.NumChannels).ok_or(CUDA_ERROR_INVALID_VALUE)?,
        };
        if shape.is_admitted() {
            Ok(shape)
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }

    fn is_admitted(&self) -> bool {
        let (width, height, depth) = (self.width, self.height, self.depth);
        let dimensions = 1 + usize::from(height > 0) + usize::from(depth > 0 && !self.layered());
        let even = self.unit.rows_of_two == 2 || (width % 2 == 0 && height % 2 == 0 && height > 0);
        let sides = width > 0
            && even
            && self.flags & !FLAGS == 0
            && width <= LONGEST[dimensions - 1]
            && height <= LONGEST[dimensions - 1].min(TALLEST);
        let cube = self.flags & CUDA_ARRAY3D_CUBEMAP != 0;
        let slices = if cube {
            let layered = self.flags & CUDA_ARRAY3D_LAYERED != 0;
            width == height && depth > 0 && depth.is_multiple_of(6) && (layered || depth == 6)
        } else if self.layered() {
            (1..=MOST_LAYERS).contains(&depth)
        } else {
            depth == 0 || (height > 0 && depth <= LONGEST[2])
        };
        sides && slices && self.bytes(self.most_levels()).is_some()
    }

    /// Returns true if the depth counts layers or faces, whose number is the same at every level.
    fn layered(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
    }

    /// Returns the bytes of one element, which is a block of texels in a block-compressed format.
    pub fn element(&self) -> usize {
        self.unit.bytes
    }

    /// Returns true for an array that gets memory later, if at all.
    pub fn without_memory(&self) -> bool {
        self.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0
    }

    /// Flags of its descriptor.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the number of levels until the longest side is 1.
    pub fn most_levels(&self) -> u32 {
        let depth = if self.layered() { 1 } else { self.depth };
        self.width.max(self.height).max(depth).ilog2() + 1
    }

    fn side(value: usize, level: u32) -> usize {
        (value >> level).max(1)
    }

    /// Returns the position of a level.
    pub fn level(&self, level: u32) -> Option<Level> {
        let mut offset = 0_usize;
        for earlier in 0..level {
            offset = offset.checked_add(self.at(earlier, 0)?.bytes())?;
        }
        self.at(level, offset)
    }

    fn at(&self, level: u32, offset: usize) -> Option<Level> {
        let row = Self::side(self.width, level)
            .div_ceil(self.unit.side)
            .checked_mul(self.unit.bytes)?;
        let rows = Self::side(self.height, level).div_ceil(self.unit.side);
        let rows = rows * self.unit.rows_of_two / 2;
        let slices = if self.layered() {
            self.depth
        } else {
            Self::side(self.depth, level)
        };
        row.checked_mul(rows)?.checked_mul(slices)?;
        Some(Level {
            offset,
            row,
            rows,
            slices,
        })
    }

    /// Returns the bytes of the first `levels` levels; 0 for an array without memory of its own.
    pub fn bytes(&self, levels: u32) -> Option<usize> {
        if self.without_memory() {
            return Some(0);
        }
        let last = self.level(levels.max(1) - 1)?;
        last.offset.checked_add(last.bytes())
    }

    /// Returns the shape of one level, as `cuArray3DGetDescriptor` reports it for a level's array.
    pub fn of_level(&self, level: u32) -> Self {
        let halved = |value: usize| {
            if value == 0 {
                0
            } else {
                Self::side(value, level)
            }
        };
        Self {
            width: halved(self.width),
            height: halved(self.height),
            depth: if self.layered() {
                self.depth
            } else {
                halved(self.depth)
            },
            ..*self
        }
    }

    /// Returns a plane of a video format as an array of its own, and its offset.
    pub fn plane(&self, index: u32) -> Option<(Self, usize)> {
        let (whole, last) = match self.unit.rows_of_two {
            3 | 4 => (false, 1),
            6 => (true, 2),
            _ => return None,
        };
        if index > last {
            return None;
        }
        let format = if self.unit.bytes == 1 { 0x01 } else { 0x02 };
        let colour = index > 0 && !whole;
        let channels = if colour { 2 } else { 1 };
        let halved = |value: usize| if colour { value / 2 } else { value };
        let height = if self.unit.rows_of_two == 3 {
            halved(self.height)
        } else {
            self.height
        };
        let plane = Self {
            width: halved(self.width),
            height,
            format,
            channels,
            unit: unit(format, channels)?,
            ..*self
        };
        let before = index as usize * self.height * self.width * self.unit.bytes;
        Some((plane, before))
    }

    /// Returns the descriptor with its depth and flags.
    pub fn descriptor_3d(&self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.width,
            Height: self.height,
            Depth: self.depth,
            Format: self.format,
            NumChannels: self.channels,
            Flags: self.flags,
        }
    }

    /// Returns the descriptor without depth and flags.
    pub fn descriptor(&self) -> CUDA_ARRAY_DESCRIPTOR {
        CUDA_ARRAY_DESCRIPTOR {
            Width: self.width,
            Height: self.height,
            Format: self.format,
            NumChannels: self.channels,
        }
    }
}
