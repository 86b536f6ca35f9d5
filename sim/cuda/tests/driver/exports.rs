//! The set of exports, and looking functions up.

use std::ffi::{CString, c_void};

use crate::client::{
    INVALID_VALUE, NO_DEVICE, NOT_FOUND, NULL, call_at, holds_in, primary, symbol,
};
use crate::{cu, ok};

/// `cuGetProcAddress_v2`: (result, address, status).
fn look_up(name: &str, version: i32, flags: u64) -> (u32, u64, u32) {
    let name = CString::new(name).expect("no NUL");
    let (mut address, mut status) = (1u64, 99u32);
    let result = cu!(cuGetProcAddress_v2(
        name.as_ptr(),
        &mut address,
        version,
        flags,
        &mut status
    ));
    (result, address, status)
}

fn address(name: &str) -> u64 {
    symbol(name).expect(name) as u64
}

/// Each look-up (name, version, flags) succeeds with the address of this export.
fn give<const N: usize>(look_ups: [(&str, i32, u64, &str); N]) {
    for (name, version, flags, export) in look_ups {
        let found = look_up(name, version, flags);
        assert_eq!(found, (0, address(export), 0), "{name} {version} {flags}");
    }
}

#[test]
fn everything_a_cuda_12_9_client_links_to_is_exported() {
    let names = include_str!("../golden/cuda-12090.txt").split_whitespace();
    let missing: Vec<_> = names.filter(|name| symbol(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_came_after_the_advertised_version_is_not_exported() {
    for newer in [
        "cuDevSmResourceSplit",
        "cuGraphGetId",
        "cuLaunchHostFunc_v2",
        "cuMulticastBindMem_v2",
    ] {
        assert_eq!(symbol(newer), None, "{newer}");
    }
}

#[test]
fn a_look_up_gives_the_form_that_the_version_had() {
    give([
        ("cuDeviceGetUuid", 9020, 0, "cuDeviceGetUuid"),
        ("cuDeviceGetUuid", 12000, 0, "cuDeviceGetUuid_v2"),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, 1, "cuMemAlloc_v2"),
        ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ]);
}

#[test]
fn the_flag_for_per_thread_streams_gives_the_other_form_where_there_is_one() {
    give([
        ("cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 7000, 0, "cuLaunchKernel"),
        ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemAlloc", 12000, 2, "cuMemAlloc_v2"),
    ]);
}

#[test]
fn an_unknown_name_or_a_too_old_version_says_which() {
    const UNKNOWN: u32 = 1;
    const TOO_OLD: u32 = 2;
    assert_eq!(look_up("cuMakeCoffee", 13000, 0), (0, 0, UNKNOWN));
    assert_eq!(look_up("", 13000, 0), (0, 0, UNKNOWN));
    assert_eq!(look_up("cuMemAllocAsync", 11010, 0), (0, 0, TOO_OLD));
    assert_eq!(look_up("cuInit", 13000, 7).0, INVALID_VALUE);
    assert_eq!(
        look_up("cuInit", 13010, 0).0,
        INVALID_VALUE,
        "newer than the driver"
    );
    let mut address = 1u64;
    assert_eq!(
        cu!(cuGetProcAddress(
            c"cuMakeCoffee".as_ptr(),
            &mut address,
            13000,
            0
        )),
        NOT_FOUND
    );
    assert_eq!(
        cu!(cuGetProcAddress(NULL, &mut address, 13000, 0)),
        INVALID_VALUE
    );
    assert_eq!(
        cu!(cuGetProcAddress_v2(
            c"cuInit".as_ptr(),
            NULL,
            13000,
            0,
            NULL
        )),
        INVALID_VALUE
    );
}

#[test]
fn a_function_that_was_looked_up_works() {
    primary();
    let (_, address, _) = look_up("cuDriverGetVersion", 2020, 0);
    let mut version = 0i32;
    assert_eq!(
        call_at(
            address as *const c_void,
            &[std::ptr::from_mut(&mut version) as u64]
        ),
        0
    );
    assert_eq!(version, 13000);
}

#[test]
fn errors_have_names_and_descriptions() {
    let mut text: *const std::ffi::c_char = std::ptr::null();
    ok!(cuGetErrorName(2, &mut text));
    #[allow(unsafe_code)]
    // SAFETY: the driver's names are static strings.
    let name = unsafe { std::ffi::CStr::from_ptr(text) };
    assert_eq!(name, c"CUDA_ERROR_OUT_OF_MEMORY");
    ok!(cuGetErrorString(0, &mut text));
    assert_eq!(cu!(cuGetErrorName(12345, &mut text)), INVALID_VALUE);
    assert!(text.is_null());
}

#[test]
fn nvidias_private_tables_are_not_answered() {
    let mut table = 1u64;
    assert_ne!(cu!(cuGetExportTable(&mut table, &[0u8; 16])), 0);
    assert_eq!(table, 0);
}

#[test]
fn a_driver_lacks_the_symbols_that_its_scenario_lacks() {
    holds_in("missing-symbols", "exports::child_lacks_a_symbol");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_lacks_a_symbol() {
    assert_eq!(look_up("cuMemAllocAsync", 12000, 0), (0, 0, 1));
    assert_ne!(look_up("cuMemAlloc", 12000, 0).1, 0);
}

#[test]
fn a_driver_without_devices_says_so() {
    holds_in("no-gpu", "exports::child_has_no_device");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_has_no_device() {
    assert_eq!(cu!(cuInit(0)), NO_DEVICE);
}
