//! Attachment: a process becomes managed at its first `cuInit`, and a forked child at its first use of CUDA.
//!
//! The library does nothing when it is loaded. A process that never initialises CUDA leaves no trace. A process that
//! cannot be registered runs unmanaged and prints one line with the reason.
#![allow(unsafe_code, reason = "asks the driver and libc")]

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    time::Duration,
};

use gpushare_abi::{
    Out,
    errors::{self, CUresult},
    types::CUdevice,
};
use shm_layout::{
    DEVICE_MIG, DEVICE_SIM, NoDevice, Registration, Segments,
    environment::{Environment, Log},
    locate, register,
};

use crate::{
    driver::call,
    driver_query,
    eviction::state::EvictionState,
    managed_process::{self, Device, ManagedProcess, Page, detach, keeper, script},
    notice::{self, Cause},
    sys::{
        barrier,
        caller_state::{self, Uncancelled},
        elf,
        futex::{self, Watch},
    },
    thread,
    trace::{self, state::Tracer},
    tracking::Tracking,
    turn::state::Turn,
};

const UNDECIDED: u32 = 0;
const ATTACHING: u32 = 1;
const DECIDED: u32 = 2;

/// Set when `cuInit` has succeeded in this process or in the one it was forked from; then a child attaches by itself.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// The process that attached last. A child finds its parent here.
static ATTACHED_PID: AtomicU32 = AtomicU32::new(0);
/// Set when a limit was requested that cannot be enforced, so that `cuInit` returns an error.
static REFUSED: AtomicBool = AtomicBool::new(false);
static AT_EXIT: AtomicBool = AtomicBool::new(false);
/// The last managed process, which refers to the one before. Managed processes are not freed, and leak checkers
/// search from statics.
static KEPT: AtomicPtr<ManagedProcess> = AtomicPtr::new(std::ptr::null_mut());

/// Attaches the process after a successful `cuInit`. Returns an error if the process must not continue.
pub fn initialised() -> CUresult {
    INITIALISED.store(true, Relaxed);
    current_or_attach();
    goes_on()
}

/// Returns an error if a limit was requested that cannot be enforced. The driver is initialised all the same, so a program that ignores
/// the error of `cuInit` gets no context and no memory either.
pub fn goes_on() -> CUresult {
    match REFUSED.load(Relaxed) {
        true => Err(errors::CUDA_ERROR_SYSTEM_NOT_READY),
        false => Ok(()),
    }
}

fn refuse() {
    REFUSED.store(true, Relaxed);
    managed_process::lose_limit();
}

/// Returns the managed process. A process that has initialised CUDA and is not attached yet attaches now.
#[inline(always)]
pub fn current_or_attach() -> Option<&'static ManagedProcess> {
    match managed_process::current() {
        Some(process) => Some(process),
        None => attach(),
    }
}

#[cold]
fn attach() -> Option<&'static ManagedProcess> {
    if !INITIALISED.load(Relaxed) || is_decided() {
        return managed_process::current();
    }
    let _uncancelled = Uncancelled::enter();
    let Some(page) = managed_process::make() else {
        let why = "no memory is left for a page of the library's own; raise the limit of the address space (ulimit -v)";
        unmanaged(Cause::Segment, &why, Environment::of_self().limits.asks());
        return None;
    };
    loop {
        // ORDER: Acquire pairs with the Release below, so that the decision is visible.
        match page
            .attachment
            .compare_exchange(UNDECIDED, ATTACHING, Acquire, Acquire)
        {
            Ok(_) => break,
            Err(DECIDED) => return managed_process::current(),
            Err(_) => {
                let watch = Watch {
                    word: &page.attachment,
                    seen: ATTACHING,
                    private: true,
                };
                futex::wait_any(&[watch], Duration::from_millis(50));
            }
        }
    }
    decide(page);
    // ORDER: Release publishes the process, or that there is none.
    page.attachment.store(DECIDED, Release);
    futex::wake_private(&page.attachment);
    managed_process::current()
}

/// Returns true if this process has attached, or runs unmanaged.
fn is_decided() -> bool {
    // ORDER: Acquire as in `attach`. A locked instruction at every call of an unmanaged process would cost more than the rest.
    managed_process::page().is_some_and(|page| page.attachment.load(Acquire) == DECIDED)
}

