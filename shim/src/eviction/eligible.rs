//! The checks that a process can be evicted and restored, made before the first step.
//!
//! [`check`] calls neither the driver nor a library, so it can run every second. [`check_closely`] calls them while
//! calls are suspended.

use std::sync::atomic::Ordering::Relaxed;

use shm_layout::{DEVICE_MIG, Phase, Why};

use crate::{
    driver_query::{
        card::{self, Card},
        checkpoint::{self, State},
    },
    eviction::{
        footprint::{Footprint, Refusal},
        swap, upkeep,
    },
    managed_process::ManagedProcess,
    sys::{barrier, host_memory},
    thread,
};

/// The driver branches in which a checkpoint is known to work: the calls came with 570, and some releases of 610 lose
/// processes.
const KNOWN: std::ops::Range<u32> = 570..610;

/// Most bytes that a context uses.
pub const A_CONTEXT: u64 = 640 << 20;

/// The method by which memory is evicted and restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The driver's checkpoint, for all memory.
    Checkpoint,
    /// Copies by the shim, for the swappable memory; the value is its bytes.
    Swap(u64),
}

impl Way {
    /// Returns the method for the process's present memory.
    pub fn of(process: &ManagedProcess) -> Self {
        swap::bytes(process).map_or(Self::Checkpoint, Self::Swap)
    }
}

/// Checks everything that needs no call.
pub fn check(process: &ManagedProcess) -> Result<(), Refusal> {
    let refuse = |why| Err((why, 0));
    let way = Way::of(process);
    if !thread::SEES_ALL || !barrier::is_cheap() {
        return refuse(Why::System);
    }
    if way == Way::Checkpoint {
        check_the_driver(process)?;
    }
    let registration = process.registration;
    if process
        .devices
        .iter()
        .any(|device| registration.is_lost(device.entry))
    {
        return refuse(Why::LostContext);
    }
    if process
        .devices
        .iter()
        .any(|device| device.flags & DEVICE_MIG != 0)
    {
        return refuse(Why::Mig);
    }
    if process
        .devices
        .iter()
        .any(|device| registration.is_mps(device.entry))
    {
        return refuse(Why::Mps);
    }
    if way == Way::Checkpoint {
        check_the_memory(process)?;
    }
    if process.memory.captures.is_any() {
        return refuse(Why::Capturing);
    }
    let used = crate::eviction::held(process);
    if used == 0 {
        return refuse(Why::Nothing);
    }
    check_the_host(
        process,
        match way {
            Way::Checkpoint => used,
            // The swap buffer already holds this much of the host's memory and keeps it.
            Way::Swap(bytes) => bytes.saturating_sub(process.memory.swap_buffer.bytes()),
        },
    )
}

/// Checks everything that needs no call, for a checkpoint of what copies have left on the devices.
pub fn check_rest(process: &ManagedProcess) -> Result<(), Refusal> {
    check_the_driver(process)?;
    check_the_memory(process)
}

/// Checks that the driver can take a checkpoint.
fn check_the_driver(process: &ManagedProcess) -> Result<(), Refusal> {
    match process.eviction.never() {
        Some(refusal) => Err(refusal),
        None if !checkpoint::exists() => Err((Why::Driver, 0)),
        None => Ok(()),
    }
}

/// Checks that the process has no memory that a checkpoint would lose.
fn check_the_memory(process: &ManagedProcess) -> Result<(), Refusal> {
    let refuse = |why| Err((why, 0));
    if process.memory.managed.load(Relaxed) != 0 {
        return refuse(Why::Managed);
    }
    if process.memory.taken.load(Relaxed) || process.memory.imported.load(Relaxed) != 0 {
        return refuse(Why::Imported);
    }
    if process.memory.shown.load(Relaxed) {
        return refuse(Why::Exported);
    }
    Ok(())
}

/// Checks that the host has room for the copy plus a tenth, beside the evictions of other processes under way.
fn check_the_host(process: &ManagedProcess, bytes: u64) -> Result<(), Refusal> {
    let under_way = process.registration.host_bytes_under_way();
    let wanted = match bytes {
        0 => return Ok(()),
        bytes => bytes.saturating_add(bytes / 10).saturating_add(under_way),
    };
    match host_memory::available() {
        Some(available) if available >= wanted => Ok(()),
        _ => Err((Why::HostMemory, 0)),
    }
}

/// Makes the remaining checks for memory that the shim copies, without those that only a checkpoint needs.
pub fn check_swappable_closely(process: &ManagedProcess, bytes: u64) -> Result<(), Refusal> {
    // Another program may have locked the process, and then no call would return.
    if checkpoint::exists() && checkpoint::state().is_ok_and(|state| state != State::Running) {
        return Err((Why::Locked, 0));
    }
    for device in &process.devices {
        upkeep::publish_free(process, device);
    }
    let gone = process.memory.swappable.evicted();
    let gone: Vec<u64> = gone.iter().map(|block| block.serial).collect();
    let has_place = process.memory.swap_buffer.lock().bytes_beside(&gone);
    let more = bytes.saturating_sub(has_place);
    process.registration.publish_host_bytes(more);
    check_the_host(process, more)
}

/// Makes the remaining checks, while calls are suspended and none is under way. Returns the footprint on each device.
pub fn check_closely(process: &'static ManagedProcess) -> Result<Vec<Footprint<'static>>, Refusal> {
    debug_assert_eq!(process.eviction.phase(), Phase::Evicting);
    match card::driver_branch() {
        None => return Err((Why::NoNvml, 0)),
        Some(branch) if !KNOWN.contains(&branch) => return Err((Why::Driver, 0)),
        Some(_) => {}
    }
    match checkpoint::state() {
        Ok(State::Running) => {}
        Ok(_) => return Err((Why::Locked, 0)),
        Err(error) => return Err((Why::Refused, error.code() as u16)),
    }
    let mut footprints = Vec::new();
    for device in &process.devices {
        let used = device.ledger.used();
        let card = Card::of(device.uuid).ok_or((Why::NoNvml, 0))?;
        let own = card.own_bytes();
        if used == 0 && own.is_none_or(|own| own == 0) {
            continue;
        }
        // NVML is a second behind; the driver reports what is free now.
        let free = card.free_bytes().ok_or((Why::NoNvml, 0))?;
        device.ledger.publish_free(free);
        upkeep::publish_free(process, device);
        let besides = match own {
            Some(own) => own.saturating_sub(used),
            None => device.ledger.outside().min(A_CONTEXT),
        };
        footprints.push(Footprint {
            device,
            used,
            besides,
            margin: margin(used.saturating_add(besides)),
        });
    }
    let bytes = footprints
        .iter()
        .map(Footprint::bytes)
        .fold(0, u64::saturating_add);
    process.registration.publish_host_bytes(bytes);
    // Checked again after this process has published its bytes: of two processes that begin at once, each sees the
    // other.
    check_the_host(process, bytes)?;
    Ok(footprints)
}

/// Returns the bytes that must be free besides the footprint. A restore without room loses the memory, and unmanaged
/// programs allocate at any time.
fn margin(bytes: u64) -> u64 {
    (bytes / 64).saturating_add(16 << 20)
}
