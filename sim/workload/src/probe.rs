//! A list of the driver's devices, made without a context on any of them.

use crate::driver::{Cuda, Device};
use crate::error::Error;

/// The driver and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The driver's CUDA version: 13000 is 13.0.
    pub driver_version: u32,
    /// The devices this process may use, by ordinal.
    pub devices: Vec<Device>,
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
