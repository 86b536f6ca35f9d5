//! Streams and events: order, waiting, time.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::client::{
    INVALID_HANDLE, INVALID_VALUE, NOT_READY, NULL, call_at, context, kernel, module, spin, symbol,
};
use crate::{cu, ok};

fn stream(flags: u32) -> u64 {
    let mut stream = 0u64;
    ok!(cuStreamCreate(&mut stream, flags));
    stream
}

fn event() -> u64 {
    let mut event = 0u64;
    ok!(cuEventCreate(&mut event, 0));
    event
}

fn zeroed_word() -> u64 {
    let mut word = 0u64;
    ok!(cuMemAlloc_v2(&mut word, 8usize));
    ok!(cuMemsetD8_v2(word, 0u8, 8usize));
    word
}

/// Lets go on who waits for the word to be 1.
fn release(word: u64) {
    let other = stream(1);
    ok!(cuStreamWriteValue32_v2(other, word, 1u32, 0));
    ok!(cuStreamDestroy_v2(other));
}

extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass a counter that lives until the stream is done.
    let counter = unsafe { &*counter.cast::<AtomicU32>() };
    counter.fetch_add(1, SeqCst);
}

fn launch_count(stream: u64, counter: &AtomicU32) {
    let function = count as extern "C" fn(*mut c_void);
    let arguments = [
        stream,
        function as usize as u64,
        std::ptr::from_ref(counter) as u64,
    ];
    assert_eq!(
        call_at(symbol("cuLaunchHostFunc").expect("exported"), &arguments),
        0
    );
}

