//! Which `libnvidia-ml` to load: the system's, or the simulator's when this segment belongs to a simulated world.

use std::env;
use std::ffi::{OsStr, OsString};
use std::mem::ManuallyDrop;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use shm_layout::text::PathText as _;

use crate::host::artifacts;

const SONAME: &str = "libnvidia-ml.so.1";

/// The library for the devices of this segment; `None` leaves the search to the loader.
///
/// A simulated world leaves a `sim-lib` folder beside the segments. Its NVML is used when there is no real one, or when
/// `GPUSHARE_SIM` asks for it.
pub fn choose(segment: &Path) -> Option<OsString> {
    let simulated = artifacts::in_sim_folder(segment, SONAME)?;
    let asked = env::var_os("GPUSHARE_SIM").is_some_and(|value| value != "0");
    (asked || !real_one_is_found()).then(|| simulated.into_os_string())
}

fn real_one_is_found() -> bool {
    let found = Nvml::builder().lib_path(OsStr::new(SONAME)).init();
    found.map(ManuallyDrop::new).is_ok()
}

/// Loads and initialises it; the error is a sentence.
///
/// It is never shut down nor unloaded: the thread that asks it would do so while the process ends, and would take the code
/// of the library's own exit handlers from under them.
pub(super) fn open(library: Option<&OsStr>) -> Result<ManuallyDrop<Nvml>, String> {
    let path = library.unwrap_or(OsStr::new(SONAME));
    Nvml::builder()
        .lib_path(path)
        .init()
        .map(ManuallyDrop::new)
        .map_err(|error| match error {
            NvmlError::LibloadingError(_) => format!(
                "{} was not found; devices show what the workloads report",
                Path::new(path).shown()
            ),
            other => format!("{} cannot be initialised: {other}", Path::new(path).shown()),
        })
}
