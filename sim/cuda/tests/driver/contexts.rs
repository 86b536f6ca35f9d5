//! Contexts and devices.

use gpushare_testbed::{Testbed, Watched};

use crate::client::{
    CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE,
    NO_DEVICE, NOT_INITIALIZED, NULL, context, in_a_process, primary,
};
use crate::{cu, ok};

#[test]
fn a_thread_begins_without_a_context() {
    ok!(cuInit(0));
    std::thread::spawn(|| {
        let mut device = 7i32;
        assert_eq!(cu!(cuCtxGetDevice(&mut device)), INVALID_CONTEXT);
        let mut current = 1u64;
        ok!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, 0);
        assert_eq!(cu!(cuCtxPopCurrent_v2(NULL)), INVALID_CONTEXT);
        let mut address = 0u64;
        assert_eq!(cu!(cuMemAlloc_v2(&mut address, 1usize)), INVALID_CONTEXT);
    })
    .join()
    .expect("the thread's asserts hold");
}

#[test]
fn contexts_are_a_stack_in_each_thread() {
    let first = context();
    let second = context();
    let mut current = 0u64;
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, second);
    let mut popped = 0u64;
    ok!(cuCtxPopCurrent_v2(&mut popped));
    assert_eq!(popped, second);
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, first);
    ok!(cuCtxPushCurrent_v2(second));
    ok!(cuCtxSetCurrent(first));
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, first, "setting replaces the top");
    ok!(cuCtxDestroy_v2(first));
    ok!(cuCtxDestroy_v2(second));
    assert_eq!(cu!(cuCtxDestroy_v2(second)), INVALID_CONTEXT);
}

#[test]
fn a_context_destroyed_elsewhere_is_known_to_be() {
    let destroyed = context();
    std::thread::spawn(move || {
        ok!(cuCtxDestroy_v2(destroyed));
    })
    .join()
    .expect("the thread's asserts hold");
    let mut device = 0i32;
    assert_eq!(cu!(cuCtxGetDevice(&mut device)), CONTEXT_IS_DESTROYED);
    ok!(cuCtxPopCurrent_v2(NULL));
}

/// As a driver answers (580.159.04).
#[test]
fn the_handles_of_a_destroyed_context_are_told_from_those_that_never_were() {
    let destroyed = context();
    let (mut stream, mut event, mut status, mut graph) = (0u64, 0u64, 0u32, 0u64);
    ok!(cuStreamCreate(&mut stream, 1));
    ok!(cuEventCreate(&mut event, 0));
    ok!(cuCtxDestroy_v2(destroyed));
    for gone in [
        cu!(cuStreamIsCapturing(stream, &mut status)),
        cu!(cuStreamEndCapture(stream, &mut graph)),
        cu!(cuEventQuery(event)),
        cu!(cuEventDestroy_v2(event)),
    ] {
        assert_eq!(gone, CONTEXT_IS_DESTROYED);
    }
    assert_eq!(
        cu!(cuEventQuery(event)),
        INVALID_HANDLE,
        "destroyed all the same"
    );
    assert_eq!(cu!(cuStreamIsCapturing(64u64, &mut status)), INVALID_HANDLE);
    ok!(cuCtxPushCurrent_v2(destroyed));
    assert_eq!(cu!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);
    ok!(cuCtxPopCurrent_v2(NULL));
    ok!(cuCtxSetCurrent(destroyed));
    assert_eq!(cu!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);
    ok!(cuCtxPopCurrent_v2(NULL));
    assert_eq!(cu!(cuCtxPushCurrent_v2(64u64)), INVALID_CONTEXT);
}

#[test]
fn the_primary_context_is_one_for_all_who_retain_it() {
    let first = primary();
    assert_eq!(primary(), first);
    let (mut flags, mut active) = (1u32, 0i32);
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!(active, 1);
    assert_eq!(cu!(cuCtxDestroy_v2(first)), INVALID_CONTEXT);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    ok!(cuDevicePrimaryCtxRelease_v2(0));
}

