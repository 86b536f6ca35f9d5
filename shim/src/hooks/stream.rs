//! Hooks for streams and waits. Destroyed streams and capturing ones are not queried: events stand for their work. At
//! a wait of the application a holder of the lock may yield, because the application waited anyway.

use super::{launch::within_a_call, memory};
use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{CUevent, CUstream},
};
use shm_layout::clock;
use std::sync::atomic::Ordering::Relaxed;

use crate::{
    driver_query, eviction,
    hooks::Real,
    managed_process::{self, Device, ManagedProcess},
    sys::caller_state::Uncancelled,
    thread::{self, add, stream_key},
    turn,
};

/// Forwards a call that creates a stream.
pub fn created(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    stream: Out<CUstream>,
) -> CUresult {
    let process = real.process();
    memory::code::forward(&real)?;
    remember(process, stream.get().map(|stream| stream as usize));
    Ok(())
}

/// Forwards `cuEventCreate`.
pub fn event_created(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    event: Out<CUevent>,
) -> CUresult {
    let process = real.process();
    memory::code::forward(&real)?;
    remember(process, event.get().map(|event| event as usize));
    Ok(())
}

fn remember(process: Option<&ManagedProcess>, handle: Option<usize>) {
    if let (Some(process), Some(handle)) = (process, handle) {
        process.memory.handles.add(handle);
    }
}

/// Forwards `cuEventDestroy`. A destroyed event may have its last query under way, which the driver answers.
pub fn event_destroy(real: Real<'_, impl FnOnce() -> CUresult>, event: CUevent) -> CUresult {
    if let Some(process) = real.process() {
        process.memory.handles.remove(event as usize);
    }
    real.call()
}

/// Forwards `cuStreamDestroy`.
pub fn destroy(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    seal(stream as usize, true);
    if let Some(process) = managed_process::current() {
        process.memory.handles.remove(stream as usize);
        let graphs = process.memory.captures.forget(stream as usize);
        process.memory.graphs.lost(&graphs);
        memory::stream_gone(process, stream as usize);
    }
    let result = real.call();
    // The stream's capture may have been the last one.
    if let Some(process) = managed_process::current() {
        memory::swappable::free_late(process);
    }
    result
}

/// Forwards `cuStreamBeginCapture`, which creates a graph.
pub fn begin_capture(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    begin(real, stream, true)
}

/// Forwards the forms of `cuStreamBeginCapture` that capture into the application's graph, or into none.
pub fn begin_capture_into(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    begin(real, stream, false)
}

fn begin(
    real: Real<'_, impl FnOnce() -> CUresult>,
    stream: CUstream,
    creates_graph: bool,
) -> CUresult {
    let per_thread = real.per_thread();
    let key = stream_key(stream as usize, per_thread);
    // The event of a thread's default stream is in the legacy one, which is left alone once the capture counts.
    seal(key, false);
    driver_query::context::capture_begins();
    let begun = managed_process::current().map(|process| {
        let thread = real.thread();
        // Looked up now, because a capturing stream may refuse.
        let context = process.context_of_stream(thread, stream as usize);
        let begun = process.memory.captures.begin(key, thread.number(), context);
        eviction::forget_marks(process);
        (process, begun)
    });
    seal(key, false);
    let graphs = begun.as_ref().map(|(process, _)| &process.memory.graphs);
    let look = graphs
        .filter(|graphs| graphs.any())
        .map(|graphs| graphs.look());
    let answer = real.call();
    drop(look);
    let Some((process, begun)) = begun else {
        return answer;
    };
    if answer.is_err() {
        process.memory.captures.did_not_begin(begun);
        // Another thread may have put off a free because of it.
        memory::swappable::free_late(process);
    } else if creates_graph {
        let _uncancelled = Uncancelled::enter();
        // Asked now, because a capture that is broken does not name its graph.
        if let Some(graph) = driver_query::memory::capturing_graph(stream, per_thread) {
            process.memory.captures.began(&begun, graph as usize);
            // A plan at the handle of a new graph is that of a lost one.
            process.memory.graphs.lost(&[graph as usize]);
        }
    }
    answer
}

