//! Admission: the slow path of a submission, which finds and removes the cause why the fast path could not be used.
//!
//! The thread may be new, its context may have changed, its stream may be unknown, or the gate may be closed. At the
//! end the submission either passes unmanaged, for a named reason, or is inside its device's gate. The keeper does
//! not release the lock before it has left the gate.

use gpushare_abi::errors::CUerror;

use crate::{
    driver_query::context,
    eviction,
    managed_process::{self, Bypass, Device, ManagedProcess, attach},
    sys::caller_state::catch,
    thread::{self, Thread, Used, Work, add},
    trace,
};

/// The result of an admission.
#[derive(Clone, Copy)]
pub enum Admission {
    /// Goes to the driver unmanaged, within another call.
    Aside(Bypass),
    /// Goes to the driver unmanaged for any other reason. The thread is in no gate, but counts as inside a call until
    /// the driver has returned.
    Marked(&'static Thread),
    /// Goes to the driver inside the gate.
    Inside(Pass),
    /// Does not go to the driver, because the device memory is lost; the call returns this error.
    Refused(CUerror),
}

/// A submission inside a gate.
#[derive(Clone, Copy)]
pub struct Pass {
    process: &'static ManagedProcess,
    device: &'static Device,
    thread: &'static Thread,
    work: Work,
    used: Used,
    /// The submissions that the thread may make before the next check, this one included; 0 if it is not counted.
    allotted: u32,
}

impl Admission {
    /// Returns true if the submission came from within a hook, or from the driver itself.
    pub fn is_nested(&self) -> bool {
        matches!(self, Self::Aside(Bypass::Reentrant))
    }

    /// Returns the ordinal of the device whose gate the submission is in.
    pub fn ordinal(&self) -> Option<u8> {
        match self {
            Self::Inside(pass) => Some(pass.device.ordinal),
            Self::Aside(_) | Self::Marked(_) | Self::Refused(_) => None,
        }
    }

    /// Marks the thread as outside, also if the application leaves the call by unwinding.
    pub fn leave(&self) {
        match self {
            Self::Inside(pass) => pass.thread.end(),
            Self::Marked(thread) => thread.end(),
            Self::Aside(_) | Self::Refused(_) => {}
        }
    }

