//! How many bytes an array is, from what was asked for: exact, overflow-checked, no rounding of the driver's.
//!
//! A height or depth of 0 means the array has no such dimension. Layers and cube faces are counted in `Depth` and keep
//! their number from one mip level to the next; a sparse or deferred-mapping array has no memory of its own. A format
//! this table does not know, or a size past `u64`, is `None`: the driver decides, and the call is counted as unaccounted.

use gpushare_abi::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_CUBEMAP,
    CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
    CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE, channel_bytes,
};

/// Memory comes later, from `cuMemMapArrayAsync`.
const WITHOUT_MEMORY: u32 = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
const LAYERS: u32 = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;

/// The smallest unit a format stores: blocks of `side` × `side` texels, `bits` each.
struct Block {
    side: u64,
    bits: u64,
}

fn block(format: u32, channels: u32) -> Option<Block> {
    if let Some(bytes) = channel_bytes(format) {
        return Some(Block {
            side: 1,
            bits: 8 * u64::try_from(bytes).ok()? * u64::from(channels),
        });
    }
    let texel = |bits| Some(Block { side: 1, bits });
    match format {
        // BC1 and BC4 store sixteen texels in 8 bytes, the other block-compressed formats in 16.
        0x91 | 0x92 | 0x97 | 0x98 => Some(Block { side: 4, bits: 64 }),
        0x93..=0x96 | 0x99..=0x9e => Some(Block { side: 4, bits: 128 }),
        // Planar and packed video: bits of all planes for one texel.
        0xb0 => texel(12),                      // NV12
        0x9f | 0xa1 => texel(24),               // P010, P016
        0xa2 | 0xa5 => texel(16),               // NV16, YUY2
        0xa3 | 0xa4 | 0xa6 | 0xa7 => texel(32), // P210, P216, Y210, Y216
        0xa8 | 0xa9 | 0x50 => texel(32),        // AYUV, Y410, 10:10:10:2
        0xb1 => texel(64),                      // Y416
        0xb2 | 0xb4 => texel(24),               // 4:4:4, 8 bit
        0xb3 | 0xb5 => texel(48),               // 4:4:4, 10 and 16 bit
        _ => None,
    }
}

/// A description of an array, in any of its forms.
pub trait Shape: Copy {
    /// The same in the form that has everything.
    fn whole(self) -> CUDA_ARRAY3D_DESCRIPTOR;
}

impl Shape for CUDA_ARRAY3D_DESCRIPTOR {
    fn whole(self) -> CUDA_ARRAY3D_DESCRIPTOR {
        self
    }
}

impl Shape for CUDA_ARRAY_DESCRIPTOR {
    fn whole(self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.Width,
            Height: self.Height,
            Depth: 0,
            Format: self.Format,
            NumChannels: self.NumChannels,
            Flags: 0,
        }
    }
}

impl Shape for CUDA_ARRAY3D_DESCRIPTOR_v1 {
    fn whole(self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: self.Width as usize,
            Height: self.Height as usize,
            Depth: self.Depth as usize,
            Format: self.Format,
            NumChannels: self.NumChannels,
            Flags: self.Flags,
        }
    }
}

impl Shape for CUDA_ARRAY_DESCRIPTOR_v1 {
    fn whole(self) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY_DESCRIPTOR {
            Width: self.Width as usize,
            Height: self.Height as usize,
            Format: self.Format,
            NumChannels: self.NumChannels,
        }
        .whole()
    }
}

/// Bytes of an array of up to three dimensions, layered or a cubemap.
pub fn array(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    mipmapped(desc, 1)
}

/// Bytes of one element, which is one texel where texels are whole bytes.
pub fn element(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    let block = block(desc.Format, desc.NumChannels)?;
    Some(block.bits.div_ceil(8))
}

