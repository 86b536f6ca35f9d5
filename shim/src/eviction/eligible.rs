//! Whether the process could be evicted and would come back: all that is known to go wrong, looked at before anything is done.
//!
//! [`check`] asks no driver and no library, so that it can be asked every second; [`check_closely`] does, with the door closed.

use std::sync::atomic::Ordering::Relaxed;

use shm_layout::{DEVICE_MIG, Phase, Why};

use crate::{
    driver_query::{
        card::{self, Card},
        checkpoint::{self, State},
    },
    eviction::{
        footprint::{Footprint, Refusal},
        measure, swap,
    },
    managed_process::ManagedProcess,
    sys::{barrier, host_memory},
    thread,
};

/// The branches of the driver that are known to do it: the calls came with 570, and some of 610 lose processes.
const KNOWN: std::ops::Range<u32> = 570..610;

/// What a context takes at most.
pub const A_CONTEXT: u64 = 640 << 20;

/// How its memory leaves and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the driver's checkpoint, whole.
    Checkpoint,
    /// What is swappable, by copies of our own: so many bytes.
    Swap(u64),
}

impl Way {
    /// The one that is taken now.
    pub fn of(process: &ManagedProcess) -> Self {
        swap::bytes(process).map_or(Self::Checkpoint, Self::Swap)
    }
}

/// What can be seen without asking.
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
            // What it has taken of the host before it keeps.
            Way::Swap(bytes) => bytes.saturating_sub(process.memory.swap_buffer.bytes()),
        },
    )
}

/// Whether the driver could take its checkpoint.
fn check_the_driver(process: &ManagedProcess) -> Result<(), Refusal> {
    match process.eviction.never() {
        Some(refusal) => Err(refusal),
        None if !checkpoint::exists() => Err((Why::Driver, 0)),
        None => Ok(()),
    }
}

/// Whether it has memory that a checkpoint would lose.
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

/// Whether the host has room for the copy, beside those of others under way, and a tenth more.
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

/// The same for memory that is copied by ourselves: nothing that a checkpoint needs.
pub fn check_swappable_closely(process: &ManagedProcess, bytes: u64) -> Result<(), Refusal> {
    // Another program may have locked it, and then no call would come back.
    if checkpoint::exists() && checkpoint::state().is_ok_and(|state| state != State::Running) {
        return Err((Why::Locked, 0));
    }
    for device in &process.devices {
        measure::publish(process, device);
    }
    let more = bytes.saturating_sub(process.memory.swap_buffer.bytes());
    process.registration.publish_host_bytes(more);
    check_the_host(process, more)
}

/// The rest, with the door closed and no call under way: what the process has on each device.
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
        // NVML is a second behind; the driver says what is free now.
        let free = card.free_bytes().ok_or((Why::NoNvml, 0))?;
        device.ledger.publish_free(free);
        measure::publish(process, device);
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
        .map(|footprint| footprint.used.saturating_add(footprint.besides))
        .fold(0, u64::saturating_add);
    process.registration.publish_host_bytes(bytes);
    // Looked at again behind our own announcement: of two that begin at once each sees the other.
    check_the_host(process, bytes)?;
    Ok(footprints)
}

/// A restore without room is final, and programs that we do not manage take memory whenever they like.
fn margin(bytes: u64) -> u64 {
    (bytes / 64).saturating_add(16 << 20)
}
