//! Where the parts of an installation lie: the library to preload, the simulator, the programs.
//!
//! Everything is beside the running program, or under `../lib/gpushare/` from it; `GPUSHARE_LIB`
//! names the library outright.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use shm_layout::dir::Dir;

use crate::text::exit::Failure;
use shm_layout::variables;

/// The preloaded library's file name.
pub const LIBRARY: &str = "libgpushare.so";
/// The simulated driver's file name.
pub const SIM_DRIVER: &str = "libcuda.so";
/// The simulated NVML's file name.
pub const SIM_NVML: &str = "libnvidia_ml.so";
/// Folder of the segment directory under which programs find the simulator by its real names.
pub const SIM_FOLDER: &str = "sim-lib";

/// The links a simulated machine needs: the name programs ask for, and the artifact that answers.
const SIM_LINKS: [(&str, &str); 4] = [
    ("libcuda.so.1", SIM_DRIVER),
    ("libcuda.so", SIM_DRIVER),
    ("libnvidia-ml.so.1", SIM_NVML),
    ("libnvidia-ml.so", SIM_NVML),
];

/// Finds a part of the installation by its file name.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    let tried = places(name);
    tried
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| {
            let list: Vec<String> = tried
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let advice = match name {
                LIBRARY => format!("build the workspace or set {} to its path", variables::LIB),
                _ => "build the workspace or install it there".to_owned(),
            };
            Failure::failed(format!(
                "{name} is not installed; looked for {}; {advice}",
                list.join(", ")
            ))
        })
}

/// The library to preload, as an absolute path.
pub fn library() -> Result<PathBuf, Failure> {
    let Some(named) = std::env::var_os(variables::LIB).filter(|named| !named.is_empty()) else {
        return find(LIBRARY);
    };
    let path = PathBuf::from(&named);
    let path = if path.is_dir() {
        path.join(LIBRARY)
    } else {
        path
    };
    let absolute = fs::canonicalize(&path).map_err(|error| {
        Failure::failed(format!(
            "{} names {}, which cannot be used: {error}",
            variables::LIB,
            path.display()
        ))
    })?;
    Ok(absolute)
}

fn places(name: &str) -> Vec<PathBuf> {
    let Some(folder) = std::env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.to_owned()))
    else {
        return Vec::new();
    };
    let mut places = vec![folder.join(name), folder.join("../lib/gpushare").join(name)];
    // Test programs run from target/PROFILE/deps; their artifacts lie one folder up.
    if folder.file_name().is_some_and(|last| last == "deps") {
        places.push(folder.join("..").join(name));
    }
    places
        .into_iter()
        .map(|path| fs::canonicalize(&path).unwrap_or(path))
        .collect()
}

/// Makes `<dir>/sim-lib` hold the simulator under the names programs ask for, and returns it. Programs load what is in
/// it, so it must be ours as the segments are.
pub fn sim_folder(dir: &Path) -> Result<PathBuf, Failure> {
    let folder = Dir::open(dir)
        .and_then(|dir| dir.inner_or_make(SIM_FOLDER))
        .map_err(Failure::from)?;
    for (link, artifact) in SIM_LINKS {
        let target = find(artifact)?;
        if folder.read_link(link).is_ok_and(|now| now == target) {
            continue;
        }
        // Rename over the old link: another program may be starting from this folder right now.
        let fresh = format!(".{link}-{}", std::process::id());
        let _ = folder.remove(&fresh);
        folder
            .make_link(&target, &fresh)
            .and_then(|()| folder.rename(&fresh, link))
            .map_err(|error| {
                Failure::failed(format!(
                    "cannot link {} to the simulator: {error}",
                    folder.path().join(link).display()
                ))
            })?;
    }
    Ok(folder.path().to_path_buf())
}

/// A library of `<dir>/sim-lib`, where the simulator was used; never one that somebody else put there.
pub fn in_sim_folder(dir: &Path, name: &str) -> Option<PathBuf> {
    let folder = Dir::open(dir).and_then(|dir| dir.inner(SIM_FOLDER)).ok()?;
    let library = folder.path().join(name);
    library.exists().then_some(library)
}

/// `first:rest`, where `rest` is the variable's present value; each entry once.
pub fn prepend(first: &Path, variable: &str) -> OsString {
    let present = std::env::var_os(variable).unwrap_or_default();
    let mut value = first.as_os_str().to_owned();
    for part in present.to_string_lossy().split([':', ' ']) {
        if !part.is_empty() && Path::new(part) != first {
            value.push(":");
            value.push(part);
        }
    }
    value
}
