//! Files that a user names or an administrator keeps: they are read completely, up to a maximum size.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use shm_layout::OpenError;
use shm_layout::dir::file_of_ours;

use super::exit::Failure;
use super::users::Users;

/// Maximum size in bytes, more than any settings need.
pub const MOST: u64 = 1 << 20;

/// Returns the directory of the user's settings.
pub fn config_home() -> Option<PathBuf> {
    let set = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))
}

/// Reads a file of at most [`MOST`] bytes. A pipe is read until its end (`apply /dev/stdin`), and a pipe without a writer
/// is empty. Directories and devices are refused.
pub fn read_text(path: &Path) -> io::Result<String> {
    let file = open_at_once(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
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

/// Opens a file for random access. Anything but a regular file is refused.
pub fn open_file(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    let kind = file.metadata()?.file_type();
    match kind {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        kind if kind.is_fifo() => Err(io::Error::other("it is a pipe, not a file")),
        _ => Err(io::Error::other("it is a device, not a file")),
    }
}

/// Opens a file to overwrite it, and makes it if it is missing. Links, files with a second name, files of other users,
/// pipes and devices are refused, because another user may have prepared them.
pub fn rewrite(path: &Path) -> Result<File, Failure> {
    let special = std::fs::symlink_metadata(path).map(|meta| meta.file_type());
    if special.is_ok_and(|kind| !kind.is_file() && !kind.is_symlink()) {
        let why = "it is not a file; give the name of a file";
        return Err(Failure::not_permitted(why));
    }
    let file = match file_of_ours(path, OFlags::WRONLY, 0) {
        Err(OpenError::Missing { .. }) => {
            let made = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            file_of_ours(path, made, 0o666)
        }
        found => found,
    };
    let file = file.map_err(|error| match error {
        OpenError::Unsafe { why, .. } => Failure::not_permitted(why),
        OpenError::WrongOwner { owner, .. } => {
            let owner = Users::of_this_machine().name_and_number(owner);
            Failure::not_permitted(format!(
                "it belongs to user {owner}; give another name, or remove it"
            ))
        }
        OpenError::Missing { .. } => Failure::failed("there is no such directory"),
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::not_permitted(source.to_string())
        }
        OpenError::Io { source, .. } => source.into(),
        other => other.into(),
    })?;
    // The file is truncated only after the check of its owner.
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file without blocking. Without O_NONBLOCK, opening a planted pipe would wait for a writer.
fn open_at_once(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(open(path, flags, Mode::empty())?))
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

    #[test]
    fn what_is_rewritten_is_a_file_of_ours_and_nothing_that_was_prepared_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let [path, other] = ["path", "other"].map(|name| dir.path().join(name));
        std::fs::write(&other, "other").expect("ours");
        let why = |path: &Path| rewrite(path).expect_err("refused").to_string();
        std::os::unix::fs::symlink(&other, &path).expect("ours");
        assert!(why(&path).contains("symbolic link"));
        std::fs::remove_file(&path).expect("ours");
        std::fs::hard_link(&other, &path).expect("ours");
        assert!(why(&path).contains("second name"));
        std::fs::remove_file(&path).expect("ours");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, Mode::RUSR, 0).expect("ours");
        assert!(why(&path).contains("not a file"));
        assert!(
            open_file(&path)
                .expect_err("refused")
                .to_string()
                .contains("pipe")
        );
        assert!(why(dir.path()).contains("not a file"));
        assert!(why(Path::new("/dev/null")).contains("not a file"));
        assert_eq!(std::fs::read(&other).expect("there"), b"other");
        rewrite(&other).expect("ours");
        assert_eq!(std::fs::read(&other).expect("there"), b"");
    }
}
