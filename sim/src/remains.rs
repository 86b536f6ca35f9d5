//! Removal of worlds. A world that belongs to a `GPUSHARE_DIR` ends with the last process that has it open. The next process
//! that makes a world removes worlds whose processes were all killed. Worlds with a name of their own stay until [`remove`] is
//! called.
//!
//! [`remove`]: crate::world::remove

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::layout::Layout;
use crate::locks::{self, Exclusive, Life};
use crate::slots;

/// The directory of shared memory objects.
pub(crate) const PLACE: &str = "/dev/shm";

/// The prefix of the name of a directory's world, and the number of hexadecimal digits after it.
const OF_DIRECTORY: (&str, usize) = ("dir-", 16);

/// The prefix of the directory that a demonstration or an experiment makes for itself. Its world has the directory's name.
pub const STAGE: &str = "gpushare-stage-";

/// Returns the name of the world that belongs to a directory.
pub(crate) fn of_directory(hash: u64) -> String {
    format!("{}{hash:016x}", OF_DIRECTORY.0)
}

/// Returns true if [`of_directory`] gives the world's name.
pub(crate) fn is_of_directory(world: &str) -> bool {
    let (start, digits) = OF_DIRECTORY;
    world.strip_prefix(start).is_some_and(|rest| {
        rest.len() == digits && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Worlds that this process has open; it removes each at its end if no other process has it open.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

struct Open {
    memory: PathBuf,
    layout: &'static Layout,
    presence: Life,
}

/// Keeps a directory's world until this process ends.
pub(crate) fn keep_until_exit(memory: &Path, layout: &'static Layout, presence: Life) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if open.is_empty() {
        // SAFETY: a plain function of this library, which runs when the process ends or the library is unloaded.
        unsafe { libc::atexit(leave) };
    }
    open.push(Open {
        memory: memory.to_owned(),
        layout,
        presence,
    });
}

extern "C" fn leave() {
    // A thread that opens a world right now, or did when this process was forked, keeps the world.
    let Ok(mut open) = OPEN.try_lock() else {
        return;
    };
    for open in open.drain(..) {
        if !open.presence.is_ours() {
            // A forked child did not open it.
            std::mem::forget(open.presence);
            continue;
        }
        drop(open.presence);
        // Later exit handlers may still use the slot, so it is held to the end.
        remove_unless_open(&open.memory, &slots::own(open.layout));
    }
}

/// Removes this user's directory worlds whose processes are all dead.
pub fn sweep() {
    // SAFETY: geteuid has no preconditions.
    let uid = unsafe { libc::geteuid() };
    let start = format!("gpushare-sim-{uid}-");
    let Ok(names) = fs::read_dir(PLACE) else {
        return;
    };
    let worlds: BTreeSet<String> = names
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(".lock").unwrap_or(&name);
            is_of_directory(name.strip_prefix(&start)?).then(|| name.to_owned())
        })
        .collect();
    for world in worlds {
        let memory = Path::new(PLACE).join(world);
        let ours = |path: &Path| match fs::symlink_metadata(path) {
            Ok(found) => found.is_file() && found.uid() == uid && found.nlink() == 1,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if ours(&memory) && ours(&locks::lock_path(&memory)) {
            remove_unless_open(&memory, &[]);
        }
    }
}

/// Removes a world's files unless a process other than the holders of these slots has it open. Runs under the world's lock: a
/// process that opens the world holds that lock until it is registered, and a process that waited for the lock of a removed
/// file takes the new file's lock.
fn remove_unless_open(memory: &Path, apart_from: &[usize]) {
    let lock = locks::lock_path(memory);
    if let Ok(Some(_exclusive)) = Exclusive::try_lock(&lock)
        && !locks::anyone_but(&lock, apart_from)
    {
        // The lock file last: without it two processes could make the world at once.
        let _ = fs::remove_file(memory);
        let _ = fs::remove_file(&lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    /// Returns the name and files of a directory world that no directory has.
    fn files(number: u64) -> (String, [PathBuf; 2]) {
        let world = of_directory(number << 32 | u64::from(std::process::id()));
        let memory = PathBuf::from(format!("{PLACE}{}", crate::world::os_name(&world)));
        let lock = locks::lock_path(&memory);
        (world, [memory, lock])
    }

    #[test]
    fn only_names_that_a_directory_gives_are_meant() {
        assert!(is_of_directory(&of_directory(7)));
        for other in [
            "dir-7",
            "default",
            "dir-000000000000000g",
            "xdir-0000000000000007",
            "dir-00000000000000070",
        ] {
            assert!(!is_of_directory(other), "{other}");
        }
    }

    #[test]
    fn what_the_dead_left_is_removed_and_what_is_open_is_not() {
        let (dead, left) = files(0xdead);
        let (_, torn) = files(0x70);
        World::open_named(&dead, None).expect("a world of its own");
        // The state after a kill: the memory exists and no member is present.
        OPEN.lock().unwrap().retain(|open| open.memory != left[0]);
        fs::write(&torn[1], b"").expect("shared memory is writable");
        let (alive, kept) = files(0x11fe);
        World::open_named(&alive, None).expect("a world of its own");
        sweep();
        for file in left.iter().chain(&torn) {
            assert!(!file.exists(), "{} was left", file.display());
        }
        for file in &kept {
            assert!(file.exists(), "{} is in use", file.display());
        }
        leave();
        for file in &kept {
            assert!(!file.exists(), "{} was left by the last", file.display());
        }
    }

    #[test]
    fn a_directory_or_a_link_of_such_a_name_stays() {
        let (_, [memory, _]) = files(0xd12);
        fs::create_dir(&memory).expect("shared memory takes directories");
        sweep();
        assert!(memory.is_dir());
        fs::remove_dir(&memory).expect("it is there");
        std::os::unix::fs::symlink("/etc/hostname", &memory).expect("shared memory takes links");
        sweep();
        assert!(memory.is_symlink());
        fs::remove_file(&memory).expect("it is there");
    }
}
