//! The files of an installation and their paths: the library to preload, the simulator, the programs.
//!
//! Every file is beside the running program, or under `../lib/gpushare/` from it. `GPUSHARE_LIB` overrides the path of the
//! library.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use shm_layout::dir::Dir;
use shm_layout::locate;
use shm_layout::text::PathText as _;

use crate::text::exit::Failure;
use shm_layout::variables;

/// The preloaded library's file name.
pub const LIBRARY: &str = "libgpushare.so";
/// The plugin for Slurm.
pub const SPANK: &str = "libgpushare_spank.so";
/// The driver for Kubernetes.
pub const DRA: &str = "gpushare-dra";
/// The file name of the workload program.
pub const WORKLOAD: &str = "gpushare-workload";
/// The simulated driver's file name.
pub const SIM_DRIVER: &str = "libcuda.so";
/// The simulated NVML's file name.
pub const SIM_NVML: &str = "libnvidia_ml.so";
/// The simulated control program of MPS.
pub const SIM_MPS: &str = "gpushare-sim-mps";
/// Folder beside the segments under which programs find the simulator by its real names.
pub const SIM_FOLDER: &str = "sim-lib";
/// Folder beside the segments with links to libraries that `LD_PRELOAD` cannot name.
const PRELOAD_FOLDER: &str = "preload";

/// Links that a simulated machine needs: the name that programs open, and the file behind it.
const SIM_LINKS: [(&str, &str); 4] = [
    ("libcuda.so.1", SIM_DRIVER),
    ("libcuda.so", SIM_DRIVER),
    ("libnvidia-ml.so.1", SIM_NVML),
    ("libnvidia-ml.so", SIM_NVML),
];

/// Finds a file of the installation by its name.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    let tried = places(name);
    tried
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| {
            let list: Vec<String> = tried.iter().map(|path| path.shown()).collect();
            let advice = match name {
                LIBRARY => format!("build the workspace or set {} to its path", variables::LIB),
                DRA => "cargo build -p gpushare-dra builds it, and a released archive has it"
                    .to_owned(),
                _ => "build the workspace or install it there".to_owned(),
            };
            Failure::failed(format!(
                "{name} is not installed; looked for {}; {advice}",
                list.join(", ")
            ))
        })
}

/// Returns the absolute path of the library to preload.
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
            path.shown()
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
    // Test programs run from target/PROFILE/deps; the files that they need are one folder up.
    if folder.file_name().is_some_and(|last| last == "deps") {
        places.push(folder.join("..").join(name));
    }
    places
        .into_iter()
        .map(|path| fs::canonicalize(&path).unwrap_or(path))
        .collect()
}

/// Returns a name of the library for `LD_PRELOAD`: its path, or if the dynamic linker would split that path, a link beside
/// the segments. The error says why there is no such name.
pub fn preload(library: PathBuf, dir: Option<&Path>) -> Result<PathBuf, String> {
    if PRELOAD.takes(&library) {
        return Ok(library);
    }
    let because = format!(
        "{} has a blank, a colon or a dollar sign in its path, which the dynamic linker does not accept in LD_PRELOAD",
        library.shown()
    );
    let Some(dir) = dir else {
        return Err(format!(
            "{because}; install gpushare at a path without these"
        ));
    };
    let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    if !PRELOAD.takes(&whole) {
        return Err(format!(
            "{because}, and so has the segment directory {}, where a link to it would be made; install gpushare at a path \
             without these, or set {} to such a path",
            whole.shown(),
            variables::DIR
        ));
    }
    // The name has a hash, so that another installation gets a link of its own.
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let name = format!("libgpushare-{:016x}.so", hasher.finish());
    let made = locate::open_or_make_shared(&whole)
        .and_then(|dir| dir.inner_or_make(PRELOAD_FOLDER))
        .map_err(|error| error.to_string())
        .and_then(|folder| {
            link(&folder, &name, &library).map_err(|error| error.to_string())?;
            Ok(folder.path().join(&name))
        });
    made.map_err(|error| {
        format!("{because}, and a link to it cannot be created: {error}; install gpushare at a path without these")
    })
}

