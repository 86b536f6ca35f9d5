//! Many threads at once, each doing a bit of everything.

use crate::client::{NOT_READY, NULL, kernel, module, primary, spin};
use crate::{cu, ok};

const THREADS: u64 = 6;
const ROUNDS: u64 = 60;

/// A step of xorshift: which way a thread goes is the same in each run.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn one_round(random: &mut u64, function: u64) {
    let mut stream = 0u64;
    let flags = (next(random) % 2) as u32;
    ok!(cuStreamCreate(&mut stream, flags));
    let (mut event, mut address, mut pooled) = (0u64, 0u64, 0u64);
    ok!(cuEventCreate(&mut event, 0));
    let bytes = 1024 + (next(random) % 100_000) as usize;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    ok!(cuMemAllocAsync(&mut pooled, bytes, stream));
    let fill = next(random) as u8;
    ok!(cuMemsetD8Async(pooled, fill, bytes, stream));
    ok!(cuMemcpyDtoDAsync_v2(address, pooled, bytes, stream));
    ok!(cuMemFreeAsync(pooled, stream));
    assert_eq!(spin(function, next(random) % 60_000, stream), 0);
    ok!(cuEventRecord(event, stream));
    match next(random) % 5 {
        0 => ok!(cuStreamSynchronize(stream)),
        1 => ok!(cuCtxSynchronize()),
        2 => ok!(cuEventSynchronize(event)),
        3 => ok!(cuStreamWaitEvent(NULL, event, 0)),
        _ => assert!(matches!(cu!(cuStreamQuery(stream)), 0 | NOT_READY)),
    }
    let mut host = vec![!fill; bytes];
    ok!(cuMemcpyDtoHAsync_v2(
        host.as_mut_ptr(),
        address,
        bytes,
        stream
    ));
    assert!(host.iter().all(|byte| *byte == fill));
    if next(random).is_multiple_of(2) {
        ok!(cuStreamDestroy_v2(stream));
        ok!(cuMemFree_v2(address));
    } else {
        ok!(cuMemFree_v2(address));
        ok!(cuStreamDestroy_v2(stream));
    }
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn threads_do_as_they_like_at_once() {
    let context = primary();
    let function = kernel(module(), "gpushare_spin");
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(context));
                let mut random = 0x9e37_79b9_7f4a_7c15 ^ thread;
                for _ in 0..ROUNDS {
                    one_round(&mut random, function);
                }
            });
        }
    });
    ok!(cuCtxSynchronize());
    ok!(cuDevicePrimaryCtxRelease_v2(0));
}
