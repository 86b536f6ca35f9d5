//! Modules, kernels and launches.

use std::time::{Duration, Instant};

use crate::client::{
    INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NULL, PTX, context, kernel, module,
    spin,
};
use crate::{cu, ok};

#[test]
fn a_spinning_kernel_takes_as_long_as_its_argument_says() {
    let context = context();
    let function = kernel(module(), "gpushare_spin");
    let start = Instant::now();
    for _ in 0..5 {
        assert_eq!(spin(function, 4_000_000, NULL), 0);
    }
    ok!(cuCtxSynchronize());
    assert!(start.elapsed() >= Duration::from_millis(20));
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn arguments_may_be_packed() {
    let context = context();
    let function = kernel(module(), "gpushare_spin");
    let (argument, bytes) = (5_000_000u64, 8usize);
    let extra = [
        1,
        std::ptr::from_ref(&argument) as u64,
        2,
        std::ptr::from_ref(&bytes) as u64,
        0,
    ];
    let start = Instant::now();
    ok!(cuLaunchKernel(
        function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, &extra
    ));
    ok!(cuStreamSynchronize(NULL));
    assert!(start.elapsed() >= Duration::from_millis(5));
    assert_eq!(
        cu!(cuLaunchKernel(
            function, 1, 1, 1, 1, 1, 1, 0, NULL, &extra, &extra
        )),
        INVALID_VALUE,
        "both at once"
    );
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_library_kernel_launches_in_the_place_of_a_function() {
    let context = context();
    let text = std::ffi::CString::new(PTX).expect("no NUL");
    let (mut library, mut found) = (0u64, 0u64);
    ok!(cuLibraryLoadData(
        &mut library,
        text.as_ptr(),
        NULL,
        NULL,
        0,
        NULL,
        NULL,
        0
    ));
    ok!(cuLibraryGetKernel(
        &mut found,
        library,
        c"spin_us_500".as_ptr()
    ));
    ok!(cuLaunchKernel(
        found, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL
    ));
    let mut config = [0u64; 7];
    // grid 1×1×1, block 1×1×1, no shared memory, default stream.
    config[..4].copy_from_slice(&[1 | 1 << 32, 1 | 1 << 32, 1 | 1 << 32, 0]);
    ok!(cuLaunchKernelEx(&config, found, NULL, NULL));
    ok!(cuCtxSynchronize());
    let mut count = 0u32;
    ok!(cuLibraryGetKernelCount(&mut count, library));
    assert_eq!(count, 3);
    let mut offset = 0usize;
    ok!(cuCtxPopCurrent_v2(&mut 0u64));
    let asked = cu!(cuKernelGetParamInfo(found, 0usize, &mut offset, NULL));
    assert_eq!(asked, INVALID_CONTEXT);
    ok!(cuCtxPushCurrent_v2(context));
    ok!(cuLibraryUnload(library));
    assert_eq!(
        cu!(cuLaunchKernel(found, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)),
        INVALID_HANDLE
    );
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn names_that_are_not_there_are_not_found() {
    let context = context();
    let module = module();
    let mut out = 0u64;
    assert_eq!(
        cu!(cuModuleGetFunction(&mut out, module, c"absent".as_ptr())),
        NOT_FOUND
    );
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(
            &mut out,
            NULL,
            module,
            c"absent".as_ptr()
        )),
        NOT_FOUND
    );
    assert_ne!(
        cu!(cuModuleLoadData(&mut out, c"this is no image".as_ptr())),
        0
    );
    assert_eq!(cu!(cuModuleLoadData(&mut out, NULL)), INVALID_VALUE);
    assert_eq!(cu!(cuModuleLoad(&mut out, c"/no/such/file".as_ptr())), 301);
    ok!(cuModuleUnload(module));
    assert_eq!(cu!(cuModuleUnload(module)), INVALID_HANDLE);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_modules_variable_has_memory() {
    let context = context();
    let module = module();
    let (mut address, mut bytes) = (0u64, 0usize);
    ok!(cuModuleGetGlobal_v2(
        &mut address,
        &mut bytes,
        module,
        c"counter".as_ptr()
    ));
    assert_eq!(bytes, 8);
    ok!(cuMemcpyHtoD_v2(address, &42u64, 8usize));
    let mut value = 0u64;
    ok!(cuMemcpyDtoH_v2(&mut value, address, 8usize));
    assert_eq!(value, 42);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn parameters_are_described_as_the_text_declares_them() {
    let context = context();
    let function = kernel(module(), "two");
    let (mut offset, mut bytes) = (0usize, 0usize);
    ok!(cuFuncGetParamInfo(
        function,
        1usize,
        &mut offset,
        &mut bytes
    ));
    assert_eq!((offset, bytes), (8, 24));
    assert_eq!(
        cu!(cuFuncGetParamInfo(
            function,
            2usize,
            &mut offset,
            &mut bytes
        )),
        INVALID_VALUE
    );
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn the_available_shared_memory_is_what_a_launch_may_request() {
    const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
    let context = context();
    let function = kernel(module(), "spin_us_500");
    let available = |blocks: i32| {
        let mut bytes = 0usize;
        ok!(cuOccupancyAvailableDynamicSMemPerBlock(
            &mut bytes, function, blocks, 32
        ));
        bytes
    };
    assert_eq!(available(1), 48 << 10);
    ok!(cuFuncSetAttribute(
        function,
        MAX_DYNAMIC_SHARED_SIZE_BYTES,
        200_000
    ));
    assert_eq!(available(1), 200_000);
    assert_eq!(available(2), (227 << 10) / 2);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn impossible_shapes_are_refused() {
    let context = context();
    let function = kernel(module(), "spin_us_500");
    assert_eq!(
        cu!(cuLaunchKernel(
            function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL
        )),
        INVALID_VALUE
    );
    assert_eq!(
        cu!(cuLaunchKernel(
            function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL
        )),
        INVALID_VALUE
    );
    assert_eq!(
        cu!(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)),
        INVALID_HANDLE
    );
    assert_eq!(
        cu!(cuLaunchCooperativeKernel(
            function,
            1 << 20,
            1,
            1,
            32,
            1,
            1,
            0,
            NULL,
            NULL
        )),
        720,
        "more blocks than fit at once"
    );
    // As a driver answers (580.159.04).
    let mut blocks = 0i32;
    assert_eq!(
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut blocks,
            function,
            0,
            0usize
        )),
        INVALID_HANDLE
    );
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn launches_before_cu_launch_kernel_still_work() {
    let context = context();
    let function = kernel(module(), "gpushare_spin");
    ok!(cuFuncSetBlockShape(function, 32, 1, 1));
    ok!(cuParamSetSize(function, 8));
    ok!(cuParamSetv(function, 0, &3_000_000u64, 8));
    let start = Instant::now();
    ok!(cuLaunchGrid(function, 2, 2));
    ok!(cuCtxSynchronize());
    assert!(start.elapsed() >= Duration::from_millis(3));
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn linked_text_is_a_module() {
    let context = context();
    let text = std::ffi::CString::new(PTX).expect("no NUL");
    let (mut state, mut image, mut bytes) = (0u64, 0u64, 0usize);
    ok!(cuLinkCreate_v2(0, NULL, NULL, &mut state));
    ok!(cuLinkAddData_v2(
        state,
        1,
        text.as_ptr(),
        PTX.len() + 1,
        NULL,
        0,
        NULL,
        NULL
    ));
    ok!(cuLinkComplete(state, &mut image, &mut bytes));
    let mut module = 0u64;
    ok!(cuModuleLoadData(&mut module, image));
    kernel(module, "two");
    ok!(cuLinkDestroy(state));
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn variables_start_with_what_their_declarations_say() {
    const VARIABLES: &str = "
        .version 7.0
        .target sm_52
        .address_size 64
        .visible .global .align 4 .u32 number = 7;
        .visible .global .f32 floats[2] = {1.5, 2.5};
        .visible .const .u32 constant = 9;
        .visible .global .u64 address = number;
        .visible .global .u64 generic_address = generic(number);
        .visible .global .u32 list[4] = {1, 2};
        .visible .entry reads_them() { ret; }";
    let context = context();
    let text = std::ffi::CString::new(VARIABLES).expect("no NUL");
    let mut module = 0u64;
    ok!(cuModuleLoadData(&mut module, text.as_ptr()));
    let place = |name: &std::ffi::CStr| {
        let (mut address, mut bytes) = (0u64, 0usize);
        ok!(cuModuleGetGlobal_v2(
            &mut address,
            &mut bytes,
            module,
            name.as_ptr()
        ));
        (address, bytes)
    };
    let content = |name: &std::ffi::CStr| {
        let (address, bytes) = place(name);
        let mut content = vec![0u8; bytes];
        ok!(cuMemcpyDtoH_v2(content.as_mut_ptr(), address, bytes));
        content
    };
    let floats = [1.5f32, 2.5].map(f32::to_le_bytes).concat();
    let (number, _) = place(c"number");
    for (name, expected) in [
        (c"address", number.to_le_bytes().to_vec()),
        (c"number", vec![7, 0, 0, 0]),
        (c"floats", floats),
        (c"constant", vec![9, 0, 0, 0]),
        (c"generic_address", number.to_le_bytes().to_vec()),
        (c"list", [1u32, 2, 0, 0].map(u32::to_le_bytes).concat()),
    ] {
        assert_eq!(content(name), expected, "{name:?}");
        assert_eq!(place(name).0 % 256, 0, "{name:?}");
    }
    ok!(cuCtxDestroy_v2(context));
}
