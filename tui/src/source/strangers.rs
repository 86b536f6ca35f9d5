//! Who uses a GPU and is in no slot, as `/proc` tells.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use shm_layout::{Identity, ProcessView, procfs};

use crate::host::pids;
use crate::sample::{DELETED, ProcessSample};
use crate::text::cgroups;
use crate::text::users::Users;

/// How the files of the library are called, also where the tools unpacked it.
const LIBRARY: &[u8] = b"libgpushare";

/// What `/proc` says of a process.
pub(super) fn introduced(pid: u32, users: &Users) -> ProcessSample {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let exe = fs::read_link(dir.join("exe"))
        .map(|path| path.display().to_string())
        .or_else(|_| {
            procfs::text(dir.join("comm")).map(|name| name.trim_end_matches('\n').to_owned())
        })
        .unwrap_or_default();
    let uid = fs::metadata(&dir).ok().map(|meta| meta.uid());
    let cgroup = procfs::text(dir.join("cgroup")).unwrap_or_default();
    let cgroup = cgroup
        .lines()
        .last()
        .and_then(|line| line.splitn(3, ':').nth(2));
    let identity = Identity {
        pid,
        start_time: pids::start_time(&dir).unwrap_or(0),
        uid: uid.unwrap_or(u32::MAX),
        exe,
        cgroup: cgroup.unwrap_or_default().to_owned(),
        ..Identity::default()
    };
    ProcessSample {
        user: uid.map(|uid| users.name(uid)).unwrap_or_default(),
        container: cgroups::container(&identity.cgroup),
        elsewhere: segments_of(&dir),
        view: ProcessView {
            identity,
            ..ProcessView::default()
        },
        ..ProcessSample::default()
    }
}

/// The directory of the segments that a process has mapped beside the library, if `/proc` shows it to us.
fn segments_of(proc: &Path) -> Option<String> {
    let maps = procfs::of_memory(proc.join("maps"), u64::MAX).ok()?;
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.as_encoded_bytes().to_owned())
    };
    let loaded = |path: &Path| name(path).is_some_and(|name| name.starts_with(LIBRARY));
    if !procfs::mapped_files(&maps).any(loaded) {
        return None;
    }
    procfs::mapped_files(&maps).find_map(|path| {
        let path = path.to_string_lossy();
        let (file, end) = match path.strip_suffix(DELETED) {
            Some(file) => (file, DELETED),
            None => (&*path, ""),
        };
        Some(format!("{}{end}", file.strip_suffix("/state")?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_other_segments_is_known_by_what_it_has_mapped() {
        let proc = tempfile::tempdir().unwrap();
        let found = |maps: &str| {
            fs::write(proc.path().join("maps"), maps).unwrap();
            segments_of(proc.path())
        };
        let library = "7f00-7f01 r-xp 00000000 08:01 7   /tmp/libgpushare-0011.so\n";
        let line = |path: &str| format!("7f02-7f03 rw-s 00000000 00:19 9   {path}\n");
        let moved = line("/dev/shm/moved here/state");
        assert_eq!(
            found(&moved),
            None,
            "without the library it is another's file"
        );
        let moved = format!("{library}{moved}");
        assert_eq!(found(&moved).as_deref(), Some("/dev/shm/moved here"));
        let removed = format!("{library}{}", line("/dev/shm/gpushare-0/state (deleted)"));
        let removed = found(&removed).unwrap();
        assert_eq!(removed.strip_suffix(DELETED), Some("/dev/shm/gpushare-0"));
        assert_eq!(found(library), None);
    }
}
