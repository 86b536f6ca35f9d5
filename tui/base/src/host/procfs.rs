//! Files of `/proc`, those about the memory of other processes with a time limit.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use shm_layout::procfs::{record, start_time, stat_fields, text};

/// A look that did not end in time.
#[derive(Clone, Debug)]
pub struct Late(Weak<()>);

impl Late {
    /// Returns true if the process has ended since.
    pub fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Runs `look`, which reads another process's memory files, with a time limit. A process can keep the lock of its own memory
/// (by a file system of its own that does not answer), and then every reader of its `maps`, `map_files` and `cmdline` waits. A
/// read that takes too long is left to end by itself. While several do, later ones get less time, and while many do, none.
pub fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Result<T, Late> {
    const FEW: u32 = 8;
    const MANY: u32 = 32;
    static STUCK: AtomicU32 = AtomicU32::new(0);
    let lasts = Arc::new(());
    let late = Late(Arc::downgrade(&lasts));
    let patience = match STUCK.fetch_add(1, Ordering::Relaxed) {
        0..FEW => Duration::from_millis(100),
        FEW..MANY => Duration::from_millis(5),
        _ => {
            STUCK.fetch_sub(1, Ordering::Relaxed);
            return Err(late);
        }
    };
    let (send, found) = sync_channel(1);
    let looks = move || {
        let found = look();
        STUCK.fetch_sub(1, Ordering::Relaxed);
        drop(lasts);
        let _ = send.send(found);
    };
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    if thread.spawn(looks).is_err() {
        STUCK.fetch_sub(1, Ordering::Relaxed);
        return Err(late);
    }
    found.recv_timeout(patience).map_err(|_| late)
}

/// Reads at most `most` bytes of a file about a process's memory: `maps`, `cmdline`, `environ`.
pub fn of_memory(path: PathBuf, most: u64) -> io::Result<Vec<u8>> {
    let read = move || {
        let mut bytes = Vec::new();
        let file = fs::File::open(path)?;
        file.take(most).read_to_end(&mut bytes).map(|_| bytes)
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it keeps whoever asks waiting");
    in_time(read).unwrap_or_else(|error| Err(late(error)))
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
    fn looks_that_do_not_end_keep_others_waiting_for_less_than_a_second_in_all() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let begun = std::time::Instant::now();
        let mut late = None;
        for _ in 0..20 {
            let ended = std::sync::Arc::clone(&ended);
            let looked = in_time(move || ended.lock().map(|ended| ended.recv().is_ok()).is_ok());
            late = Some(looked.expect_err("it waits"));
        }
        // Eight by a tenth of a second and the rest by little.
        assert!(begun.elapsed() >= Duration::from_millis(800));
        let late = late.expect("twenty of them");
        assert!(!late.has_ended());
        drop(end);
        while !late.has_ended() || in_time(|| 7).is_err() {}
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
