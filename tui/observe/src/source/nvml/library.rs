//! The choice of `libnvidia-ml`: the system's, or the simulator's if the segment belongs to a simulated world.

use std::env;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};
use shm_layout::text::PathText as _;
use shm_layout::{DEVICE_SIM, DeviceView, SegmentDir, Segments, clock, snapshot};

use gpushare_base::host::artifacts;

const SONAME: &str = "libnvidia-ml.so.1";

/// The facts that decide the choice, except whether a real library exists: loading it takes longer than everything
/// else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grounds {
    simulated: Option<PathBuf>,
    is_asked: bool,
    search: Option<PathBuf>,
}

impl Grounds {
    /// Collects the facts for a segment.
    pub fn of(segment: &Path) -> Self {
        let is_asked = artifacts::is_simulation_asked();
        let simulated = artifacts::in_sim_folder(segment, SONAME);
        Self {
            simulated: simulated.filter(|_| is_asked || is_all_simulated(segment)),
            is_asked,
            search: env::var_os("LD_LIBRARY_PATH").map(PathBuf::from),
        }
    }

    /// Returns the path of the library; `None` leaves the search to the loader.
    ///
    /// A simulated world leaves a `sim-lib` folder beside the segments. Its NVML is used when `GPUSHARE_SIM` asks for it, or
    /// when there is no real one and the segments have no real GPU. A broker's segments count as a real machine's: an
    /// administrator who once ran the simulator must not find its GPU where the machine's are meant.
    pub(super) fn choose(self) -> Option<PathBuf> {
        self.simulated
            .filter(|_| self.is_asked || !real_one_is_found())
    }
}

fn is_all_simulated(dir: &Path) -> bool {
    let devices =
        || Segments::open_viewer(dir).map(|segments| snapshot(&segments, clock::now()).devices);
    let is_simulated = |device: &DeviceView| device.flags & DEVICE_SIM != 0;
    !SegmentDir::at(dir).is_brokered && devices().unwrap_or_default().iter().all(is_simulated)
}

fn real_one_is_found() -> bool {
    let found = Nvml::builder().lib_path(OsStr::new(SONAME)).init();
    found.map(ManuallyDrop::new).is_ok()
}

/// Loads and initialises NVML; the error is a sentence.
///
/// It is never shut down or unloaded: its thread would do that while the process exits, and would unload the code of
/// the library's own exit handlers before they run.
pub(super) fn open(library: Option<&Path>) -> Result<ManuallyDrop<Nvml>, String> {
    let path = library.unwrap_or(Path::new(SONAME));
    Nvml::builder()
        .lib_path(path.as_os_str())
        .init()
        .map(ManuallyDrop::new)
        .map_err(|error| match error {
            NvmlError::LibloadingError(_) => format!(
                "{} was not found; devices show what the workloads report",
                path.shown()
            ),
            other => format!("{} cannot be initialised: {other}", path.shown()),
        })
}
