//! What is left in shared memory by programs that were killed, and who may remove it.
//!
//! A stage keeps a file locked while its program lives, so its directory is deserted when the lock can
//! be had. A simulated world has a lock file in which everybody in it holds a byte; it is removed when
//! nobody holds one, no process we can see has it mapped (somebody may only be looking), and it is no
//! longer new. Worlds that a person named are the person's.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk, getuid};

use crate::text::exit::Failure;

/// Age from which a stage without its program is one that was left behind.
const LEFTOVER: Duration = Duration::from_secs(2 * 3600);
/// Age from which a world that nobody is in is one that was left behind: its programs may come and go.
const QUIET: Duration = Duration::from_secs(600);
/// The file in a private stage's directory that its program keeps locked.
const ALIVE: &str = "alive";
/// Where all of it lies.
const SHM: &str = "/dev/shm";

/// A directory in memory that only we may enter.
pub fn private_dir(name: &str) -> Result<PathBuf, Failure> {
    let shm = Path::new(SHM);
    let parent = if shm.is_dir() {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    let path = parent.join(name);
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| Failure::failed(format!("{} cannot be made: {error}", path.display())))?;
    Ok(path)
}

/// Says that somebody lives on this stage, in a way that ends with us however we end.
pub fn mark(dir: &Path) -> std::io::Result<File> {
    let new = dir.join("alive.new");
    let file = File::create(&new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Nobody ever finds it unlocked while we live.
    fs::rename(new, dir.join(ALIVE))?;
    Ok(file)
}

/// Whether who lived on this stage is gone, in whatever pid namespace that was.
fn is_deserted(dir: &Path) -> bool {
    File::open(dir.join(ALIVE))
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Removes what stages left behind whose program was killed, and worlds that nobody uses any more.
pub fn sweep() {
    sweep_worlds();
    let Ok(files) = fs::read_dir(SHM) else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let Some(pid) = name.to_str().and_then(owner) else {
            continue;
        };
        if is_deserted(&file.path()) {
            let _ = fs::remove_dir_all(file.path());
            remove_world(&name.to_string_lossy());
            continue;
        }
        let gone = !Path::new("/proc").join(pid.to_string()).exists();
        let old = file
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > LEFTOVER));
        // Old, because a program of another pid namespace may share this directory with us.
        if !(gone && old) {
            continue;
        }
        // What belongs to somebody else stays: only its owner may remove it.
        let _ = fs::remove_dir_all(file.path());
        let _ = fs::remove_file(file.path());
    }
}

/// Removes the simulated worlds of segment directories that nobody uses any more.
pub fn sweep_worlds() {
    sweep_worlds_in(Path::new(SHM), QUIET);
}

fn sweep_worlds_in(shm: &Path, quiet: Duration) {
    let Ok(files) = fs::read_dir(shm) else {
        return;
    };
    let worlds: Vec<PathBuf> = files
        .flatten()
        .filter(|file| {
            file.file_name()
                .to_str()
                .is_some_and(is_world_of_a_directory)
        })
        .map(|file| file.path())
        .filter(|world| is_quiet(world, quiet))
        .collect();
    if worlds.is_empty() {
        return;
    }
    let mapped = mapped_files();
    for world in worlds {
        let lock = lock_of(&world);
        // Whoever opens a world does so under this lock; what it finds is all there or all gone.
        let guard = File::options().read(true).write(true).open(&lock);
        let Ok(guard) = guard else { continue };
        let opens = flock(&guard, FlockOperation::NonBlockingLockExclusive).is_err();
        if opens || somebody_is_in(&guard) || mapped.contains(&world) {
            continue;
        }
        let _ = fs::remove_file(&world);
        let _ = fs::remove_file(&lock);
    }
}

/// `gpushare-sim-UID-dir-HASH`: made for a `GPUSHARE_DIR`, and by us.
fn is_world_of_a_directory(name: &str) -> bool {
    let hash = name
        .strip_prefix("gpushare-sim-")
        .and_then(|rest| rest.strip_prefix(&getuid().as_raw().to_string()))
        .and_then(|rest| rest.strip_prefix("-dir-"));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn lock_of(world: &Path) -> PathBuf {
    let mut lock = world.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Ours, and neither made nor locked for the first time lately.
fn is_quiet(world: &Path, quiet: Duration) -> bool {
    let is_old = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|meta| {
            let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
            meta.is_file() && meta.uid() == getuid().as_raw() && age.is_some_and(|age| age >= quiet)
        })
    };
    is_old(world) && is_old(&lock_of(world))
}

