//! Check for programs that have loaded the library and use the driver, but are not managed.
//!
//! The common cause is a driver that a program loads by `dlmopen`, into a namespace of its own: the preload is not in that
//! namespace, so no call reaches the library.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use shm_layout::Snapshot;

use super::Finding;
use gpushare_base::host::pids::own_pid;
use gpushare_base::host::procfs;

/// Checks this user's processes; `snapshot` is of the segments, if they can be read.
pub(super) fn check(snapshot: Option<&Snapshot>) -> Option<Finding> {
    let processes = snapshot.map_or(&[][..], |snapshot| &snapshot.processes);
    let managed: BTreeSet<u32> = processes
        .iter()
        .map(|process| process.identity.pid)
        .collect();
    let pids: Vec<String> = own_processes()
        .filter(|pid| own_pid(*pid).is_some_and(|own| !managed.contains(&own)))
        .filter(|pid| {
            let maps = procfs::of_memory(format!("/proc/{pid}/maps").into(), u64::MAX);
            maps.is_ok_and(|maps| uses_a_gpu(&maps))
        })
        .map(|pid| pid.to_string())
        .collect();
    (!pids.is_empty()).then(|| {
        Finding::warn(
            "unreached",
            format!(
                "the library is loaded in {}, which uses the driver and has no slot here",
                pids.join(", ")
            ),
            "it may use another GPUSHARE_DIR, have found no free slot, or load the driver by dlmopen, where nothing can be preloaded",
        )
    })
}

/// Returns the pids of this user's processes.
fn own_processes() -> impl Iterator<Item = u32> {
    let uid = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (entry.metadata().ok()?.uid() == uid).then_some(pid)
    })
}

/// Returns true if a process has loaded the library and has mapped memory of a real or simulated GPU.
fn uses_a_gpu(maps: &[u8]) -> bool {
    let (mut library, mut device) = (false, false);
    for file in procfs::mapped_files(maps) {
        let name = file.file_name().unwrap_or_default();
        library |= name.to_string_lossy().starts_with("libgpushare");
        let path = file.to_string_lossy();
        device |= path.starts_with("/dev/nvidia") || path.starts_with("/dev/shm/gpushare-sim-");
    }
    library && device
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(files: &[&str]) -> Vec<u8> {
        let line = |file: &&str| format!("7f00-7f01 r--p 00000000 00:1a 42    {file}\n");
        files.iter().map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn a_program_with_the_library_and_a_device_uses_a_gpu() {
        let library = "/opt/lib/libgpushare.so";
        for device in [
            "/dev/nvidiactl",
            "/dev/nvidia3",
            "/dev/shm/gpushare-sim-0-dir-1",
        ] {
            assert!(uses_a_gpu(&maps(&[library, device])), "{device}");
            assert!(!uses_a_gpu(&maps(&["/lib/libc.so.6", device])), "{device}");
        }
        assert!(!uses_a_gpu(&maps(&[library, "/dev/shm/gpushare-0/state"])));
    }
}
