//! A list of the driver's devices, made without a context on any of them.

use crate::{Cuda, Error};

/// The driver and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The driver's CUDA version: 13000 is 13.0.
    pub driver_version: u32,
    /// The devices this process may use, by ordinal.
    pub devices: Vec<Device>,
}

/// A device, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Ordinal in this process.
    pub ordinal: u32,
    /// Bytes of the UUID.
    pub uuid: [u8; 16],
    /// Name of the device.
    pub name: String,
    /// Size of its memory, in bytes.
    pub total_bytes: u64,
}

/// Loads the driver and lists its devices.
///
/// # Errors
///
/// When there is no driver, or a call fails.
pub fn probe() -> Result<Probe, Error> {
    let cuda = Cuda::load()?;
    let devices = (0..cuda.device_count()?)
        .map(|ordinal| cuda.device(ordinal))
        .collect::<Result<_, _>>()?;
    Ok(Probe {
        driver_version: cuda.driver_version()?,
        devices,
    })
}
