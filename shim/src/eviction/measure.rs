//! Asks the driver what is free on a device, on behalf of processes that cannot ask: after a checkpoint neither the driver nor NVML
//! answers a process, and its restore must find room.
//!
//! Every keeper asks ten times a second while another process waits to return to a device of its own process, or is about to.

use crate::{
    driver_query::{context, memory, transfer},
    eviction::{ask, swap},
    managed_process::{Device, ManagedProcess},
};

/// Called by the keeper at each heartbeat.
pub fn look(process: &ManagedProcess) {
    for device in &process.devices {
        if device.ledger.is_return_under_way() && !process.memory.captures.is_any() {
            let _ = ask(process, || publish(process, device));
        }
    }
}

/// Publishes what is free on the device. The driver must answer the calling thread.
pub fn publish(process: &ManagedProcess, device: &Device) {
    let contexts = swap::contexts(process);
    let here = contexts.into_iter().find(|context| {
        let ordinal = transfer::within(*context, || Ok(context::device_of_current()));
        ordinal == Ok(Some(device.ordinal.into()))
    });
    if let Some(context) = here {
        let free = || transfer::within(context, memory::free_bytes).ok();
        device.ledger.say_free_surely(free);
    }
}
