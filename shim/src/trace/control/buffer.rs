//! What every trace buffer of this process is told, and a buffer of our own.

use std::sync::Arc;

use shm_layout::{
    Uuid,
    trace::{self, Buffer, DEFAULT_RECORDS},
};

use crate::{
    driver::INFO,
    managed_process::ManagedProcess,
    notice::{self, Cause},
};

// A buffer has a name and a row for every function of the table.
const _: () = assert!(crate::driver::COUNT <= trace::CALLS);

/// The exported names by call code.
pub fn names() -> Vec<&'static str> {
    INFO.iter().map(|info| info.name).collect()
}

/// What every buffer of this process is told.
pub fn with_guest<T>(process: &ManagedProcess, make: impl FnOnce(trace::Guest<'_>) -> T) -> T {
    let devices: Vec<Uuid> = process.devices.iter().map(|device| device.uuid).collect();
    make(trace::Guest {
        calls: &names(),
        devices: &devices,
    })
}

/// A buffer of our own.
pub fn private(process: &ManagedProcess) -> Option<Arc<Buffer>> {
    match with_guest(process, |made| Buffer::private(DEFAULT_RECORDS, made)) {
        Ok(buffer) => Some(Arc::new(buffer)),
        Err(error) => {
            notice::once(Cause::Trace, format_args!("PFLOG: {error}"));
            None
        }
    }
}
