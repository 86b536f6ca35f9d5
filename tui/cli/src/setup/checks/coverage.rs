//! What the driver can do that the library does not know: newer functions, which pass through.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use shm_layout::procfs;

use super::Finding;
use gpushare_base::host::elf;

/// Functions by which memory is taken or work submitted begin like this …
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

/// … except these: some run on the host, some are nodes whose work is the graph's launch.
const LEFT_ALONE: [&str; 4] = [
    "cuLaunchHostFunc",
    "cuLaunchHostFunc_v2",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
];

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

/// Names that matter and are not hooked: also a newer version of a function that is.
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

/// `cuMemAllocAsync_ptsz` → `cuMemAllocAsync`: the form for per-thread default streams goes with the plain one.
fn plain(name: &str) -> &str {
    let form = ["_ptsz", "_ptds"]
        .iter()
        .find_map(|form| name.strip_suffix(form));
    form.unwrap_or(name)
}

/// The file the process has mapped as its driver.
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