/// Forwards `cuStreamEndCapture`, which also ends an invalid capture, and `cuStreamEndCaptureToCig`.
pub fn end_capture(real: Real<'_, impl FnOnce() -> CUresult>, stream: CUstream) -> CUresult {
    let key = stream_key(stream as usize, real.per_thread());
    let answer = real.call();
    let graphs = ended(key);
    if let Some(process) = managed_process::current() {
        if answer.is_err() {
            process.memory.graphs.lost(&graphs);
        }
        memory::swappable::free_late(process);
    }
    answer
}

/// Removes the capture of a stream if the driver reports that it has ended. Returns the graph that the capture has created.
fn ended(key: usize) -> Vec<usize> {
    let process = managed_process::current();
    match process.filter(|_| !driver_query::context::captures_itself(key)) {
        Some(process) => {
            let thread = thread::attached().number();
            process.memory.captures.end(key, thread)
        }
        None => Vec::new(),
    }
}

/// Stops querying a stream until the next submission to it. Waits for a drain that queries it now.
fn seal(key: usize, is_destroyed: bool) {
    if let Some(process) = managed_process::current() {
        if process.memory.pending_frees.any() {
            process.memory.pending_frees.seal(key, is_destroyed);
        }
        turn::seal_streams(process, None, |used| used.stream == key, None);
    }
}

/// Forwards a wait of the application for a context, a stream or an event.
pub fn wait(real: Real<'_, impl FnOnce() -> CUresult>) -> CUresult {
    let (held, began) = (begin_wait(), clock::now());
    real.call()?;
    synchronised(held, began);
    Ok(())
}

/// Returns the time at which a wait for the device begins, or 0 if no policy needs it.
pub fn begin_wait() -> u64 {
    let Some(process) = managed_process::current() else {
        return 0;
    };
    let mut is_held = false;
    for device in process
        .devices
        .iter()
        .filter(|device| device.turn.is_held())
    {
        is_held = true;
        device.turn.needs_the_device(process, device);
    }
    if !is_held {
        return 0;
    }
    // It would count as done at the end of the wait.
    turn::give_back_allotment(process);
    clock::now()
}

/// A copy to the host's memory that returns sooner has not waited for the device.
const LEAST_WAIT_NS: u64 = 50_000;

/// Returns the time at which an asynchronous copy to the host's memory begins, or 0 if no policy needs it.
pub fn begin_copy_to_host() -> u64 {
    let Some(process) = managed_process::current() else {
        return 0;
    };
    let mut held = process.devices.iter();
    match held.find(|device| device.turn.is_held()) {
        None => 0,
        // The last one waited, so this one probably will.
        Some(device) if device.turn.copies_wait.load(Relaxed) => within_a_call(begin_wait),
        Some(_) => clock::now(),
    }
}

/// Yields the lock after an asynchronous copy to the host's memory, which began at this time, if the driver has waited for it.
pub fn copied_to_host(began: u64) {
    let has_waited = clock::now().saturating_sub(began) >= LEAST_WAIT_NS;
    within_a_call(|| {
        let Some(process) = managed_process::current() else {
            return;
        };
        if let Some(device) = process.current_device() {
            device.turn.copies_wait.store(has_waited, Relaxed);
            if has_waited {
                turn::give_back_allotment(process);
                device.turn.at_release_point(process, device, began);
            }
        }
    });
}

/// Counts a wait of the application, which began at this time and ends a step of it. `held` is the result of [`begin_wait`].
fn synchronised(held: u64, began: u64) {
    let Some(process) = managed_process::current() else {
        return;
    };
    let Some(device) = process.current_device() else {
        return;
    };
    add(&thread::attached().tally(device.ordinal).syncs, 1);
    end_step(process, device, began);
    release_point(held);
}

/// Counts a step of the application, which ends with a wait for the device that began at this time.
pub fn end_step(process: &ManagedProcess, device: &Device, began: u64) {
    let took = clock::now().saturating_sub(began);
    process.registration.count_step(device.entry, took);
}

/// Yields the lock at a synchronisation, which began at this time, if another process waits.
pub fn release_point(began: u64) {
    let Some(process) = managed_process::current().filter(|_| began != 0) else {
        return;
    };
    if let Some(device) = process.current_device() {
        device.turn.at_release_point(process, device, began);
    }
}
