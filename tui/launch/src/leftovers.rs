//! Files in shared memory that killed programs left behind, and their removal.
//!
//! A stage keeps a file locked while its program lives. If the lock can be taken, the program has ended. Simulated worlds
//! are removed by the simulator ([`gpushare_sim::remains`]), except those that have the name of a stage.

use std::fs::{self, DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpushare_sim::remains::STAGE;
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, openat, statat, unlinkat,
};
use rustix::process::geteuid;
use shm_layout::dir::Dir;
use shm_layout::text::PathText as _;

use gpushare_base::host::demo::{ALIVE, SHM, lives};
use gpushare_base::host::mps;
use gpushare_base::text::exit::Failure;

/// Age from which a stage without a lock counts as left behind.
const LEFTOVER: Duration = Duration::from_secs(2 * 3600);

/// A directory in memory that only this user may enter, and the simulated world of its name. Both are removed on drop. If
/// this process is killed, the next one that makes a stage removes them.
#[derive(Debug)]
pub struct Private {
    /// Path of the directory.
    pub path: PathBuf,
    /// Name of the simulated world.
    pub world: String,
    /// File that is locked while this process lives. Without the lock the directory is only removed later.
    _alive: Option<File>,
}

impl Private {
    /// Makes a directory, after removing those that killed programs left.
    pub fn new() -> Result<Self, Failure> {
        sweep();
        Self::in_place(&place())
    }

    fn in_place(parent: &Path) -> Result<Self, Failure> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // `pid_of_stage` reads it.
        let world = format!("{STAGE}{}-{number}", std::process::id());
        let path = parent.join(&world);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| {
            Failure::failed(format!("{} cannot be created: {error}", path.shown()))
        })?;
        let _alive = mark(&path);
        Ok(Self {
            path,
            world,
            _alive,
        })
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if let Some(parent) = self.path.parent()
            && let Some(shm) = Shm::open(parent)
        {
            shm.remove_stage(&self.world);
        }
    }
}

fn place() -> PathBuf {
    let shm = Path::new(SHM);
    if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// Marks this stage as in use with a lock that ends with this process.
fn mark(path: &Path) -> Option<File> {
    let dir = Dir::open(path).ok()?;
    let file = dir.write("alive.new", 0o600).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // It is locked before it is renamed, so that no process finds it unlocked while this one lives.
    dir.rename("alive.new", ALIVE).ok()?;
    Some(file)
}

/// Removes the stages of killed programs, and simulated worlds that no process uses.
pub fn sweep() {
    sweep_worlds();
    sweep_stages_in(Path::new(SHM));
}

fn sweep_stages_in(parent: &Path) {
    let (Some(shm), Ok(files)) = (Shm::open(parent), fs::read_dir(parent)) else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(pid) = pid_of_stage(name) {
            let life = shm.ours(name).map(|dir| lives(&dir));
            match life {
                Some(Some(false)) => shm.remove_stage(name),
                Some(None) if is_gone(pid) && is_old(&file.path(), LEFTOVER) => {
                    shm.remove_stage(name);
                }
                _ => {}
            }
        } else if let Some(stage) = stage_of_world(name)
            && let Some(pid) = pid_of_stage(stage)
            && !parent.join(stage).exists()
            && is_gone(pid)
            && is_old(&file.path(), LEFTOVER)
        {
            shm.remove_world(stage);
        }
    }
}

/// Returns the pid in a stage's name.
fn pid_of_stage(name: &str) -> Option<u32> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let (pid, count) = name.strip_prefix(STAGE)?.split_once('-')?;
    number(count)?;
    number(pid)
}

/// Returns the stage's name in the file name of a simulated world, if there can be a stage.
fn stage_of_world(name: &str) -> Option<&str> {
    let stage = name.strip_prefix(&our_worlds())?;
    Some(stage.strip_suffix(".lock").unwrap_or(stage))
}

/// Returns the prefix of the file names of this user's simulated worlds.
fn our_worlds() -> String {
    format!("gpushare-sim-{}-", geteuid().as_raw())
}

fn is_gone(pid: u32) -> bool {
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns true if the file is old enough. A young one may belong to a program of another pid namespace.
fn is_old(path: &Path, age: Duration) -> bool {
    fs::symlink_metadata(path)
        .and_then(|meta| meta.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|found| found >= age))
}

/// Ends the MPS of a stage whose program was killed before it ended the MPS.
fn end_mps(stage: &Path) {
    if let Ok(Some(place)) = mps::Place::existing(stage) {
        place.end();
    }
}

/// The directory of the stages. Every user may write it, so any name in it may be a link, a pipe, or another user's.
struct Shm<'p> {
    path: &'p Path,
    fd: OwnedFd,
}

impl<'p> Shm<'p> {
    fn open(path: &'p Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty()).ok()?;
        Some(Self { path, fd })
    }

    /// Opens the directory of this name if it belongs to this user and no other user may write it.
    fn ours(&self, name: &str) -> Option<Dir> {
        let dir = Dir::open(&self.path.join(name)).ok()?;
        dir.is_ours().then_some(dir)
    }

    fn remove_stage(&self, name: &str) {
        if let Some(dir) = self.ours(name) {
            end_mps(&self.path.join(name));
            let _ = dir.remove_all();
            let _ = unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
        }
        self.remove_world(name);
    }

    /// Removes the files of a stage's world once its programs have ended.
    fn remove_world(&self, stage: &str) {
        let memory = format!("{}{stage}", our_worlds());
        for name in [format!("{memory}.lock"), memory] {
            let found = statat(&self.fd, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|found| {
                FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                    && found.st_uid == geteuid().as_raw()
            }) {
                let _ = unlinkat(&self.fd, name.as_str(), AtFlags::empty());
            }
        }
    }
}

