//! Copies of one to three dimensions really move bytes.

use gpushare_abi::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D};

use crate::client::{INVALID_VALUE, NULL, context};
use crate::{cu, ok};

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 7 % 251) as u8).collect()
}

fn upload(bytes: &[u8]) -> u64 {
    let mut address = 0u64;
    ok!(cuMemAlloc_v2(&mut address, bytes.len()));
    ok!(cuMemcpyHtoD_v2(address, bytes.as_ptr(), bytes.len()));
    address
}

fn download(address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; count];
    ok!(cuMemcpyDtoH_v2(bytes.as_mut_ptr(), address, count));
    bytes
}

#[test]
fn bytes_go_to_the_device_between_devices_and_back() {
    let context = context();
    let bytes = pattern(10_000);
    let one = upload(&bytes);
    let other = upload(&vec![0; 10_000]);
    ok!(cuMemcpyDtoD_v2(other + 100, one + 50, 900usize));
    assert_eq!(download(other + 100, 900), bytes[50..950]);
    ok!(cuMemcpy(other, one, 10_000usize));
    assert_eq!(download(other, 10_000), bytes);
    let mut host = vec![0u8; 10_000];
    ok!(cuMemcpyAsync(host.as_mut_ptr(), one, 10_000usize, NULL));
    assert_eq!(
        host, bytes,
        "a copy to pageable memory is done when the call returns"
    );
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_source_that_is_not_pinned_may_change_after_an_asynchronous_copy() {
    let context = context();
    let mut stream = 0u64;
    ok!(cuStreamCreate(&mut stream, 1));
    let function = crate::client::kernel(crate::client::module(), "gpushare_spin");
    let address = upload(&[0; 64]);
    assert_eq!(crate::client::spin(function, 20_000_000, stream), 0);
    let mut source = [5u8; 64];
    ok!(cuMemcpyHtoDAsync_v2(address, &source, 64usize, stream));
    source.fill(9);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(address, 64), [5; 64]);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn copies_out_of_bounds_are_refused() {
    let context = context();
    let address = upload(&pattern(512));
    let host = [0u8; 1024];
    assert_eq!(
        cu!(cuMemcpyHtoD_v2(address, &host, 513usize)),
        INVALID_VALUE
    );
    assert_eq!(cu!(cuMemcpyHtoD_v2(address, NULL, 1usize)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoH_v2(NULL, address, 1usize)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyDtoD_v2(address, 64u64, 1usize)), INVALID_VALUE);
    ok!(cuMemcpyHtoD_v2(address, &host, 0usize));
    ok!(cuCtxDestroy_v2(context));
}

#[allow(unsafe_code)]
fn zeroed<T>() -> T {
    // SAFETY: used for plain C structs only, for which zeros are a value.
    unsafe { std::mem::zeroed() }
}

#[test]
fn a_rectangle_moves_between_pitched_memories() {
    let context = context();
    let bytes = pattern(16 * 8);
    let (mut address, mut pitch) = (0u64, 0usize);
    ok!(cuMemAllocPitch_v2(
        &mut address,
        &mut pitch,
        16usize,
        8usize,
        4
    ));
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: 1,
        srcHost: bytes.as_ptr().cast(),
        srcPitch: 16,
        dstMemoryType: 2,
        dstDevice: address,
        dstPitch: pitch,
        WidthInBytes: 16,
        Height: 8,
        ..zeroed()
    };
    ok!(cuMemcpy2D_v2(&copy));
    assert_eq!(download(address + 3 * pitch as u64, 16), bytes[48..64]);
    let mut back = [0u8; 6 * 4];
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 5,
        srcY: 2,
        srcMemoryType: 2,
        srcDevice: address,
        srcPitch: pitch,
        dstMemoryType: 1,
        dstHost: back.as_mut_ptr().cast(),
        dstPitch: 6,
        WidthInBytes: 6,
        Height: 4,
        ..zeroed()
    };
    ok!(cuMemcpy2DAsync_v2(&copy, NULL));
    for row in 0..4 {
        assert_eq!(back[row * 6..][..6], bytes[(row + 2) * 16 + 5..][..6]);
    }
    let wrong = CUDA_MEMCPY2D {
        srcPitch: 5,
        ..copy
    };
    assert_eq!(cu!(cuMemcpy2D_v2(&wrong)), INVALID_VALUE);
    assert_eq!(cu!(cuMemcpy2D_v2(NULL)), INVALID_VALUE);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_box_moves_through_an_array() {
    let context = context();
    // 8 × 4 × 3 elements of four bytes.
    let shape = gpushare_abi::types::CUDA_ARRAY3D_DESCRIPTOR {
        Width: 8,
        Height: 4,
        Depth: 3,
        Format: 0x20,
        NumChannels: 1,
        Flags: 0,
    };
    let mut array = 0u64;
    ok!(cuArray3DCreate_v2(&mut array, &shape));
    let bytes = pattern(8 * 4 * 4 * 3);
    let up = CUDA_MEMCPY3D {
        srcMemoryType: 1,
        srcHost: bytes.as_ptr().cast(),
        srcPitch: 32,
        srcHeight: 4,
        dstMemoryType: 3,
        dstArray: array as _,
        WidthInBytes: 32,
        Height: 4,
        Depth: 3,
        ..zeroed()
    };
    ok!(cuMemcpy3D_v2(&up));
    let mut back = [0u8; 8 * 2 * 2];
    let down = CUDA_MEMCPY3D {
        srcXInBytes: 4,
        srcY: 1,
        srcZ: 1,
        srcMemoryType: 3,
        srcArray: array as _,
        dstMemoryType: 1,
        dstHost: back.as_mut_ptr().cast(),
        dstPitch: 8,
        dstHeight: 2,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        ..zeroed()
    };
    ok!(cuMemcpy3D_v2(&down));
    for z in 0..2 {
        for y in 0..2 {
            let from = (z + 1) * 128 + (y + 1) * 32 + 4;
            assert_eq!(back[z * 16 + y * 8..][..8], bytes[from..][..8]);
        }
    }
    assert_eq!(
        cu!(cuMemcpy3D_v2(&CUDA_MEMCPY3D { srcZ: 2, ..down })),
        INVALID_VALUE
    );
    ok!(cuArrayDestroy(array));
    assert_ne!(cu!(cuMemcpy3D_v2(&down)), 0);
    ok!(cuCtxDestroy_v2(context));
}
