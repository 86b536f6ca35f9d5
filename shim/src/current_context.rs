//! The current context and device of a thread.
//!
//! A process with one device needs no query. In others a thread is bound to its device until a hook records that its
//! context may have changed; then the driver is queried.

use gpushare_abi::types::{CU_STREAM_PER_THREAD, CUcontext, CUdevice, CUstream};

use crate::{
    driver_query::context,
    managed_process::{Bypass, Device, ManagedProcess, gate_of},
    thread::{Thread, Used},
};

/// Returns the ordinal of the calling thread's current device; `None` if no context is current.
pub fn current_ordinal(process: &ManagedProcess) -> Option<CUdevice> {
    if process.devices.len() == 1 {
        return Some(0);
    }
    context::device_of_current()
}

/// Returns the device of the calling thread's current context.
pub fn current_device(process: &ManagedProcess) -> Option<&Device> {
    process.device(current_ordinal(process)?)
}

/// Returns the calling thread's context and device: those it is bound to, or else those that the driver reports.
#[inline(always)]
pub fn of_thread(process: &ManagedProcess, thread: &Thread) -> Option<(usize, u8)> {
    match thread.bound() {
        Some(of_thread) => Some(of_thread),
        None => bind(process, thread).ok(),
    }
}

/// Queries the driver for the calling thread's context and device, and binds the thread to them.
#[cold]
#[inline(never)]
pub fn bind(process: &ManagedProcess, thread: &Thread) -> Result<(usize, u8), Bypass> {
    let context = context::current();
    if context == 0 {
        return Err(Bypass::NoContext);
    }
    let ordinal = match process.devices.len() {
        1 => 0,
        _ => context::device_of_current().ok_or(Bypass::NoContext)?,
    };
    let ordinal = u8::try_from(ordinal).map_err(|_| Bypass::UnknownDevice)?;
    let gate = gate_of(ordinal).ok_or(Bypass::UnknownDevice)?;
    thread.bind(gate, ordinal, context);
    Ok((context, ordinal))
}

/// Returns the context and device of a stream that has a handle of its own, as the driver reports them.
pub fn of_stream(process: &ManagedProcess, key: usize) -> Option<Used> {
    if key <= CU_STREAM_PER_THREAD as usize {
        return None;
    }
    let context = context::of_stream(key as CUstream)?;
    Some(Used {
        stream: key,
        context: context as usize,
        ordinal: u8::try_from(ordinal_of(process, context)?).ok()?,
    })
}

/// Returns the context and the device of a stream that has a handle of its own. One query suffices if it is in the
/// calling thread's context.
pub fn home_of_stream(
    process: &ManagedProcess,
    thread: &Thread,
    stream: usize,
) -> Option<(usize, CUdevice)> {
    if stream <= CU_STREAM_PER_THREAD as usize {
        return None;
    }
    let context = context::of_stream(stream as CUstream)?;
    let ordinal = match of_thread(process, thread) {
        Some((here, ordinal)) if here == context as usize => ordinal.into(),
        _ => ordinal_of(process, context)?,
    };
    Some((context as usize, ordinal))
}

/// Returns the context of a stream, for default streams the calling thread's; 0 if there is none.
pub fn context_of_stream(process: &ManagedProcess, thread: &Thread, stream: usize) -> usize {
    let home = home_of_stream(process, thread, stream).map(|(context, _)| context);
    home.or_else(|| of_thread(process, thread).map(|(context, _)| context))
        .unwrap_or(0)
}

/// Returns the device of a context, which need not be current.
pub fn ordinal_of(process: &ManagedProcess, ctx: CUcontext) -> Option<CUdevice> {
    if process.devices.len() == 1 {
        return Some(0);
    }
    let mut ordinal = None;
    context::with_current(ctx as usize, || ordinal = context::device_of_current());
    ordinal
}
