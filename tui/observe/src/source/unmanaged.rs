//! Unmanaged processes: those that use a GPU without a slot, as `/proc` shows them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use shm_layout::peer::namespace_maker;
use shm_layout::{Identity, ProcessView};

use gpushare_base::host::pids;
use gpushare_base::host::procfs;
use gpushare_base::text::cgroups;
use gpushare_base::text::users::Users;
use gpushare_sample::{DELETED, ProcessSample};

/// The prefix of the library's file names, also where the tools unpacked it.
const LIBRARY: &[u8] = b"libgpushare";

/// Returns the facts of `/proc` about a process.
pub(super) fn introduced(pid: u32, users: &Users) -> ProcessSample {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let exe = fs::read_link(dir.join("exe"))
        .map(|path| path.display().to_string())
        .or_else(|_| {
            procfs::text(dir.join("comm")).map(|name| name.trim_end_matches('\n').to_owned())
        })
        .unwrap_or_default();
    // The same user that the broker reports for managed processes.
    let maker = namespace_maker(pid);
    let uid = maker.or_else(|| Some(fs::metadata(&dir).ok()?.uid()));
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

/// Returns the segment directory that a process with the library has mapped, if `/proc` can be read.
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
    use gpushare_testbed::{Need, needs};

    use super::*;

    #[test]
    fn a_process_in_a_users_namespace_is_shown_as_that_users() {
        use std::process::{Command, Stdio};
        if !needs(Need::Root) {
            return;
        }
        const MAKER: u32 = 61_307;
        let script = format!(
            "setpriv --reuid {MAKER} --regid {MAKER} --clear-groups unshare --user sleep 60 & \
             inside=/proc/$!; \
             until [ \"$(readlink $inside/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do sleep 0.01; done; \
             printf '0 {MAKER} 1\\n1 7000000 10' > $inside/uid_map; echo 0 {MAKER} 1 > $inside/gid_map; \
             echo ready; exec nsenter --target $! --user --setuid 3 --setgid 0 sh -c 'echo inside; read end'"
        );
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = std::io::BufReader::new(child.stdout.take().unwrap());
        let said = std::io::BufRead::lines(out).map_while(Result::ok);
        let inside = said.into_iter().any(|line| line == "inside");
        let uid = fs::metadata(format!("/proc/{}", child.id())).unwrap().uid();
        let seen = introduced(child.id(), &Users::of_this_machine());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(inside);
        assert_eq!((uid, seen.identity.uid), (7_000_002, MAKER));
        assert_eq!(seen.user, MAKER.to_string());
    }

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