/// Registers the process, or opens the unmanaged gate.
fn decide(page: &'static Page) {
    let pid = std::process::id();
    if ATTACHED_PID.swap(pid, Relaxed) != pid {
        thread::begin_anew();
        trace::forget_after_fork();
    }
    notice::print_faults_briefly();
    caller_state::find_sanitizer();
    elf::at_fork::wait_for_visits();
    caller_state::prepare_unwinder();
    let attached = caller_state::catch(|| {
        let process = Box::leak(Box::new(register_process(Environment::of_self())?));
        // The compiler would remove a static that is only written.
        process.earlier = AtomicPtr::new(KEPT.load(Relaxed));
        KEPT.store(process, Relaxed);
        let process: &'static ManagedProcess = process;
        #[cfg(debug_assertions)]
        crate::driver::call::check_by(crate::eviction::is_answered);
        barrier::prepare();
        process.tracer.start(process);
        keeper::apply_settings(process);
        process.devices.iter().for_each(keeper::reserve);
        // ORDER: Release pairs with the Acquire in `current` and publishes the process.
        page.process
            .store(std::ptr::from_ref(process).cast_mut(), Release);
        if !keeper::start(process) {
            process.leaving.store(true, Relaxed);
            process.keeper_gone.store(1, Relaxed);
            if process.environment.limits.settings.cap.is_some() {
                page.process.store(std::ptr::null_mut(), Release);
                process.registration.leave();
                let why =
                    "cannot start the thread that ends turns; allow more processes (ulimit -u)";
                unmanaged(Cause::Keeper, &why, true);
                return None;
            }
            notice::once(
                Cause::Keeper,
                format_args!("cannot start a thread; this process runs without a GPU lock"),
            );
        }
        if !AT_EXIT.swap(true, Relaxed) {
            // SAFETY: a plain function of this library, which is never unloaded.
            unsafe { libc::atexit(detach::at_exit) };
        }
        Some(())
    });
    if attached.is_err() && Environment::of_self().limits.asks() {
        // The panic itself has printed its line.
        refuse();
    }
    if !matches!(attached, Ok(Some(()))) {
        page.unmanaged.open(trace::is_on());
    }
}

fn register_process(mut environment: Environment) -> Option<ManagedProcess> {
    if environment.disabled {
        return None;
    }
    if environment.log == Log::Off {
        notice::silence();
    }
    let mut count = 0;
    // A child of a process that had initialised CUDA cannot use the driver at all, so there is nothing to manage.
    // SAFETY: the result is a local variable.
    let counted = unsafe { call::cuDeviceGetCount(Out::to(&mut count)) };
    if counted.is_ok() {
        environment.expect_devices(usize::try_from(count).unwrap_or(0));
    }
    complain(&environment);
    counted.ok()?;
    let owned = Box::into_raw(Box::new(claim_slot(&environment)?));
    // SAFETY: just created, and freed only if there will be no managed process.
    let registration: &'static Registration = unsafe { &*owned };
    let (devices, refusal) = enter_devices(registration, count, environment.mps_below_normal);
    if let Some(why) = refusal {
        // Without a limit the first devices are managed, as many as there is room for.
        let asks = environment.limits.asks();
        if asks || devices.is_empty() {
            drop(devices);
            // SAFETY: only the devices referred to it, and they are dropped. Dropping it releases the slot.
            drop(unsafe { Box::from_raw(owned) });
            unmanaged(Cause::DevicesFull, &why, asks);
            return None;
        }
        let managed = devices.len();
        notice::once(
            Cause::DevicesFull,
            format_args!("{count} devices are visible and only {managed} are managed: {why}"),
        );
    }
    if environment.log >= Log::Info {
        let slot = registration.slot().index;
        notice::once(
            Cause::Arrival,
            format_args!(
                "managed as slot {slot} in {}",
                registration.segments().dir().display()
            ),
        );
    }
    Some(ManagedProcess {
        registration,
        devices,
        environment,
        memory: Tracking::default(),
        eviction: EvictionState::default(),
        tracer: Tracer::default(),
        doorbell: AtomicU32::new(0),
        leaving: AtomicBool::new(false),
        keeper_gone: AtomicU32::new(0),
        pid: std::process::id(),
        applied: AtomicU64::new(u64::MAX),
        earlier: AtomicPtr::default(),
    })
}

