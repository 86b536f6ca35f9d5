//! The driver in this process: its part in the world and the devices it sees.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_ERROR_NO_DEVICE,
    CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_UNKNOWN, CUerror, CUresult, result_of,
};
use gpushare_abi::{Query, query_of};
use gpushare_sim::checkpoint::State;
use gpushare_sim::scenario::Swap;
use gpushare_sim::{Device, Member, World, mps, process, visible};

use crate::handles::lock;
use crate::{faces, own_thread};

/// The version of the driver API: 13.0.
pub const VERSION: i32 = 13000;

/// The initialised driver.
#[derive(Debug)]
pub struct Driver {
    /// This process's membership in the simulated world.
    pub member: Member,
    /// The devices this process sees, by ordinal.
    pub devices: Vec<Device>,
    /// Duration of each allocation.
    pub slow_alloc: Duration,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Set in a child that was forked after `cuInit`: the driver does not work there.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_forked_child() {
    FORKED.store(true, Relaxed);
}

/// Returns true in a child that was forked after `cuInit`.
pub fn is_forked() -> bool {
    FORKED.load(Relaxed)
}

/// Initialises the driver (`cuInit`).
pub fn init() -> CUresult {
    static STARTING: Mutex<()> = Mutex::new(());
    if is_forked() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    let _one_at_a_time = lock(&STARTING);
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let driver = start()?;
    // SAFETY: the handler stores one flag and is never unloaded (the library is linked nodelete).
    unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    DRIVER.set(driver).map_err(|_| CUDA_ERROR_NOT_INITIALIZED)
}

/// Returns the world, opened at its first use: functions may be looked up before `cuInit`.
pub fn world() -> Option<&'static Arc<World>> {
    static WORLD: OnceLock<Option<Arc<World>>> = OnceLock::new();
    let open = || {
        World::open()
            .map(Arc::new)
            .inspect_err(|error| note(&error.to_string()))
            .ok()
    };
    WORLD.get_or_init(open).as_ref()
}

fn start() -> Result<Driver, CUerror> {
    let world = world().ok_or(CUDA_ERROR_SYSTEM_NOT_READY)?;
    if world.kept_its_scenario() {
        note(
            "other processes run in this simulated world, so its scenario cannot change; end them or set GPUSHARE_SIM_WORLD",
        );
    }
    let variable = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let client = mps::Client::of_environment();
    let of_server = client.and_then(|client| mps::visible_to(client.server));
    let devices = visible::of_client(world.devices(), of_server.as_deref(), variable.as_deref());
    let devices: Vec<_> = devices.into_iter().cloned().collect();
    if devices.is_empty() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    if let Some(client) = client {
        process::reap(world);
        if mps::is_faulty(world, client.server) {
            return Err(CUDA_ERROR_MPS_SERVER_NOT_READY);
        }
    }
    let member = Member::join_as(world, client).map_err(|error| {
        note(&error.to_string());
        CUDA_ERROR_OPERATING_SYSTEM
    })?;
    start_restorer().inspect(|thread| member.restored_by(*thread));
    let slow_alloc = world.scenario().mishaps.slow_alloc.0;
    Ok(Driver {
        member,
        devices,
        slow_alloc,
    })
}

/// Starts the thread that restores the process after a checkpoint, and returns its number. Here the caller of the restore does
/// that itself, so the thread only is there, as a driver's is; a process that may have no more threads does without.
fn start_restorer() -> Option<u32> {
    let (told, number) = sync_channel(1);
    let body = move || {
        let _ = told.send(own_thread::be_named());
        loop {
            std::thread::park();
        }
    };
    own_thread::start(body).ok()?;
    number.recv().ok()
}

/// Prints a line on stderr: the simulator cannot start, and an error code could not give the reason.
fn note(line: &str) {
    gpushare_sim::note::note("gpushare simulator", &line);
}

/// Returns the driver, if it is initialised in this process. While a checkpoint has locked the process, the call
/// waits here, unless it is a query that is answered.
pub fn driver() -> Result<&'static Driver, CUerror> {
    let driver = driver_while_locked()?;
    faces::enter(
        |name| driver.member.enter(|state| is_answered(name, state)),
        leave,
    );
    Ok(driver)
}

/// Returns true if a locked process gets an answer to this call. Some queries crash after a checkpoint, as in a driver.
fn is_answered(name: &str, state: State) -> bool {
    match query_of(name) {
        Some(Query::Answers) => true,
        Some(Query::Stream | Query::Event) if state == State::Checkpointed => {
            note(&format!("{name} crashes in a process that is checkpointed"));
            std::process::abort()
        }
        _ => false,
    }
}

/// Fails where the scenario says that this step of a program that moves its memory itself does.
pub fn mishap(step: Swap) -> CUresult {
    if driver()?.member.world().scenario().mishaps.swap == Some(step) {
        Err(CUDA_ERROR_UNKNOWN)
    } else {
        Ok(())
    }
}

/// Records the end of a call that a checkpoint had to wait for.
fn leave() {
    if let Ok(driver) = driver_while_locked() {
        driver.member.leave();
    }
}

/// Returns the driver for calls that a locked process may make.
pub fn driver_while_locked() -> Result<&'static Driver, CUerror> {
    if is_forked() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    DRIVER.get().ok_or(CUDA_ERROR_NOT_INITIALIZED)
}

impl Driver {
    /// Returns the device with this ordinal.
    pub fn device(&self, ordinal: i32) -> Result<&Device, CUerror> {
        let index = usize::try_from(ordinal).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
        self.devices.get(index).ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// Returns an error if this process's contexts on a device are lost: after an illegal operation of a kernel every
    /// call fails.
    pub fn works_on(&self, ordinal: i32) -> CUresult {
        result_of(self.member.fault(self.device(ordinal)?.index))
    }
}