/// Removes the simulated worlds of segment directories that no process has open.
pub fn sweep_worlds() {
    gpushare_sim::remains::sweep();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::sync::mpsc;

    use gpushare_sim::locks::lock_path as lock_of;
    use gpushare_testbed::{Need, needs};

    use super::*;

    /// Makes a directory like /dev/shm, which every user may write.
    fn shm() -> tempfile::TempDir {
        let shm = tempfile::tempdir().expect("there is room");
        fs::set_permissions(shm.path(), fs::Permissions::from_mode(0o1777)).expect("ours");
        shm
    }

    /// Makes the files that remain of a stage after SIGKILL: the directory with its contents and its world, without the
    /// lock.
    fn leave(shm: &Path, name: &str) -> [PathBuf; 3] {
        let dir = shm.join(name);
        fs::create_dir(&dir).expect("there is room");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("ours");
        drop(mark(&dir).expect("ours"));
        fs::create_dir(dir.join("sim-lib")).expect("ours");
        fs::write(dir.join("sim-lib/inner"), "").expect("ours");
        let world = shm.join(format!("{}{name}", our_worlds()));
        fs::write(&world, "").expect("ours");
        fs::write(lock_of(&world), "").expect("ours");
        [lock_of(&world), world, dir]
    }

    /// Sweeps, and fails the test if that blocks.
    fn without_waiting(shm: &Path) {
        let (send, done) = mpsc::channel();
        let shm = shm.to_path_buf();
        std::thread::spawn(move || {
            sweep_stages_in(&shm);
            send.send(())
        });
        done.recv_timeout(Duration::from_secs(30))
            .expect("it waits on a file that was planted");
    }

    fn make_pipe(path: &Path) {
        let bits = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(CWD, path, FileType::Fifo, bits, 0).expect("a pipe");
    }

    #[test]
    fn a_killed_stage_is_swept_by_the_next_one_and_a_living_one_is_not() {
        let shm = shm();
        let living = Private::in_place(shm.path()).expect("there is room");
        let left = leave(shm.path(), "gpushare-stage-4711-0");
        sweep_stages_in(shm.path());
        assert!(left.iter().all(|path| !path.exists()), "{left:?}");
        assert!(living.path.is_dir());
        let path = living.path.clone();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn a_stage_has_a_name_of_exactly_one_form() {
        assert_eq!(pid_of_stage("gpushare-stage-4711-0"), Some(4711));
        let worlds = format!("{}gpushare-stage-4711-0", our_worlds());
        for name in [&worlds, &format!("{worlds}.lock")] {
            assert_eq!(stage_of_world(name), Some("gpushare-stage-4711-0"));
        }
        for other in [
            "gpushare-1000",
            "gpushare-stage-x",
            "gpushare-stage-4711",
            "gpushare-stage-4711-",
            "gpushare-stage-+4711-0",
            "gpushare-stage-4711-0-backup",
            "my-gpushare-stage-4711-0",
            "gpushare-stage-99999999999-0",
        ] {
            assert_eq!(pid_of_stage(other), None, "{other}");
        }
    }

    #[test]
    fn what_only_contains_the_name_of_a_stage_stays() {
        let shm = shm();
        let others = [
            leave(shm.path(), "my-gpushare-stage-4711-0"),
            leave(shm.path(), "gpushare-stage-4711-0-backup"),
        ];
        let left = leave(shm.path(), "gpushare-stage-4711-0");
        sweep_stages_in(shm.path());
        assert!(left.iter().all(|path| !path.exists()), "{left:?}");
        assert!(others.iter().flatten().all(|path| path.exists()));
    }

    #[test]
    fn a_pipe_in_the_place_of_the_mark_holds_nobody_up() {
        let shm = shm();
        let [.., dir] = leave(shm.path(), "gpushare-stage-4711-0");
        fs::remove_file(dir.join(ALIVE)).expect("ours");
        make_pipe(&dir.join(ALIVE));
        make_pipe(&shm.path().join("gpushare-stage-4711-1"));
        without_waiting(shm.path());
        assert!(dir.exists(), "it has no mark and is new");
    }

    #[test]
    fn a_link_in_the_place_of_a_stage_or_of_its_mark_is_not_followed() {
        let (shm, other) = (shm(), shm());
        let [.., dir] = leave(shm.path(), "gpushare-stage-4711-0");
        let [.., victim] = leave(other.path(), "victim");
        symlink(&victim, shm.path().join("gpushare-stage-4711-1")).expect("linked");
        fs::remove_file(dir.join(ALIVE)).expect("ours");
        symlink(victim.join(ALIVE), dir.join(ALIVE)).expect("linked");
        symlink(&victim, dir.join("inner")).expect("linked");
        sweep_stages_in(shm.path());
        assert!(dir.exists(), "another directory's mark is not its own");
        fs::remove_file(dir.join(ALIVE)).expect("ours");
        drop(mark(&dir).expect("ours"));
        sweep_stages_in(shm.path());
        assert!(!dir.exists());
        assert!(victim.join("sim-lib/inner").exists());
    }

    #[test]
    fn what_another_user_put_there_stays_and_holds_nobody_up() {
        if !needs(Need::Root) {
            return;
        }
        let shm = shm();
        let left = leave(shm.path(), "gpushare-stage-4711-0");
        let [.., planted] = leave(shm.path(), "gpushare-stage-4711-1");
        fs::remove_file(planted.join(ALIVE)).expect("ours");
        make_pipe(&planted.join(ALIVE));
        for path in left.iter().chain([&planted]) {
            chown(path, Some(61_235), None).expect("given away");
        }
        without_waiting(shm.path());
        assert!(left.iter().chain([&planted]).all(|path| path.exists()));
    }
}