/// Opens the segments, and claims a slot in them.
fn claim_slot(environment: &Environment) -> Option<Registration> {
    let of_script;
    let label = match environment.label.as_str() {
        "" => {
            of_script = script::name();
            &of_script
        }
        given => given,
    };
    let limits = &environment.limits;
    let open = |dir: &Path| Segments::open_to_register(dir, label, limits);
    let segments = match locate().and_then(|found| open(&found.path)) {
        Ok(segments) => segments,
        Err(error) => {
            unmanaged(Cause::Segment, &error, limits.asks());
            return None;
        }
    };
    let identity = shm_layout::Identity::of_self_in(&segments, label);
    // Forks of other threads wait: a child would inherit the descriptor that holds the slot's lock, and the slot would stay taken after
    // the end of this process. A broker's slots have none.
    let visit = (!segments.is_brokered()).then(elf::at_fork::Visit::begin);
    let registered = register(&segments, &identity, limits);
    drop(visit);
    let registration = match registered {
        Ok(registration) => registration,
        Err(error) => {
            unmanaged(Cause::SlotsFull, &error, limits.asks());
            return None;
        }
    };
    if let Some((priority, weight)) = registration.curbed_to() {
        notice::once(
            Cause::Curbed,
            format_args!(
                "on this machine a launch has priority {priority} and weight {weight} at most; an administrator can set more \
                 (gpushare set PID priority=N weight=N)"
            ),
        );
    }
    Some(registration)
}

/// Continues unmanaged, or, if a limit would be lost by that, makes `cuInit` fail.
fn unmanaged(cause: Cause, why: &dyn std::fmt::Display, refused: bool) {
    if refused {
        refuse();
        notice::once(
            cause,
            format_args!("{why}; a limit was asked for, so CUDA is not initialised"),
        );
    } else {
        notice::once(cause, format_args!("{why}; this process runs unmanaged"));
    }
}

/// Prints one line with the invalid and ineffective variables of the environment.
fn complain(environment: &Environment) {
    let complaints = environment.complaints.iter();
    let complaints = complaints.map(|complaint| format!("{complaint}; the value is ignored"));
    let lines: Vec<String> = complaints
        .chain(environment.doubts.iter().map(ToString::to_string))
        .chain(environment.advice.iter().cloned())
        .collect();
    if !lines.is_empty() {
        notice::once(Cause::Environment, format_args!("{}", lines.join("; ")));
    }
}

/// Registers the devices that the driver shows, in its order. Returns them, and the reason if one could not be
/// registered.
fn enter_devices(
    registration: &'static Registration,
    count: i32,
    mps_below_normal: bool,
) -> (Vec<Device>, Option<String>) {
    let mut devices = Vec::new();
    for ordinal in 0..count {
        match enter_device(registration, ordinal, mps_below_normal) {
            Some(Ok(device)) => devices.push(device),
            Some(Err(why)) => return (devices, Some(why.to_string())),
            None => {
                let why = format!("the driver does not tell of device {ordinal}");
                return (devices, Some(why));
            }
        }
    }
    (devices, None)
}

/// Registers a device. Returns `None` if the driver does not describe it.
fn enter_device(
    registration: &'static Registration,
    ordinal: i32,
    mps_below_normal: bool,
) -> Option<Result<Device, NoDevice>> {
    let mut device: CUdevice = 0;
    // SAFETY: the result is a local variable.
    unsafe { call::cuDeviceGet(Out::to(&mut device), ordinal) }.ok()?;
    let mut total = 0_usize;
    // SAFETY: the result is a local variable.
    unsafe { call::cuDeviceTotalMem_v2(Out::to(&mut total), device) }.ok()?;
    let name = driver_query::context::name(device);
    let flags = [("Simulated", DEVICE_SIM), (" MIG ", DEVICE_MIG)]
        .into_iter()
        .filter(|(word, _)| name.contains(word))
        .fold(0, |flags, (_, flag)| flags | flag);
    let ordinal = u8::try_from(ordinal).ok()?;
    let uuid = driver_query::memory::uuid(device).unwrap_or_default();
    let entry = match registration.add_device(uuid, ordinal, &name, total as u64, flags) {
        Ok(entry) => entry,
        Err(why) => return Some(Err(why)),
    };
    if let Some(mps) = driver_query::context::is_mps(device) {
        registration.publish_mps(entry, mps, mps_below_normal);
    }
    Some(Ok(Device {
        ordinal,
        entry,
        ledger: registration.ledger(entry),
        uuid,
        flags,
        total_bytes: total as u64,
        sees_alone: AtomicBool::new(false),
        no_headroom_ns: AtomicU64::new(0),
        turn: Turn::default(),
    }))
}
