//! Detection of suspended GPUs through the kernel. A driver call would wake the GPU.

use std::fs;
use std::path::Path;

/// The directory in which the kernel lists PCI devices.
pub(super) const PCI: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";

/// Reports whether there are NVIDIA display devices and all of them are suspended.
pub(super) fn all_asleep(pci: &Path) -> bool {
    let mut any = false;
    for entry in fs::read_dir(pci).into_iter().flatten().flatten() {
        let word = |file: &str| {
            fs::read_to_string(entry.path().join(file))
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        if word("vendor") != NVIDIA || !word("class").starts_with("0x03") {
            continue;
        }
        if word("power/runtime_status") != "suspended" {
            return false;
        }
        any = true;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(root: &Path, name: &str, class: &str, status: &str) {
        let dir = root.join(name);
        fs::create_dir_all(dir.join("power")).unwrap();
        fs::write(dir.join("vendor"), "0x10de\n").unwrap();
        fs::write(dir.join("class"), class).unwrap();
        fs::write(dir.join("power/runtime_status"), status).unwrap();
    }

    #[test]
    fn a_machine_sleeps_only_when_each_of_its_gpus_does() {
        let root = tempfile::tempdir().unwrap();
        assert!(!all_asleep(root.path()), "no GPU is not a sleeping GPU");
        device(root.path(), "0000:01:00.0", "0x030200\n", "suspended\n");
        device(root.path(), "0000:01:00.1", "0x040300\n", "active\n");
        assert!(all_asleep(root.path()), "its sound device does not count");
        device(root.path(), "0000:02:00.0", "0x030200\n", "active\n");
        assert!(!all_asleep(root.path()));
    }
}