#[test]
fn work_in_a_stream_is_done_in_order() {
    let context = context();
    let (stream, function) = (stream(1), kernel(module(), "gpushare_spin"));
    let (counter, word) = (AtomicU32::new(0), zeroed_word());
    ok!(cuStreamWaitValue32_v2(stream, word, 1u32, 0));
    assert_eq!(spin(function, 1_000_000, stream), 0);
    launch_count(stream, &counter);
    assert_eq!(cu!(cuStreamQuery(stream)), NOT_READY);
    assert_eq!(counter.load(SeqCst), 0);
    release(word);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(counter.load(SeqCst), 1);
    ok!(cuStreamQuery(stream));
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(cu!(cuStreamSynchronize(stream)), INVALID_HANDLE);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn events_measure_what_is_between_them() {
    let context = context();
    let (stream, function) = (stream(1), kernel(module(), "gpushare_spin"));
    let (start, end) = (event(), event());
    let mut milliseconds = 0f32;
    assert_eq!(
        cu!(cuEventElapsedTime(&mut milliseconds, start, end)),
        INVALID_HANDLE,
        "never recorded"
    );
    let word = zeroed_word();
    ok!(cuEventRecord(start, stream));
    ok!(cuStreamWaitValue32_v2(stream, word, 1u32, 0));
    assert_eq!(spin(function, 20_000_000, stream), 0);
    ok!(cuEventRecord(end, stream));
    assert_eq!(cu!(cuEventQuery(end)), NOT_READY);
    assert_eq!(
        cu!(cuEventElapsedTime(&mut milliseconds, start, end)),
        NOT_READY
    );
    release(word);
    ok!(cuEventSynchronize(end));
    ok!(cuEventElapsedTime(&mut milliseconds, start, end));
    assert!(milliseconds >= 20.0, "{milliseconds}");
    ok!(cuEventDestroy_v2(start));
    assert_eq!(cu!(cuEventRecord(start, stream)), INVALID_HANDLE);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_stream_waits_for_another_ones_event() {
    let context = context();
    let (one, other, function) = (stream(1), stream(1), kernel(module(), "gpushare_spin"));
    let (done, counter) = (event(), AtomicU32::new(0));
    let start = Instant::now();
    assert_eq!(spin(function, 20_000_000, one), 0);
    ok!(cuEventRecord(done, one));
    ok!(cuStreamWaitEvent(other, done, 0));
    launch_count(other, &counter);
    ok!(cuStreamSynchronize(other));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(counter.load(SeqCst), 1);
    assert_eq!(cu!(cuStreamWaitEvent(other, done, 8)), INVALID_VALUE);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn the_legacy_default_stream_waits_for_blocking_streams_only() {
    let context = context();
    let (blocking, free, function) = (stream(0), stream(1), kernel(module(), "gpushare_spin"));
    let start = Instant::now();
    assert_eq!(spin(function, 20_000_000, blocking), 0);
    let counter = AtomicU32::new(0);
    launch_count(NULL, &counter);
    ok!(cuStreamSynchronize(NULL));
    assert!(
        start.elapsed() >= Duration::from_millis(20),
        "it waited for the blocking stream"
    );
    let word = zeroed_word();
    ok!(cuStreamWaitValue32_v2(free, word, 1u32, 0));
    launch_count(NULL, &counter);
    ok!(cuStreamSynchronize(NULL));
    assert_eq!(counter.load(SeqCst), 2);
    assert_eq!(
        cu!(cuStreamQuery(free)),
        NOT_READY,
        "it did not wait for the other"
    );
    release(word);
    ok!(cuStreamSynchronize(free));
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_blocking_stream_waits_for_the_legacy_default_stream() {
    let context = context();
    let (blocking, function) = (stream(0), kernel(module(), "gpushare_spin"));
    let counter = AtomicU32::new(0);
    let start = Instant::now();
    assert_eq!(spin(function, 20_000_000, NULL), 0);
    launch_count(blocking, &counter);
    ok!(cuStreamSynchronize(blocking));
    assert!(start.elapsed() >= Duration::from_millis(20));
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn the_per_thread_forms_have_a_default_stream_of_their_own() {
    let context = context();
    let (mut legacy, mut own, mut special) = (0u64, 0u64, 0u64);
    ok!(cuStreamGetId(NULL, &mut legacy));
    ok!(cuStreamGetId_ptsz(NULL, &mut own));
    assert_ne!(legacy, own);
    ok!(cuStreamGetId(2u64, &mut special));
    assert_eq!(special, own);
    ok!(cuStreamGetId_ptsz(1u64, &mut special));
    assert_eq!(special, legacy);
    let elsewhere = std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(context));
        let mut other = 0u64;
        ok!(cuStreamGetId_ptsz(NULL, &mut other));
        other
    });
    assert_ne!(elsewhere.join().expect("the thread's asserts hold"), own);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn a_stream_waits_for_a_word_and_writes_one() {
    let context = context();
    let (waiting, writing) = (stream(1), stream(1));
    let word = zeroed_word();
    let counter = AtomicU32::new(0);
    ok!(cuStreamWaitValue32_v2(waiting, word, 5u32, 0));
    launch_count(waiting, &counter);
    assert_eq!(cu!(cuStreamQuery(waiting)), NOT_READY);
    ok!(cuStreamWriteValue32_v2(writing, word, 5u32, 0));
    ok!(cuStreamSynchronize(waiting));
    assert_eq!(counter.load(SeqCst), 1);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn what_a_destroyed_stream_still_had_is_done() {
    let context = context();
    let (stream, function) = (stream(1), kernel(module(), "gpushare_spin"));
    let counter = AtomicU32::new(0);
    assert_eq!(spin(function, 5_000_000, stream), 0);
    launch_count(stream, &counter);
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuCtxSynchronize());
    assert_eq!(counter.load(SeqCst), 1);
    ok!(cuCtxDestroy_v2(context));
}

#[test]
fn settings_that_there_are_not_are_invalid_values() {
    let context = context();
    let (stream, mut value) = (stream(0), [0u64; 32]);
    for attribute in [99u32, 0, 1000] {
        let got = cu!(cuStreamGetAttribute(stream, attribute, &mut value));
        let set = cu!(cuStreamSetAttribute(stream, attribute, &value));
        assert_eq!((got, set), (INVALID_VALUE, INVALID_VALUE), "{attribute}");
    }
    // Priority.
    ok!(cuStreamGetAttribute(stream, 8u32, &mut value));
    assert_eq!(cu!(cuCtxSetCacheConfig(9u32)), INVALID_VALUE);
    ok!(cuCtxSetCacheConfig(2u32));
    assert_eq!(cu!(cuCtxSetLimit(99u32, 1usize)), INVALID_VALUE);
    ok!(cuCtxDestroy_v2(context));
}
