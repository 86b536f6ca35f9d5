//! Files of `/proc` as text, whatever bytes they hold.
//!
//! Names of programs, paths and cgroups are bytes there: the kernel cuts a thread's name at 15 bytes, even inside a character.
//! Bytes that are not UTF-8 become the replacement character, and the rest of the file stays readable.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Weak, mpsc::sync_channel},
    time::Duration,
};

use crate::protocol::primitive::{AtomicU32, Ordering};

/// A whole file; bytes that are no UTF-8 are replaced.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    read(path.as_ref(), false)
}

/// Reads a file that the kernel writes in one piece, such as `stat`, `status` and `cgroup`. A read that leaves space in the
/// buffer has all of it, which saves a second read.
pub fn record(path: impl AsRef<Path>) -> io::Result<String> {
    read(path.as_ref(), true)
}

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
/// read that takes too long is left to end by itself. While several do, later ones get less time.
pub(crate) fn in_time<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Late> {
    const FEW: u32 = 8;
    static STUCK: AtomicU32 = AtomicU32::new(0);
    let patience = match STUCK.fetch_add(1, Ordering::Relaxed) {
        0..FEW => Duration::from_millis(100),
        _ => Duration::from_millis(5),
    };
    let (send, found) = sync_channel(1);
    let lasts = Arc::new(());
    let late = Late(Arc::downgrade(&lasts));
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

fn read(path: &Path, in_one_piece: bool) -> io::Result<String> {
    // Such a file has no length, so it is not asked for one; there is room for most of them at once.
    const PART: usize = 4096;
    let (mut file, mut bytes, mut got) = (fs::File::open(path)?, Vec::new(), 0);
    loop {
        bytes.resize(got + PART, 0);
        match file.read(&mut bytes[got..]) {
            Ok(read) => {
                got += read;
                if read == 0 || in_one_piece && read < PART {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(got);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The fields of a `stat` file from field 3 on: state, parent, group, session … The command, field 2, may itself hold
/// blanks, line ends and parentheses; its end is the last parenthesis that closes.
pub fn stat_fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, behind_command) = stat.rsplit_once(')')?;
    Some(behind_command.split_ascii_whitespace())
}

/// Clock ticks from boot to the start of a process or thread, field 22 of its `stat` file.
pub fn start_time(stat: &str) -> Option<u64> {
    stat_fields(stat)?.nth(19)?.parse().ok()
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
    fn a_command_of_parentheses_and_line_ends_does_not_shift_the_fields() {
        let stat = "7 (a) b)\n(c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(start_time(stat), Some(4242));
        assert_eq!(
            stat_fields(stat).and_then(|mut fields| fields.next()),
            Some("S")
        );
        assert!(stat_fields("no stat").is_none());
    }

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
    fn a_record_is_the_whole_file() {
        for name in ["stat", "status", "cgroup"] {
            let path = format!("/proc/self/{name}");
            let (all, one) = (
                text(&path).expect("our own"),
                record(&path).expect("our own"),
            );
            // Figures change from look to look.
            let words = |text: &str| text.split_ascii_whitespace().count();
            assert_eq!(words(&all), words(&one), "{name}");
        }
        // A file longer than one read.
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("long");
        fs::write(&path, "x".repeat(10_000)).expect("there is room");
        assert_eq!(record(&path).expect("readable").len(), 10_000);
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

    #[test]
    fn a_name_cut_inside_a_character_leaves_the_rest_readable() {
        // Threads have names of their own, so this one's harms no other test.
        let named = std::thread::spawn(|| {
            let own = Path::new("/proc/thread-self");
            fs::write(own.join("comm"), b"\xc3\xbcber\xc3").expect("our own name");
            let stat = text(own.join("stat")).expect("our own");
            let status = text(own.join("status")).expect("our own");
            (start_time(&stat), stat, status)
        });
        let (start, stat, status) = named.join().expect("it ends");
        assert!(stat.contains("(\u{fc}ber\u{fffd})"), "{stat}");
        assert!(start.is_some_and(|ticks| ticks > 0));
        assert!(status.contains("NSpid:"), "{status}");
    }
}
