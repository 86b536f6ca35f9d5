//! Whether the process could be evicted and would come back: all that is known to go wrong, looked at before anything is done.
//!
//! [`look`] asks no driver and no library, so that it can be asked every second; [`look_closely`] does, with the door closed.

use std::sync::atomic::Ordering::Relaxed;

use shm_layout::{DEVICE_MIG, Phase, Why};

use crate::{
    ask::{
        card::{self, Card},
        checkpoint::{self, State},
    },
    door,
    guest::{Device, Guest},
    sys::{barrier, host_memory},
};

/// Why not, and the driver's error code that goes with it.
pub type Refusal = (Why, u16);

/// The branches of the driver that are known to do it: the calls came with 570, and some of 610 lose processes.
const KNOWN: std::ops::Range<u32> = 570..610;

/// What a context takes at most.
const A_CONTEXT: u64 = 640 << 20;

/// What a process has on one device.
pub struct Footprint<'g> {
    /// Which.
    pub device: &'g Device,
    /// Bytes of allocations, by our ledger.
    pub used: u64,
    /// Bytes besides, for contexts and modules: as NVML says, or where it does not name the process (in a container) as much of
    /// what is in no account as a context takes.
    pub besides: u64,
}

/// What can be seen without asking.
pub fn look(guest: &Guest) -> Result<(), Refusal> {
    let refuse = |why| Err((why, 0));
    if let Some(refusal) = guest.residence.never() {
        return Err(refusal);
    }
    if !door::SEES_ALL || !barrier::is_cheap() {
        return refuse(Why::System);
    }
    if !checkpoint::exists() {
        return refuse(Why::Driver);
    }
    let registration = guest.registration;
    if guest
        .devices
        .iter()
        .any(|device| registration.is_lost(device.entry))
    {
        return refuse(Why::LostContext);
    }
    if guest
        .devices
        .iter()
        .any(|device| device.flags & DEVICE_MIG != 0)
    {
        return refuse(Why::Mig);
    }
    if guest
        .devices
        .iter()
        .any(|device| registration.is_mps(device.entry))
    {
        return refuse(Why::Mps);
    }
    if guest.memory.managed.load(Relaxed) != 0 {
        return refuse(Why::Managed);
    }
    let imported = |device: &Device| {
        let counters = registration.count(device.entry);
        counters.imported_bytes.load(Relaxed) != 0
    };
    if guest.memory.taken.load(Relaxed) || guest.devices.iter().any(imported) {
        return refuse(Why::Imported);
    }
    if guest.memory.shown.load(Relaxed) {
        return refuse(Why::Exported);
    }
    if guest.memory.captures.is_any() {
        return refuse(Why::Capturing);
    }
    let used = super::held(guest);
    if used == 0 {
        return refuse(Why::Nothing);
    }
    look_at_the_host(guest, used)
}

/// Whether the host has room for the copy, beside those of others under way, and a tenth more.
fn look_at_the_host(guest: &Guest, bytes: u64) -> Result<(), Refusal> {
    let under_way = guest.registration.host_bytes_under_way();
    let wanted = bytes.saturating_add(bytes / 10).saturating_add(under_way);
    match host_memory::available() {
        Some(available) if available >= wanted => Ok(()),
        _ => Err((Why::HostMemory, 0)),
    }
}

/// The rest, with the door closed and no call under way: what the process has on each device.
pub fn look_closely(guest: &'static Guest) -> Result<Vec<Footprint<'static>>, Refusal> {
    debug_assert_eq!(guest.residence.phase(), Phase::Evicting);
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
    for device in &guest.devices {
        let used = device.ledger.used();
        let card = Card::of(device.uuid).ok_or((Why::NoNvml, 0))?;
        let own = card.own_bytes();
        if used == 0 && own.is_none_or(|own| own == 0) {
            continue;
        }
        let free = card.free_bytes().ok_or((Why::NoNvml, 0))?;
        device.ledger.say_free(free);
        footprints.push(Footprint {
            device,
            used,
            besides: match own {
                Some(own) => own.saturating_sub(used),
                None => device.ledger.outside().min(A_CONTEXT),
            },
        });
    }
    let bytes = footprints
        .iter()
        .map(|footprint| footprint.used.saturating_add(footprint.besides))
        .fold(0, u64::saturating_add);
    guest.registration.say_host_bytes(bytes);
    // Looked at again behind our own announcement: of two that begin at once each sees the other.
    look_at_the_host(guest, bytes)?;
    Ok(footprints)
}
