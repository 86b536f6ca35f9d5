//! Files of `/proc`, those about the memory of other processes with a time limit.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub use shm_layout::procfs::{record, start_time, stat_fields, text};

/// A look that did not end in time.
#[derive(Clone, Debug)]
pub struct Late(Weak<UnderWay>);

impl Late {
    /// Returns true if the process has ended since.
    pub fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// The looks of each user's processes that have not ended yet, and of all.
#[derive(Default)]
struct Stuck {
    of_user: BTreeMap<u32, u32>,
    all: u32,
}

static STUCK: Mutex<Stuck> = Mutex::new(Stuck {
    of_user: BTreeMap::new(),
    all: 0,
});

/// A look under way, counted for the user whose process it is about.
struct UnderWay(u32);

impl UnderWay {
    /// Counts one more. Returns for how long it is waited for, or `None` if too many have not ended.
    fn begin(user: u32) -> Option<(Self, Duration)> {
        const FEW: u32 = 8;
        const MANY: u32 = 32;
        /// Also for all together, because one may have many numbers in a namespace.
        const MOST: u32 = 512;
        let mut stuck = stuck();
        let few_in_all = stuck.all < MANY;
        let of_user = stuck.of_user.entry(user).or_default();
        let patience = match *of_user {
            0..FEW if few_in_all => Duration::from_millis(100),
            0..MANY => Duration::from_millis(5),
            _ => return None,
        };
        *of_user += 1;
        stuck.all += 1;
        let begun = Self(user);
        let is_one_too_many = stuck.all > MOST;
        drop(stuck);
        (!is_one_too_many).then_some((begun, patience))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut stuck = stuck();
        stuck.all -= 1;
        if let Some(of_user) = stuck.of_user.get_mut(&self.0) {
            *of_user -= 1;
            if *of_user == 0 {
                stuck.of_user.remove(&self.0);
            }
        }
    }
}

fn stuck() -> MutexGuard<'static, Stuck> {
    STUCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the user of a process, whose directory in `/proc` this is. A process that may not be read belongs to root in `/proc`, so its
/// own number is read.
fn user_of(process: &Path) -> u32 {
    let status = record(process.join("status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let own = numbers.and_then(|numbers| numbers.split_whitespace().next()?.parse().ok());
    own.unwrap_or(u32::MAX)
}

/// Runs `look`, which reads the memory files of the process with this directory in `/proc`, with a time limit. A process can keep the
/// lock of its own memory (by a file system of its own that does not answer), and then every reader of its `maps`, `map_files` and
/// `cmdline` waits. A read that takes too long is left to end by itself. While several of a user's do, the user's later ones get less
/// time, and while many do, none.
pub fn in_time<T: Send + 'static>(
    process: &Path,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Late> {
    let Some((under_way, patience)) = UnderWay::begin(user_of(process)) else {
        return Err(Late(Weak::new()));
    };
    let under_way = Arc::new(under_way);
    let late = Late(Arc::downgrade(&under_way));
    let (send, found) = sync_channel(1);
    let looks = move || {
        let found = look();
        drop(under_way);
        let _ = send.send(found);
    };
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    if thread.spawn(looks).is_err() {
        return Err(late);
    }
    found.recv_timeout(patience).map_err(|_| late)
}

/// Reads at most `most` bytes of a file about a process's memory: `maps`, `cmdline`, `environ`.
pub fn of_memory(path: PathBuf, most: u64) -> io::Result<Vec<u8>> {
    let process = path.with_file_name("");
    let read = move || {
        let mut bytes = Vec::new();
        let file = fs::File::open(path)?;
        file.take(most).read_to_end(&mut bytes).map(|_| bytes)
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it keeps whoever asks waiting");
    in_time(&process, read).unwrap_or_else(|error| Err(late(error)))
}

/// The files that a `maps` file names, once for each mapping. A path may hold blanks and any other bytes.
pub fn mapped_files(maps: &[u8]) -> impl Iterator<Item = &Path> {
    maps.split(|byte| *byte == b'\n').filter_map(|line| {
        // Five fields, then blanks up to the path.
        let path = (0..5).try_fold(line, |rest, _| {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            Some(&rest[end + 1..])
        })?;
        let path = path.trim_ascii_start();
        path.starts_with(b"/")
            .then(|| Path::new(OsStr::from_bytes(path)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_do_not_end_keep_others_waiting_for_less_than_a_second_in_all_and_only_their_users()
     {
        // A process that is not there has no user, so that other tests here may look at their own.
        let none = Path::new("/proc/none");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let begun = std::time::Instant::now();
        let mut late = None;
        for _ in 0..40 {
            let ended = std::sync::Arc::clone(&ended);
            let look = move || ended.lock().map(|ended| ended.recv().is_ok()).is_ok();
            let looked = in_time(none, look).expect_err("it waits");
            late.get_or_insert(looked);
        }
        // Eight by a tenth of a second and the rest by little.
        assert!(begun.elapsed() >= Duration::from_millis(800));
        let late = late.expect("forty of them");
        assert!(!late.has_ended());
        let others = || in_time(Path::new("/proc/self"), || 7).is_ok();
        assert!((0..100).any(|_| others()), "another user's");
        drop(end);
        while !late.has_ended() || in_time(none, || 7).is_err() {}
    }

    #[test]
    fn of_what_a_process_has_in_memory_no_more_is_read_than_was_asked_for() {
        let maps = |most| of_memory("/proc/self/maps".into(), most).expect("our own");
        assert_eq!(maps(64).len(), 64);
        assert!(mapped_files(&maps(u64::MAX)).count() > 0);
    }

    #[test]
    fn a_mapped_path_with_blanks_and_foreign_bytes_is_whole() {
        let maps = b"7f00-7f01 r--p 00000000 00:1a 42                         /opt/my apps/\xfcb/libcuda.so.1\n\
                     7f02-7f03 rw-p 00000000 00:00 0 \n\
                     7ffd-7ffe rw-p 00000000 00:00 0                          [stack]\n";
        let files: Vec<_> = mapped_files(maps).collect();
        assert_eq!(
            files,
            [Path::new(OsStr::from_bytes(
                b"/opt/my apps/\xfcb/libcuda.so.1"
            ))]
        );
    }
}
