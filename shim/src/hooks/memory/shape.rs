//! The size of an array in bytes, from its description: exact and overflow-checked, without the driver's rounding.
//!
//! A height or depth of 0 means the array has no such dimension. Layers and cube faces are counted in `Depth`, and
//! each mip level has the same number of them. A sparse or deferred-mapping array has no memory of its own. For an
//! unknown format, or a size past `u64`, the size is `None`: the driver decides, and the call is counted as
//! unaccounted.

use gpushare_abi::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_CUBEMAP,
    CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1,
    CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE, channel_bytes,
};

/// Arrays with these flags get memory later, from `cuMemMapArrayAsync`.
const WITHOUT_MEMORY: u32 = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
const LAYERS: u32 = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP;

/// The smallest unit that a format stores: a block of `side` × `side` texels with `bits` bits.
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
        // Planar and packed video: the bits of all planes per texel.
        0xb0 | 0x53 | 0x59 => texel(12), // NV12, 4:2:0 in planes
        0x51 | 0x55 | 0x5b => texel(16), // 4:2:2, 8 bit
        0x54 | 0x5a | 0x57 | 0x5d => texel(24), // 4:2:0, 16 bit; 4:4:4, 8 bit
        0x56 | 0x5c => texel(32),        // 4:2:2, 16 bit
        0x58 | 0x5e => texel(48),        // 4:4:4, 16 bit
        0x9f | 0xa1 => texel(24),        // P010, P016
        0xa2 | 0xa5 => texel(16),        // NV16, YUY2
        0xa3 | 0xa4 | 0xa6 | 0xa7 => texel(32), // P210, P216, Y210, Y216
        0xa8 | 0xa9 | 0x50 => texel(32), // AYUV, Y410, 10:10:10:2
        0xb1 => texel(64),               // Y416
        0xb2 | 0xb4 => texel(24),        // 4:4:4, 8 bit
        0xb3 | 0xb5 => texel(48),        // 4:4:4, 10 and 16 bit
        _ => None,
    }
}

/// A description of an array, in any of its forms.
pub trait Shape: Copy {
    /// Returns the description in the form with all fields.
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

/// Returns the bytes of an array of up to three dimensions, layered or a cubemap.
pub fn array(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    mipmapped(desc, 1)
}

/// Returns the bytes of one element, which is one texel if a texel is a whole number of bytes.
pub fn element(desc: &CUDA_ARRAY3D_DESCRIPTOR) -> Option<u64> {
    let block = block(desc.Format, desc.NumChannels)?;
    Some(block.bits.div_ceil(8))
}

/// Returns the bytes of all mip levels together. The number of levels is limited to the halvings of the largest side,
/// as by the driver.
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

    /// The number of texels that share a sample across and down, and the bits of a sample.
    type Plane = (usize, usize, u64);

