//! Which `libnvidia-ml` to load: the system's, or the simulator's when this segment belongs to a simulated world.

use std::env;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};
use shm_layout::text::PathText as _;

use gpushare_base::host::artifacts;

const SONAME: &str = "libnvidia-ml.so.1";

/// What says which library it is, but for whether there is a real one: loading that takes longer than all else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grounds {
    simulated: Option<PathBuf>,
    is_asked: bool,
    search: Option<PathBuf>,
}

impl Grounds {
    /// Those of this segment.
    pub fn of(segment: &Path) -> Self {
        Self {
            simulated: artifacts::in_sim_folder(segment, SONAME),
            is_asked: env::var_os("GPUSHARE_SIM").is_some_and(|value| value != "0"),
            search: env::var_os("LD_LIBRARY_PATH").map(PathBuf::from),
        }
    }

    /// The library; `None` leaves the search to the loader.
    ///
    /// A simulated world leaves a `sim-lib` folder beside the segments. Its NVML is used when there is no real one, or when
    /// `GPUSHARE_SIM` asks for it.
    pub(super) fn choose(self) -> Option<PathBuf> {
        self.simulated
            .filter(|_| self.is_asked || !real_one_is_found())
    }
}

fn real_one_is_found() -> bool {
    let found = Nvml::builder().lib_path(OsStr::new(SONAME)).init();
    found.map(ManuallyDrop::new).is_ok()
}

/// Loads and initialises it; the error is a sentence.
///
/// It is never shut down nor unloaded: the thread that asks it would do so while the process ends, and would take the code
/// of the library's own exit handlers from under them.
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