/// Whether any byte of the lock file is held, by whomever.
fn somebody_is_in(lock: &File) -> bool {
    let whole = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    !matches!(fcntl_getlk(lock, &whole), Ok(None))
}

/// What the processes we may look into have mapped of shared memory.
fn mapped_files() -> Vec<PathBuf> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let maps = processes
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes()
                .first()
                .is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| fs::read_to_string(entry.path().join("maps")).ok());
    let mut files: Vec<PathBuf> = maps
        .flat_map(|maps| {
            let paths = maps
                .lines()
                .filter_map(|line| line.split_whitespace().nth(5));
            let shared = paths.filter(|path| path.starts_with(SHM));
            shared.map(PathBuf::from).collect::<Vec<_>>()
        })
        .collect();
    files.sort();
    files.dedup();
    files
}

/// The pid in the name of a stage's directory or of its world.
fn owner(name: &str) -> Option<u32> {
    let (_, rest) = name.split_once("gpushare-stage-")?;
    rest.split('-').next()?.parse().ok()
}

/// Removes what a simulated world leaves in shared memory once its programs have ended.
pub fn remove_world(world: &str) {
    let Ok(files) = fs::read_dir(SHM) else {
        return;
    };
    for file in files.flatten() {
        let name = file.file_name();
        let rest = name
            .to_str()
            .and_then(|name| Some(name.split_once(world)?.1));
        // World 1 is not world 10.
        if rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit())) {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::stage::Stage;

    #[test]
    fn a_killed_stage_is_swept_by_the_next_one_and_a_living_one_is_not() {
        let stage = Stage::new(None, true).expect("there is room");
        let dir = stage.dir.path.clone();
        assert!(!is_deserted(&dir));
        sweep();
        assert!(dir.is_dir(), "it lives");
        // What SIGKILL leaves: the directory stays, the lock goes.
        let left = private_dir(&format!("gpushare-stage-{}-killed", std::process::id()))
            .expect("there is room");
        drop(mark(&left).expect("ours"));
        sweep();
        assert!(!left.exists());
        drop(stage);
        assert!(!dir.exists());
    }

    #[test]
    fn a_leftover_names_the_program_that_left_it() {
        assert_eq!(owner("gpushare-stage-4711-0"), Some(4711));
        assert_eq!(
            owner("gpushare-sim-0-gpushare-stage-4711-0.lock"),
            Some(4711)
        );
        assert_eq!(owner("gpushare-1000"), None);
        assert_eq!(owner("gpushare-stage-x"), None);
    }

    #[test]
    fn a_world_is_removed_when_nobody_is_in_it_and_not_before() {
        let shm = private_dir(&format!("gpushare-stage-{}-worlds", std::process::id()))
            .expect("there is room");
        let name = |hash: &str| format!("gpushare-sim-{}-dir-{hash}", getuid().as_raw());
        let world = |name: &str| {
            let path = shm.join(name);
            fs::write(&path, "world").expect("ours");
            fs::write(lock_of(&path), "").expect("ours");
            path
        };
        let (left, opening) = (
            world(&name("0123456789abcdef")),
            world(&name("0123456789abcde0")),
        );
        let named = world("gpushare-sim-0-mine");
        let other = world(&name("not-a-hash-at-al"));
        sweep_worlds_in(&shm, QUIET);
        assert!(left.exists(), "it is new");
        let guard = File::open(lock_of(&opening)).expect("ours");
        flock(&guard, FlockOperation::NonBlockingLockExclusive).expect("free");
        sweep_worlds_in(&shm, Duration::ZERO);
        assert!(!left.exists() && !lock_of(&left).exists());
        assert!(
            opening.exists() && lock_of(&opening).exists(),
            "somebody opens it"
        );
        assert!(named.exists() && other.exists(), "not ours to judge");
        drop(guard);
        sweep_worlds_in(&shm, Duration::ZERO);
        assert!(!opening.exists());
        fs::remove_dir_all(&shm).expect("ours");
    }

    #[test]
    fn a_world_that_somebody_maps_is_seen() {
        let path = Path::new(SHM).join(format!("gpushare-stage-{}-mapped", std::process::id()));
        // Shared memory that this test maps: the segments of a stage.
        let dir = private_dir(
            path.file_name()
                .and_then(|name| name.to_str())
                .expect("text"),
        )
        .expect("there is room");
        let segments = shm_layout::Segments::open_workload(&dir).expect("ours");
        assert!(mapped_files().contains(&dir.join("state")));
        drop(segments);
        fs::remove_dir_all(&dir).expect("ours");
    }
}