    /// Returns the error if the driver must not be called.
    pub fn refusal(&self) -> Option<CUerror> {
        match self {
            Self::Refused(error) => Some(*error),
            _ => None,
        }
    }
}

/// Admits a submission to the stream `key`, which the application makes at this [`thread::place`].
#[cold]
#[inline(never)]
pub fn admit(key: usize, place: usize, work: Work) -> Admission {
    loop {
        let admission = try_to_admit(key, place, work);
        let Admission::Aside(why) = admission else {
            return admission;
        };
        if why == Bypass::Reentrant {
            return admission;
        }
        let thread = thread::attached();
        if why != Bypass::Evicted && thread.enter_ungated() {
            return Admission::Marked(thread);
        }
        if eviction::passes_suspension(thread) {
            thread.pass_suspension();
            return Admission::Marked(thread);
        }
        match catch(eviction::block_until_resumed) {
            Ok(Err(error)) => return Admission::Refused(error),
            Ok(Ok(())) => {}
            Err(_) => managed_process::fault(),
        }
    }
}

fn try_to_admit(key: usize, place: usize, work: Work) -> Admission {
    match catch(|| decide(key, place, work)) {
        Ok(Ok(pass)) => Admission::Inside(pass),
        Ok(Err(why)) => {
            count(why);
            Admission::Aside(why)
        }
        Err(_) => {
            managed_process::fault();
            if let Some(thread) = thread::current() {
                thread.end();
            }
            Admission::Aside(Bypass::Unmanaged)
        }
    }
}

/// Counts the submission after the driver has returned, and marks the thread as outside.
#[inline(never)]
pub fn finish(admission: Admission) {
    let pass = match admission {
        Admission::Inside(pass) => pass,
        Admission::Marked(thread) => return thread.end(),
        Admission::Aside(_) | Admission::Refused(_) => return,
    };
    pass.work.count(pass.thread.tally(pass.device.ordinal));
    pass.thread.end();
    // The rest may call the driver. It is not needed for a turn that ends because the process is evicted.
    if pass.allotted != 0 && pass.thread.enter_ungated() {
        pass.thread.allot(pass.used, pass.allotted - 1);
        let after = || {
            let counted = (pass.allotted, matches!(pass.work, Work::Graph));
            pass.device
                .turn
                .after_counted(pass.process, pass.device, pass.used, counted)
        };
        if catch(after).is_err() {
            managed_process::fault();
        }
        pass.thread.end();
    }
}

/// Counts an unmanaged submission in a managed process, if the reason is unexpected.
pub fn count(why: Bypass) {
    if let Bypass::NoContext | Bypass::UnknownDevice | Bypass::Crowded = why
        && let Some(process) = managed_process::current()
    {
        process.count_all(|counters| &counters.bypasses);
    }
}

fn decide(key: usize, place: usize, work: Work) -> Result<Pass, Bypass> {
    let thread = thread::attached();
    if !thread.comes_from(place) {
        return Err(Bypass::Reentrant);
    }
    if eviction::is_evicted() {
        return Err(Bypass::Evicted);
    }
    let Some(process) = attach::current_or_attach() else {
        if let Some(page) = managed_process::page().filter(|page| page.unmanaged.is_open()) {
            thread.bind(&page.unmanaged, 0, 0);
            thread.remember(Used {
                stream: key,
                context: 0,
                ordinal: thread::UNMANAGED,
            });
        }
        return Err(Bypass::Unmanaged);
    };
    // An attachment in a forked child gives the thread a new record.
    let thread = thread::attached();
    thread.comes_from(place);
    if process.is_leaving() {
        return Err(Bypass::Leaving);
    }
    if let Some((device, used)) = known(process, thread, key) {
        return Ok(Pass {
            process,
            device,
            thread,
            work,
            used,
            allotted: 0,
        });
    }
    // The driver is queried for the device, which is not possible while calls are suspended.
    if !thread.enter_ungated() {
        return Err(Bypass::Evicted);
    }
    let entered = find(process, thread, key).and_then(|(device, used)| {
        let allotted = enter(process, device, thread)?;
        Ok((device, used, allotted))
    });
    let (device, used, allotted) = entered.inspect_err(|_| thread.end())?;
    thread.remember(used);
    Ok(Pass {
        process,
        device,
        thread,
        work,
        used,
        allotted,
    })
}

/// Returns the device if only a trace kept the submission off the fast path. The thread is then inside its gate.
fn known(
    process: &'static ManagedProcess,
    thread: &Thread,
    key: usize,
) -> Option<(&'static Device, Used)> {
    let (context, ordinal) = thread.bound()?;
    let device = process.device(ordinal.into())?;
    let used = Used {
        stream: key,
        context,
        ordinal,
    };
    thread.begin_known(key).then_some((device, used))
}

/// Returns the device, and the stream as the driver knows it, unless the stream captures.
fn find(
    process: &'static ManagedProcess,
    thread: &Thread,
    key: usize,
) -> Result<(&'static Device, Used), Bypass> {
    let used = locate(process, thread, key)?;
    let device = process
        .device(used.ordinal.into())
        .ok_or(Bypass::UnknownDevice)?;
    if context::is_capturing(key) {
        let tally = thread.tally(used.ordinal);
        add(&tally.captured, 1);
        return Err(Bypass::Capturing);
    }
    Ok((device, used))
}

/// Returns the context, and so the device, of the submission.
fn locate(process: &'static ManagedProcess, thread: &Thread, key: usize) -> Result<Used, Bypass> {
    let here = process.bind_thread(thread);
    let is_here = |home: &Used| here.is_ok_and(|(context, _)| context == home.context);
    // The context of a stream is fixed, so its entry names that context. A stream with a handle needs no current one.
    if (here.is_err() || process.devices.len() > 1 || process.memory.has_created_contexts())
        && let Some(home) = process.use_of_stream(key).filter(|home| !is_here(home))
    {
        // The stream decides, not the current context: the thread uses the gate of the stream's device while it
        // submits there.
        let gate = managed_process::gate_of(home.ordinal).ok_or(Bypass::UnknownDevice)?;
        thread.bind_for_stream(gate, home.ordinal, home.context);
        return Ok(home);
    }
    let (context, ordinal) = here?;
    Ok(Used {
        stream: key,
        context,
        ordinal,
    })
}

/// Enters the gate, directly if it is open and through the turn otherwise. Returns the number of submissions that the
/// thread may make, 0 if they are not counted.
fn enter(
    process: &'static ManagedProcess,
    device: &'static Device,
    thread: &Thread,
) -> Result<u32, Bypass> {
    if thread.begin_if_open() {
        return Ok(0);
    }
    if !thread.enter_ungated() {
        return Err(Bypass::Evicted);
    }
    add(&thread.tally(device.ordinal).gate_misses, 1);
    let waiting = trace::waits();
    let admitted = device.turn.admit(process, device, thread);
    waiting.ended(device.ordinal);
    admitted
}
