//! Measurement of a device's free memory on behalf of evicted processes: after a checkpoint neither the driver nor
//! NVML returns to a process, and its restore must find room.
//!
//! Every keeper measures ten times a second while another process is about to return to a device of its own process,
//! or waits to. It does so as well while memory is reserved there, because what is in no account cannot be reserved.

use crate::{
    driver_query::{context, memory, transfer},
    eviction::{ask, swap},
    managed_process::{Device, ManagedProcess},
};

/// Measures the devices that an evicted process is to return to, or that have memory reserved. The keeper calls this at each heartbeat.
pub fn look(process: &ManagedProcess) {
    for device in &process.devices {
        let ledger = &device.ledger;
        let is_needed = ledger.is_return_under_way() || ledger.has_reserves();
        if is_needed && !process.memory.captures.is_any() {
            let _ = ask(process, || publish(process, device));
        }
    }
}

/// Publishes the free memory of a device. The driver must return to the calling thread.
pub fn publish(process: &ManagedProcess, device: &Device) {
    let contexts = swap::contexts(process);
    let here = contexts.into_iter().find(|context| {
        let ordinal = transfer::within(*context, || Ok(context::device_of_current()));
        ordinal == Ok(Some(device.ordinal.into()))
    });
    if let Some(context) = here {
        let free = || transfer::within(context, memory::free_bytes).ok();
        device.ledger.publish_free_surely(free);
    }
}
