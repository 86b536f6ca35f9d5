//! Files of `/proc` as text, whatever bytes they hold.
//!
//! Names of programs, paths and cgroups are bytes there: the kernel cuts a thread's name at 15 bytes, even inside a character.
//! Bytes that are not UTF-8 become the replacement character, and the rest of the file stays readable.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

/// A whole file; bytes that are no UTF-8 are replaced.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    read(path.as_ref(), false)
}

/// Reads a file that the kernel writes in one piece, such as `stat`, `status` and `cgroup`. A read that leaves space in the
/// buffer has all of it, which saves a second read.
pub fn record(path: impl AsRef<Path>) -> io::Result<String> {
    read(path.as_ref(), true)
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