#[test]
fn devices_have_names_ids_and_attributes() {
    ok!(cuInit(0));
    let mut count = 0i32;
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 2);
    let mut device = -1i32;
    ok!(cuDeviceGet(&mut device, 1));
    assert_eq!(cu!(cuDeviceGet(&mut device, 2)), INVALID_DEVICE);
    assert_eq!(cu!(cuDeviceGet(&mut device, -1)), INVALID_DEVICE);
    let mut name = [1u8; 64];
    ok!(cuDeviceGetName(&mut name, 64, 0));
    assert!(name.starts_with(b"Simulated GPU\0"));
    ok!(cuDeviceGetName(&mut name, 4, 0));
    assert!(name.starts_with(b"Sim\0"), "cut to the room there is");
    let (mut one, mut other) = ([0u8; 16], [0u8; 16]);
    ok!(cuDeviceGetUuid_v2(&mut one, 0));
    ok!(cuDeviceGetUuid_v2(&mut other, 1));
    assert_ne!(one, other);
    let mut pools = 0i32;
    ok!(cuDeviceGetAttribute(&mut pools, 115, 0));
    assert_eq!(pools, 1);
    assert_eq!(
        cu!(cuDeviceGetAttribute(&mut pools, 100_000, 0)),
        INVALID_VALUE
    );
    let mut bus = [0u8; 16];
    ok!(cuDeviceGetPCIBusId(&mut bus, 16, 1));
    ok!(cuDeviceGetByPCIBusId(&mut device, &bus));
    assert_eq!(device, 1);
}

#[test]
fn limits_keep_what_is_set() {
    let context = context();
    let mut stack = 0usize;
    ok!(cuCtxGetLimit(&mut stack, 0));
    assert_eq!(stack, 1024);
    ok!(cuCtxSetLimit(0, 4096usize));
    ok!(cuCtxGetLimit(&mut stack, 0));
    assert_eq!(stack, 4096);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_forked_child_has_no_driver() {
    let testbed = Testbed::new();
    Watched::spawn(&mut in_a_process(&testbed, "contexts::child_forks")).succeed();
}

#[test]
#[ignore = "run in a process of its own"]
#[allow(unsafe_code)]
fn child_forks() {
    context();
    // SAFETY: the child makes calls that answer without locks, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut address = 0u64;
        let answers = [
            cu!(cuInit(0)),
            cu!(cuMemAlloc_v2(&mut address, 1usize)),
            cu!(cuCtxSynchronize()),
        ];
        let good = answers.iter().all(|answer| *answer == NOT_INITIALIZED);
        // SAFETY: ends the child without running the test program's ends.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    ok!(cuCtxSynchronize());
}

#[test]
fn visible_devices_are_those_of_the_variable() {
    for (variable, want) in [("1", "1"), ("", "none"), ("0,1", "2"), ("1,1", "none")] {
        let testbed = Testbed::new();
        let mut command = in_a_process(&testbed, "contexts::child_counts_devices");
        command
            .env("CUDA_VISIBLE_DEVICES", variable)
            .env("WANT", want);
        Watched::spawn(&mut command).succeed();
    }
}

#[test]
#[ignore = "run in a process of its own"]
fn child_counts_devices() {
    let want = std::env::var("WANT").expect("the parent says");
    if want == "none" {
        assert_eq!(cu!(cuInit(0)), NO_DEVICE);
        return;
    }
    ok!(cuInit(0));
    let mut count = 0i32;
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count.to_string(), want);
}

#[test]
fn a_program_on_a_mig_instance_sees_that_alone() {
    let testbed = Testbed::with_scenario("mig");
    let mut command = in_a_process(&testbed, "contexts::child_on_mig");
    Watched::spawn(command.env("CUDA_VISIBLE_DEVICES", "0")).succeed();
}

#[test]
#[ignore = "run in a process of its own"]
fn child_on_mig() {
    ok!(cuInit(0));
    let mut count = 0i32;
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
    let mut bytes = 0usize;
    ok!(cuDeviceTotalMem_v2(&mut bytes, 0));
    assert_eq!(bytes, 20 << 30);
    let (mut gpu, mut own) = ([0u8; 16], [0u8; 16]);
    ok!(cuDeviceGetUuid(&mut gpu, 0));
    ok!(cuDeviceGetUuid_v2(&mut own, 0));
    assert_ne!(gpu, own);
}

#[test]
fn an_exit_handler_may_use_the_driver_and_has_the_threads_context() {
    let testbed = Testbed::new();
    Watched::spawn(&mut in_a_process(&testbed, "contexts::child_exits")).succeed();
}

#[test]
#[ignore = "run in a process of its own"]
#[allow(unsafe_code)]
fn child_exits() {
    extern "C" fn handler() {
        let (mut current, mut address) = (0u64, 0u64);
        ok!(cuCtxGetCurrent(&mut current));
        let answers = [
            cu!(cuMemAlloc_v2(&mut address, 1usize)),
            cu!(cuCtxSetCurrent(NULL)),
            cu!(cuCtxSetCurrent(current)),
            cu!(cuMemFree_v2(address)),
        ];
        let good = current != 0 && answers == [0; 4];
        // SAFETY: ends the process without the test program's ends.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    // SAFETY: registers a function without arguments.
    unsafe { libc::atexit(handler) };
    context();
    // SAFETY: ends the process; no other thread runs.
    unsafe { libc::exit(2) };
}
