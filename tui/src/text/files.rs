//! Files that a person names or an administrator keeps: read whole, within bounds.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

/// More than any settings need.
pub const MOST: u64 = 1 << 20;

/// The directory of a user's settings.
pub fn config_home() -> Option<PathBuf> {
    let set = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))
}

/// The text of a file of at most [`MOST`] bytes. A pipe is read until its end (`apply /dev/stdin`), one without a writer is
/// empty; a directory or a device is refused.
pub fn read_text(path: &Path) -> io::Result<String> {
    // Without O_NONBLOCK the open of a planted pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    use std::os::unix::fs::FileTypeExt as _;
    if !kind.is_file() && !kind.is_fifo() && !kind.is_socket() {
        return Err(io::Error::other("it is a device, not a file"));
    }
    if !kind.is_file() {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    }
    let mut bytes = Vec::new();
    let read = file.take(MOST + 1).read_to_end(&mut bytes)?;
    if read as u64 > MOST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_of_a_sensible_length_is_refused_and_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, "all = 1").expect("ours");
        assert_eq!(read_text(&path).expect("text"), "all = 1");
        std::fs::write(&path, vec![b'a'; MOST as usize + 1]).expect("ours");
        let why = |path: &Path| read_text(path).expect_err("refused").to_string();
        assert!(why(&path).contains("1 MiB"));
        std::fs::write(&path, [0xff, 0xfe]).expect("ours");
        assert!(why(&path).contains("UTF-8"));
        assert!(why(dir.path()).contains("directory"));
        assert!(why(Path::new("/dev/zero")).contains("device"));
    }
}
