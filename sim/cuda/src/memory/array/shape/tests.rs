//! Array shapes, level by level.

use crate::memory::array::shape::*;

const U8: u32 = 0x01;
const FLOAT: u32 = 0x20;

fn shape(size: [usize; 3], format: u32, channels: u32, flags: u32) -> Result<Shape, CUerror> {
    Shape::of_3d(&CUDA_ARRAY3D_DESCRIPTOR {
        Width: size[0],
        Height: size[1],
        Depth: size[2],
        Format: format,
        NumChannels: channels,
        Flags: flags,
    })
}

fn bytes(size: [usize; 3], format: u32, channels: u32, flags: u32) -> usize {
    let shape = shape(size, format, channels, flags).expect("admitted");
    shape.bytes(1).expect("fits")
}

#[test]
fn rows_and_slices_have_no_gaps() {
    assert_eq!(bytes([1000, 0, 0], FLOAT, 4, 0), 16_000);
    assert_eq!(bytes([7, 5, 0], U8, 1, 0), 35);
    let cube = shape([4, 3, 2], FLOAT, 2, 0).unwrap().level(0).unwrap();
    assert_eq!((cube.row, cube.rows, cube.slices), (32, 3, 2));
}

#[test]
fn blocks_are_rounded_up() {
    assert_eq!(bytes([10, 10, 0], 0x91, 4, 0), 9 * 8);
    assert_eq!(bytes([10, 10, 0], 0x9d, 4, 0), 9 * 16);
}

#[test]
fn each_level_halves_every_side_but_layers() {
    let flat = shape([8, 2, 0], U8, 1, 0).unwrap();
    assert_eq!(flat.most_levels(), 4);
    let offsets: Vec<_> = (0..4).map(|l| flat.level(l).unwrap().offset).collect();
    assert_eq!(offsets, [0, 16, 20, 22]);
    assert_eq!(flat.bytes(4), Some(23));
    let layered = shape([8, 8, 3], U8, 1, CUDA_ARRAY3D_LAYERED).unwrap();
    assert_eq!(layered.bytes(2), Some(64 * 3 + 16 * 3));
    assert_eq!(layered.of_level(1).descriptor_3d().Depth, 3);
    assert_eq!(layered.of_level(1).descriptor_3d().Width, 4);
}

#[test]
fn what_the_driver_refuses_is_refused() {
    for (size, format, channels, flags) in [
        ([0, 4, 0], U8, 1, 0),
        ([4, 4, 0], U8, 3, 0),
        ([4, 4, 0], 0x7777, 1, 0),
        ([4, 0, 4], U8, 1, 0),
        ([4, 4, 0], U8, 1, CUDA_ARRAY3D_LAYERED),
        ([4, 4, 5], U8, 1, CUDA_ARRAY3D_CUBEMAP),
        ([4, 8, 6], U8, 1, CUDA_ARRAY3D_CUBEMAP),
        ([4, 4, 0], 0xc2, 1, 0),
        ([usize::MAX, usize::MAX, usize::MAX], FLOAT, 4, 0),
        ([131_073, 0, 0], U8, 1, 0),
    ] {
        assert_eq!(
            shape(size, format, channels, flags),
            Err(CUDA_ERROR_INVALID_VALUE),
            "{size:?} {format:#x} {channels} {flags}"
        );
    }
}

#[test]
fn sparse_arrays_have_no_memory_of_their_own() {
    assert_eq!(bytes([4096, 4096, 0], FLOAT, 4, CUDA_ARRAY3D_SPARSE), 0);
    assert_eq!(
        bytes([4096, 0, 0], FLOAT, 4, CUDA_ARRAY3D_DEFERRED_MAPPING),
        0
    );
}

#[test]
fn video_has_its_colours_below_in_planes() {
    let nv12 = shape([640, 480, 0], 0xb0, 3, 0).unwrap();
    assert_eq!(nv12.bytes(1), Some(640 * 480 * 3 / 2));
    let (luma, at) = nv12.plane(0).unwrap();
    assert_eq!((luma.bytes(1), at), (Some(640 * 480), 0));
    let (colour, at) = nv12.plane(1).unwrap();
    assert_eq!((colour.bytes(1), at), (Some(320 * 240 * 2), 640 * 480));
    assert_eq!(colour.descriptor().NumChannels, 2);
    assert_eq!(nv12.plane(2), None);
    assert_eq!(luma.plane(0), None);
    assert_eq!(bytes([640, 480, 0], 0xa3, 3, 0), 640 * 480 * 4);
    assert!(shape([641, 480, 0], 0xb0, 3, 0).is_err());
}
