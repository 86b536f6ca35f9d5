//! Check for functions of the driver that the library does not hook. Newer ones pass through uncounted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Finding;
use gpushare_base::host::elf;
use gpushare_base::host::procfs;

/// Prefixes of functions that allocate memory or submit work.
const MATTER: [&str; 22] = [
    "cuMemAlloc",
    "cuMemFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuMemDiscard",
    "cuMemBatch",
    "cuMulticastBind",
    "cuLaunch",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuGraphInstantiate",
    "cuGraphAddNode",
    "cuGraphAddMem",
    "cuStreamBegin",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
];

/// Functions with such a prefix that need no hook: some run on the host, and some add nodes whose work is submitted by the
/// graph's launch.
const LEFT_ALONE: [&str; 4] = [
    "cuLaunchHostFunc",
    "cuLaunchHostFunc_v2",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
];

/// Compares the exports of the driver in process `pid` with the library's hooks.
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
            format!(
                "{known} functions are hooked; the driver has no other that allocates, copies or launches"
            ),
        )
    } else {
        Finding::warn(
            "coverage",
            format!(
                "{known} functions are hooked; the driver also has {}",
                passing.join(", ")
            ),
            "nothing breaks: calls to these are neither counted nor locked; a newer gpushare may handle them",
        )
    })
}

/// Returns the relevant names that are not hooked, including newer versions of a hooked function.
fn passing(driver: &[String], hooked: &BTreeSet<String>) -> Vec<String> {
    let new: BTreeSet<&str> = driver
        .iter()
        .filter(|name| !hooked.contains(*name))
        .map(|name| plain(name))
        .filter(|name| MATTER.iter().any(|start| name.starts_with(start)))
        .filter(|name| !hooked.contains(*name) && !LEFT_ALONE.contains(name))
        .collect();
    new.into_iter().map(ToOwned::to_owned).collect()
}

/// Removes the suffix for per-thread default streams: `cuMemAllocAsync_ptsz` → `cuMemAllocAsync`.
fn plain(name: &str) -> &str {
    let form = ["_ptsz", "_ptds"]
        .iter()
        .find_map(|form| name.strip_suffix(form));
    form.unwrap_or(name)
}

/// Returns the file that the process has mapped as its driver.
fn driver_of(pid: u32) -> Option<PathBuf> {
    let maps = procfs::of_memory(format!("/proc/{pid}/maps").into(), u64::MAX).ok()?;
    let mut paths = procfs::mapped_files(&maps);
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
    fn what_matters_and_is_not_hooked_is_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let hooked = [
            "cuMemAlloc",
            "cuMemAlloc_v2",
            "cuMemcpyAsync",
            "cuLaunchKernel",
        ];
        let hooked: BTreeSet<String> = names(&hooked).into_iter().collect();
        let driver = names(&[
            "cuMemAlloc",
            "cuMemAlloc_v2",
            "cuMemAlloc_v3",
            "cuMemcpyAsync",
            "cuMemcpyAsync_ptsz",
            "cuLaunchGalaxy_ptsz",
            "cuCtxCreate",
            "cuLaunchHostFunc",
            "cuLaunchHostFunc_ptsz",
        ]);
        assert_eq!(
            passing(&driver, &hooked),
            ["cuLaunchGalaxy", "cuMemAlloc_v3"]
        );
    }
}