/// Bytes of all mip levels together. More levels than the largest side has halvings are clamped, as the driver does.
pub fn mipmapped(desc: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Option<u64> {
    if desc.Flags & WITHOUT_MEMORY != 0 {
        return Some(0);
    }
    let block = block(desc.Format, desc.NumChannels)?;
    let layered = desc.Flags & LAYERS != 0;
    let side = |value: usize| u64::try_from(value).unwrap_or(u64::MAX).max(1);
    let (width, height, depth) = (side(desc.Width), side(desc.Height), side(desc.Depth));
    let longest = width.max(height).max(if layered { 1 } else { depth });
    let mut total = 0_u64;
    for level in 0..levels.clamp(1, longest.ilog2() + 1) {
        let halved = |value: u64| (value >> level).max(1);
        let slices = if layered { depth } else { halved(depth) };
        let bits = halved(width)
            .div_ceil(block.side)
            .checked_mul(halved(height).div_ceil(block.side))?
            .checked_mul(slices)?
            .checked_mul(block.bits)?;
        total = total.checked_add(bits.div_ceil(8))?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const U8: u32 = 0x01;
    const HALF: u32 = 0x10;
    const FLOAT: u32 = 0x20;

    fn shape(size: [usize; 3], format: u32, channels: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
        let [width, height, depth] = size;
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: format,
            NumChannels: channels,
            Flags: flags,
        }
    }

    #[test]
    fn a_missing_height_or_depth_counts_as_one() {
        let line = CUDA_ARRAY_DESCRIPTOR {
            Width: 1000,
            Height: 0,
            Format: FLOAT,
            NumChannels: 4,
        };
        assert_eq!(array(&line.whole()), Some(16_000));
        assert_eq!(array(&shape([640, 480, 0], U8, 4, 0)), Some(640 * 480 * 4));
        assert_eq!(
            array(&shape([64, 64, 64], HALF, 2, 0)),
            Some(64 * 64 * 64 * 4)
        );
    }

    #[test]
    fn every_format_and_channel_count_is_exact() {
        for (format, bytes) in [
            (0x01, 1),
            (0x02, 2),
            (0x03, 4),
            (0x08, 1),
            (0x09, 2),
            (0x0a, 4),
            (0x10, 2),
            (0x20, 4),
        ] {
            for channels in [1, 2, 4] {
                let bytes = bytes * u64::from(channels);
                assert_eq!(
                    array(&shape([3, 5, 0], format, channels, 0)),
                    Some(15 * bytes),
                    "{format:#x}"
                );
            }
        }
        for (format, channels, bytes) in [(0xc2, 4, 4), (0xc5, 4, 8), (0xc8, 4, 4), (0xc9, 1, 2)] {
            assert_eq!(
                array(&shape([2, 1, 0], format, channels, 0)),
                Some(2 * bytes),
                "{format:#x}"
            );
        }
        assert_eq!(
            array(&shape([640, 480, 0], 0xb0, 3, 0)),
            Some(640 * 480 * 3 / 2)
        );
        assert_eq!(
            array(&shape([10, 10, 0], 0x91, 4, 0)),
            Some(9 * 8),
            "blocks are rounded up"
        );
        assert_eq!(array(&shape([10, 10, 0], 0x9d, 4, 0)), Some(9 * 16));
        assert_eq!(array(&shape([10, 10, 0], 0x7777, 4, 0)), None);
    }

    #[test]
    fn layers_and_cube_faces_are_multiplied_and_not_halved() {
        assert_eq!(
            array(&shape([128, 0, 7], U8, 1, CUDA_ARRAY3D_LAYERED)),
            Some(128 * 7)
        );
        assert_eq!(
            array(&shape([32, 32, 6], FLOAT, 1, CUDA_ARRAY3D_CUBEMAP)),
            Some(32 * 32 * 6 * 4)
        );
        let levels = mipmapped(&shape([4, 4, 6], U8, 1, CUDA_ARRAY3D_CUBEMAP), 3);
        assert_eq!(levels, Some((16 + 4 + 1) * 6));
    }

    #[test]
    fn mip_levels_halve_each_side_down_to_one() {
        assert_eq!(
            mipmapped(&shape([8, 2, 0], U8, 1, 0), 4),
            Some(16 + 4 + 2 + 1)
        );
        assert_eq!(mipmapped(&shape([8, 8, 8], U8, 1, 0), 2), Some(512 + 64));
        assert_eq!(
            mipmapped(&shape([8, 2, 0], U8, 1, 0), 99),
            mipmapped(&shape([8, 2, 0], U8, 1, 0), 4)
        );
        assert_eq!(mipmapped(&shape([8, 2, 0], U8, 1, 0), 0), Some(16));
    }

    #[test]
    fn sparse_arrays_hold_nothing_until_something_is_mapped() {
        for flag in [CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING] {
            assert_eq!(array(&shape([4096, 4096, 0], FLOAT, 4, flag)), Some(0));
        }
    }

    #[test]
    fn a_size_past_all_bounds_is_none_and_no_panic() {
        assert_eq!(
            array(&shape([usize::MAX, usize::MAX, usize::MAX], FLOAT, 4, 0)),
            None
        );
        assert_eq!(
            mipmapped(&shape([usize::MAX, 1, 0], U8, 1, 0), u32::MAX),
            None
        );
        assert_eq!(
            array(&shape([1, 1, 0], U8, u32::MAX, 0)),
            Some(u64::from(u32::MAX))
        );
    }
}
