//! What the driver can do that the library does not know: newer functions, which pass through.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Finding;
use crate::elf;

/// Functions by which memory is taken or work submitted begin like this …
const MATTER: [&str; 10] = [
    "cuMemAlloc",
    "cuMemCreate",
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuLaunch",
    "cuGraphLaunch",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
];

/// … except these, which run on the host and are left alone on purpose.
const LEFT_ALONE: [&str; 1] = ["cuLaunchHostFunc"];

/// Compares what the driver of the process `pid` exports with what the library hooks.
pub(super) fn check(pid: u32, library: &Path) -> Option<Finding> {
    let driver = driver_of(pid)?;
    let hooked: BTreeSet<String> = elf::exports(library)
        .into_iter()
        .filter(|name| name.starts_with("cu"))
        .collect();
    let passing = passing(&elf::exports(&driver), &hooked);
    let known = hooked.len();
    Some(if passing.is_empty() {
        Finding::ok(
            "coverage",
            format!("{known} functions are hooked; the driver has no newer one that matters"),
        )
    } else {
        Finding::warn(
            "coverage",
            format!(
                "{known} functions are hooked; the driver also has {}",
                passing.join(", ")
            ),
            "nothing breaks: what is done through these is neither counted nor locked; a newer gpushare may know them",
        )
    })
}

/// Names that matter and are not hooked; of a function in several versions only where none is.
fn passing(driver: &[String], hooked: &BTreeSet<String>) -> Vec<String> {
    let known: BTreeSet<&str> = hooked.iter().map(|name| base(name)).collect();
    let new: BTreeSet<&str> = driver
        .iter()
        .map(|name| base(name))
        .filter(|name| MATTER.iter().any(|start| name.starts_with(start)))
        .filter(|name| !known.contains(name) && !LEFT_ALONE.contains(name))
        .collect();
    new.into_iter().map(ToOwned::to_owned).collect()
}

/// `cuMemAlloc_v2`, `cuMemAlloc_v2_ptds` → `cuMemAlloc`.
fn base(name: &str) -> &str {
    let name = name
        .strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
        .unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u32>().is_ok() => base,
        _ => name,
    }
}

/// The file the process has mapped as its driver.
fn driver_of(pid: u32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .map(Path::new);
    let is_driver = |path: &&Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("libcuda.so"))
    };
    paths.find(is_driver).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_matter_and_that_no_version_is_known_of_are_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let hooked: BTreeSet<String> =
            names(&["cuMemAlloc_v2", "cuLaunchKernel", "cuMemcpyAsync_ptsz"])
                .into_iter()
                .collect();
        let driver = names(&[
            "cuMemAlloc",
            "cuMemAlloc_v3",
            "cuMemcpyAsync",
            "cuLaunchGalaxy_ptsz",
            "cuCtxCreate",
            "cuLaunchHostFunc",
        ]);
        assert_eq!(passing(&driver, &hooked), ["cuLaunchGalaxy"]);
    }
}