    /// Formats described as planes. A compressed block is a sample that 4 by 4 texels share.
    const STORED: &[(u32, u32, &[Plane])] = &[
        (0x01, 1, &[(1, 1, 8)]),
        (0x02, 2, &[(1, 1, 16), (1, 1, 16)]),
        (0x03, 4, &[(1, 1, 128)]),
        (0x08, 2, &[(1, 1, 16)]),
        (0x09, 4, &[(1, 1, 64)]),
        (0x0a, 1, &[(1, 1, 32)]),
        (0x10, 4, &[(1, 1, 64)]),
        (0x20, 2, &[(1, 1, 64)]),
        (0x50, 4, &[(1, 1, 32)]),
        (0x91, 4, &[(4, 4, 64)]),
        (0x93, 4, &[(4, 4, 128)]),
        (0x96, 4, &[(4, 4, 128)]),
        (0x98, 1, &[(4, 4, 64)]),
        (0x99, 2, &[(4, 4, 128)]),
        (0x9c, 3, &[(4, 4, 128)]),
        (0x9e, 4, &[(4, 4, 128)]),
        (0x9f, 3, &[(1, 1, 16), (2, 2, 32)]),
        (0xa1, 3, &[(1, 1, 16), (2, 2, 16), (2, 2, 16)]),
        (0xa2, 3, &[(1, 1, 8), (2, 1, 16)]),
        (0xa4, 3, &[(1, 1, 16), (2, 1, 32)]),
        (0xa5, 3, &[(1, 1, 8), (2, 1, 8), (2, 1, 8)]),
        (0xa7, 3, &[(1, 1, 16), (2, 1, 32)]),
        (0xa8, 4, &[(1, 1, 32)]),
        (0xa9, 4, &[(1, 1, 10), (1, 1, 20), (1, 1, 2)]),
        (0xb0, 3, &[(1, 1, 8), (2, 2, 16)]),
        (0xb1, 4, &[(1, 1, 64)]),
        (0xb2, 3, &[(1, 1, 8), (1, 1, 8), (1, 1, 8)]),
        (0xb5, 3, &[(1, 1, 16), (1, 1, 32)]),
        (0xc1, 2, &[(1, 1, 16)]),
        (0xc5, 4, &[(1, 1, 64)]),
        (0xc6, 1, &[(1, 1, 8)]),
        (0xcb, 4, &[(1, 1, 64)]),
        (0x51, 3, &[(1, 1, 8), (2, 1, 16)]),
        (0x54, 3, &[(1, 1, 16), (2, 2, 32)]),
        (0x5c, 3, &[(1, 1, 16), (2, 1, 16), (2, 1, 16)]),
        (0x5d, 3, &[(1, 1, 8), (1, 1, 8), (1, 1, 8)]),
    ];

    /// Computes the size by counting sample by sample.
    fn counted(size: [usize; 3], planes: &[Plane], flags: u32, levels: u32) -> u64 {
        let [mut width, mut height, mut depth] = size.map(|side| side.max(1));
        let layered = flags & LAYERS != 0;
        let mut bits = 0;
        for level in 0..levels.max(1) {
            for _ in 0..depth {
                for (across, down, sample) in planes {
                    for _ in (0..height).step_by(*down) {
                        bits += (0..width).step_by(*across).count() as u64 * sample;
                    }
                }
            }
            let smallest = width == 1 && height == 1 && (layered || depth == 1);
            if smallest || level + 1 == levels.max(1) {
                break;
            }
            (width, height) = ((width / 2).max(1), (height / 2).max(1));
            depth = if layered { depth } else { (depth / 2).max(1) };
        }
        bits / 8
    }

    proptest::proptest! {
        #[test]
        fn any_shape_is_what_counting_its_samples_gives(
            stored in proptest::sample::select(STORED),
            size in [1..70_usize, 0..40_usize, 0..9_usize],
            flags in proptest::sample::select(&[0, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP, 2][..]),
            levels in 0..9_u32,
        ) {
            let (format, channels, planes) = stored;
            // Samples that texels share are complete in every level only if the size is a multiple of four; other
            // sizes have one level.
            let shares = planes.iter().any(|(across, down, _)| across * down > 1);
            let is_block = planes.iter().any(|(across, ..)| *across == 4);
            let (size, levels) = if shares && !is_block {
                ([size[0] * 2, (size[1] * 2).max(2), size[2]], 1)
            } else {
                (size, levels)
            };
            let desc = shape(size, format, channels, flags);
            proptest::prop_assert_eq!(mipmapped(&desc, levels), Some(counted(size, planes, flags, levels)));
            if levels <= 1 {
                proptest::prop_assert_eq!(array(&desc), Some(counted(size, planes, flags, 1)));
            }
        }

        #[test]
        fn no_shape_at_all_panics(width: usize, height: usize, depth: usize, format in 0..0x100_u32, channels: u32, flags: u32, levels: u32) {
            let desc = shape([width, height, depth], format, channels, flags);
            let all = mipmapped(&desc, levels);
            proptest::prop_assert!(all.is_none() || array(&desc) <= all);
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