/// Fills `sim-lib` beside the segments with the simulator under the names that programs open, and returns its path.
/// Programs load these files, so the directory must belong to this user. If a broker serves, it is in a directory of this
/// user.
pub fn sim_folder(dir: &Path) -> Result<PathBuf, Failure> {
    let whole = std::path::absolute(dir)?;
    if !LIBRARY_PATH.takes(&whole) {
        return Err(Failure::failed(format!(
            "{} has a colon, a semicolon or a dollar sign in its path, so programs cannot find the simulator there; set \
             {} to a directory without these",
            whole.shown(),
            variables::DIR
        )));
    }
    let folder = locate::open_or_make_shared(dir)
        .and_then(|dir| dir.inner_or_make(SIM_FOLDER))
        .map_err(Failure::from)?;
    for (name, artifact) in SIM_LINKS {
        let target = find(artifact)?;
        link(&folder, name, &target).map_err(|error| {
            Failure::failed(format!(
                "cannot link {} to the simulator: {error}",
                folder.path().join(name).shown()
            ))
        })?;
    }
    Ok(folder.path().to_path_buf())
}

/// Returns true if the environment asks for the simulated GPU.
pub fn is_simulation_asked() -> bool {
    std::env::var_os(variables::SIM).is_some_and(|value| value != "0")
}

/// Makes the link of this name point to the target.
fn link(folder: &Dir, name: &str, target: &Path) -> io::Result<()> {
    if folder.read_link(name).is_ok_and(|now| now == target) {
        return Ok(());
    }
    // The new link is renamed over the old one, because another program may be starting from this folder at this moment.
    let fresh = format!(".{name}-{}", std::process::id());
    let _ = folder.remove(&fresh);
    folder.make_link(target, &fresh)?;
    folder.rename(&fresh, name)
}

/// Returns the path of a library in that folder if the simulator was used. A library of another user is never returned.
pub fn in_sim_folder(dir: &Path, name: &str) -> Option<PathBuf> {
    let folder = locate::open_shared(dir)
        .and_then(|dir| dir.inner(SIM_FOLDER))
        .ok()?;
    let library = folder.path().join(name);
    library.exists().then_some(library)
}

/// A variable with a list of paths for the dynamic linker.
#[derive(Clone, Copy, Debug)]
pub struct PathList {
    /// Name of the variable.
    pub variable: &'static str,
    /// Bytes at which the linker splits the list.
    separators: &'static [u8],
}

/// Libraries that are loaded before all others.
pub const PRELOAD: PathList = PathList {
    variable: "LD_PRELOAD",
    separators: b": ",
};
/// Directories that are searched for libraries first.
pub const LIBRARY_PATH: PathList = PathList {
    variable: "LD_LIBRARY_PATH",
    separators: b":;",
};

impl PathList {
    /// Returns true if the linker uses the path unchanged. It splits the list at separators, and replaces `$LIB` and
    /// similar words.
    fn takes(self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        let is_special = |byte: &u8| *byte == b'$' || self.separators.contains(byte);
        !path.iter().any(is_special)
    }

    /// Returns `first:rest`, where `rest` is the variable's present value. Each entry appears once.
    pub fn prepend(self, first: &Path) -> OsString {
        self.join(first, &std::env::var_os(self.variable).unwrap_or_default())
    }

    fn join(self, first: &Path, present: &OsStr) -> OsString {
        let mut value = first.as_os_str().to_owned();
        let parts = present
            .as_bytes()
            .split(|byte| self.separators.contains(byte));
        for part in parts.filter(|part| !part.is_empty() && *part != first.as_os_str().as_bytes()) {
            value.push(":");
            value.push(OsStr::from_bytes(part));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_where_the_linker_splits_it_and_nowhere_else() {
        let first = Path::new("/ours");
        let joined = |list: PathList, present: &str| {
            let joined = list.join(first, present.as_ref());
            joined.into_string().expect("text")
        };
        assert_eq!(joined(PRELOAD, ""), "/ours");
        assert_eq!(joined(PRELOAD, "/a /ours:/b"), "/ours:/a:/b");
        assert_eq!(joined(LIBRARY_PATH, "/a b;/ours:/c"), "/ours:/a b:/c");
        let not_text = OsStr::from_bytes(b"/\xff");
        assert_eq!(
            LIBRARY_PATH.join(first, not_text).as_bytes(),
            b"/ours:/\xff"
        );
    }

    #[test]
    fn a_path_that_the_linker_would_change_is_not_taken() {
        for path in ["/opt/a b", "/opt/a:b", "/opt/$LIB"] {
            assert!(!PRELOAD.takes(Path::new(path)), "{path}");
        }
        assert!(PRELOAD.takes(Path::new("/opt/a;b")));
        assert!(LIBRARY_PATH.takes(Path::new("/opt/a b")));
        assert!(!LIBRARY_PATH.takes(Path::new("/opt/a;b")));
    }
}
