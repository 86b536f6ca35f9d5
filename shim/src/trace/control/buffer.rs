//! The parameters of every trace buffer of this process, and its private buffer.

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

/// Returns the exported names by call code.
pub fn names() -> Vec<&'static str> {
    INFO.iter().map(|info| info.name).collect()
}

/// Calls `make` with the parameters of this process's trace buffers.
pub fn with_guest<T>(process: &ManagedProcess, make: impl FnOnce(trace::Guest<'_>) -> T) -> T {
    let devices: Vec<Uuid> = process.devices.iter().map(|device| device.uuid).collect();
    make(trace::Guest {
        calls: &names(),
        devices: &devices,
    })
}

/// Creates a private buffer.
pub fn private(process: &ManagedProcess) -> Option<Arc<Buffer>> {
    match with_guest(process, |made| Buffer::private(DEFAULT_RECORDS, made)) {
        Ok(buffer) => Some(Arc::new(buffer)),
        Err(error) => {
            notice::once(Cause::Trace, format_args!("PFLOG: {error}"));
            None
        }
    }
}
