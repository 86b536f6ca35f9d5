//! Linear device memory.

use crate::client::{INVALID_VALUE, NULL, OUT_OF_MEMORY, context, holds_in};
use crate::{cu, ok};

fn allocate(bytes: usize) -> u64 {
    let mut address = 0u64;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    address
}

fn free_memory() -> usize {
    let (mut free, mut total) = (0usize, 0usize);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert!(free <= total);
    free
}

#[test]
fn memory_comes_and_goes_with_its_context() {
    holds_in("one-gpu", "memory::child_counts_bytes");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_counts_bytes() {
    let first = context();
    let all = free_memory();
    let address = allocate(1 << 20);
    assert_eq!(free_memory(), all - (1 << 20));
    ok!(cuMemFree_v2(address));
    assert_eq!(free_memory(), all);

    let mut huge = 0u64;
    assert_eq!(cu!(cuMemAlloc_v2(&mut huge, all + 1)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&mut huge, usize::MAX)), OUT_OF_MEMORY);
    let most = allocate(all);
    assert_eq!(cu!(cuMemAlloc_v2(&mut huge, 1usize)), OUT_OF_MEMORY);
    ok!(cuMemFree_v2(most));

    context();
    allocate(4096);
    ok!(cuMemAllocManaged(&mut huge, 4096usize, 1));
    let mut current = 0u64;
    ok!(cuCtxGetCurrent(&mut current));
    ok!(cuCtxDestroy_v2(current));
    ok!(cuCtxSetCurrent(first));
    assert_eq!(free_memory(), all, "a context takes its memory along");
}

#[test]
fn what_cannot_be_allocated_or_freed_is_an_invalid_value() {
    holds_in("one-gpu", "memory::child_is_refused");
}

// What is freed a second time may be another thread's by then.
#[test]
#[ignore = "run in a process of its own"]
fn child_is_refused() {
    let context = context();
    let mut address = 0u64;
    assert_eq!(cu!(cuMemAlloc_v2(&mut address, 0usize)), INVALID_VALUE);
    assert_eq!(cu!(cuMemAlloc_v2(NULL, 8usize)), INVALID_VALUE);
    assert_eq!(
        cu!(cuMemAllocManaged(&mut address, 8usize, 0)),
        INVALID_VALUE
    );
    ok!(cuMemFree_v2(NULL));
    assert_eq!(cu!(cuMemFree_v2(0x1234u64)), INVALID_VALUE);
    let good = allocate(1024);
    assert_eq!(
        cu!(cuMemFree_v2(good + 512)),
        INVALID_VALUE,
        "not its beginning"
    );
    ok!(cuMemFree_v2(good));
    assert_eq!(cu!(cuMemFree_v2(good)), INVALID_VALUE, "a second time");
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn pitched_rows_begin_aligned_and_ranges_are_known() {
    let context = context();
    let (mut address, mut pitch) = (0u64, 0usize);
    ok!(cuMemAllocPitch_v2(
        &mut address,
        &mut pitch,
        1000usize,
        10usize,
        16
    ));
    assert_eq!(pitch, 1024);
    assert_eq!(address % 512, 0);
    let (mut base, mut bytes) = (0u64, 0usize);
    ok!(cuMemGetAddressRange_v2(
        &mut base,
        &mut bytes,
        address + 5000
    ));
    assert_eq!((base, bytes), (address, 10240));
    ok!(cuMemFree_v2(address));
    // Another test's thread may have been given the address since.
    let code = cu!(cuMemGetAddressRange_v2(&mut base, &mut bytes, address));
    assert!(code != 0 || (base, bytes) != (address, 10240));
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn memsets_fill_what_they_are_told_and_no_more() {
    let context = context();
    let address = allocate(64);
    ok!(cuMemsetD8_v2(address, 0xaau8, 64usize));
    ok!(cuMemsetD16_v2(address + 4, 0x1122u16, 2usize));
    ok!(cuMemsetD32_v2(address + 8, 0x3344_5566u32, 1usize));
    ok!(cuMemsetD2D8_v2(address + 16, 16usize, 7u8, 2usize, 3usize));
    let mut bytes = [0u8; 64];
    ok!(cuMemcpyDtoH_v2(&mut bytes, address, 64usize));
    let mut want = [0xaa; 64];
    want[4..8].copy_from_slice(&[0x22, 0x11, 0x22, 0x11]);
    want[8..12].copy_from_slice(&0x3344_5566u32.to_le_bytes());
    for row in 0..3 {
        want[16 + row * 16..][..2].fill(7);
    }
    assert_eq!(bytes, want);
    assert_eq!(cu!(cuMemsetD8_v2(address, 0u8, 65usize)), INVALID_VALUE);
    assert_eq!(
        cu!(cuMemsetD32_v2(address + 2, 0u32, 1usize)),
        INVALID_VALUE
    );
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn many_small_allocations_are_cheap_and_distinct() {
    let context = context();
    let addresses: Vec<_> = (0..20_000).map(|_| allocate(512)).collect();
    let mut sorted = addresses.clone();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0] + 512 <= pair[1]));
    for address in addresses
        .iter()
        .step_by(2)
        .chain(addresses.iter().skip(1).step_by(2))
    {
        ok!(cuMemFree_v2(*address));
    }
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn memory_of_another_interface_is_mapped_and_costs_nothing() {
    holds_in("one-gpu", "memory::child_maps_what_another_interface_has");
}

// What is freed a second time may be another thread's by then.
#[test]
#[ignore = "run in a process of its own"]
fn child_maps_what_another_interface_has() {
    use std::io::{Read, Seek, Write};
    use std::os::fd::IntoRawFd;
    let context = context();
    let mut file = nameless_file();
    file.write_all(&[7; 8192])
        .expect("an unnamed file takes bytes");
    // The driver takes this descriptor over.
    let given = file
        .try_clone()
        .expect("descriptors are left")
        .into_raw_fd();
    let mut description = gpushare_abi::types::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
        type_: 1,
        handle: [given as u64, 0],
        size: 16384,
        flags: 0,
        reserved: [0; 16],
    };
    let (mut external, mut address) = (0u64, 0u64);
    let larger = cu!(cuImportExternalMemory(&mut external, &description));
    assert_eq!(larger, INVALID_VALUE, "more than the file has");
    description.size = 8192;
    ok!(cuImportExternalMemory(&mut external, &description));
    let mut part = gpushare_abi::types::CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
        offset: 100,
        size: 8000,
        flags: 0,
        reserved: [0; 16],
    };
    ok!(cuExternalMemoryGetMappedBuffer(
        &mut address,
        external,
        &part
    ));
    ok!(cuMemsetD8_v2(address, 9u8, 1usize));
    let mut byte = [0];
    file.seek(std::io::SeekFrom::Start(100))
        .expect("it is a file");
    file.read_exact(&mut byte).expect("it is a file");
    assert_eq!(byte, [9], "both see the same bytes");
    part.offset = 1000;
    assert_eq!(
        cu!(cuExternalMemoryGetMappedBuffer(
            &mut address,
            external,
            &part
        )),
        INVALID_VALUE
    );
    ok!(cuDestroyExternalMemory(external));
    ok!(cuMemFree_v2(address));
    assert_eq!(cu!(cuMemFree_v2(address)), INVALID_VALUE);
    ok!(cuCtxDestroy_v2(context));
}

/// A file without a name.
fn nameless_file() -> std::fs::File {
    rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::CLOEXEC)
        .expect("memory is left")
        .into()
}
